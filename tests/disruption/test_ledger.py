"""What was moved lately is not moved back before it has paid, unless the workload has changed."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis.annotations import MOVED_FROM
from karpenter.apis.meta import OwnerReference
from karpenter.base.timestamps import format_time
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.ledger import Ledger, memories, objection, without_returns
from karpenter.disruption.market import Market
from karpenter.disruption.memory import Moved, gathered, memory_of, remembering
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.rounds import Decision
from karpenter.disruption.sets import SetSearch
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import PlannedClaim
from karpenter.model.snapshot import NodeView
from karpenter.scheduling import solve
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, an_instance_type, an_owner
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", memory="64Gi", price=0.1)
OTHER = an_instance_type("other", cpu="2", memory="64Gi", price=0.12)
LARGE = an_instance_type("large", cpu="8", memory="64Gi", price=0.4)
TYPES = [SMALL, OTHER, LARGE]
HOUR = 3600.0
LEDGER = Restarts()
OFF = Restarts(hours=0)
TYPE = "node.kubernetes.io/instance-type"
UP_TO_TWO_CORES = a_nodepool(requirements=[(TYPE, "In", ["small", "other"])])


WEB = an_owner("ReplicaSet", "web")


def a_node(name: str, kind: InstanceType, *cpu: str, owner: OwnerReference = WEB) -> NodeView:
    """Return a machine with pods of one workload."""
    pods = [
        a_pod(f"{name}-{i}", cpu=each, memory="64Mi", node_name=name, owner=owner)
        for i, each in enumerate(cpu)
    ]
    return a_machine(name, kind, *pods)


def came_from(node: NodeView, types: Mapping[str, float], *, pods: int = 1) -> NodeView:
    """Return the node with a memory: so many hours ago `web`, of so many pods, was on these types."""
    return remembering(node, {WEB.uid: {name: ago(hours, pods) for name, hours in types.items()}})


def ago(hours: float, pods: int = 1) -> Moved:
    return Moved(NOW - hours * HOUR, pods)


def the_ledger(*nodes: NodeView, restarts: Restarts = LEDGER) -> Ledger:
    snapshot = a_problem([], nodes=nodes).snapshot
    return Ledger(replace(snapshot, taken_at=NOW), restarts, gathered(nodes))


def taking(*nodes: NodeView) -> tuple[Candidate, ...]:
    by_name = {kind.name: kind for kind in TYPES}
    return tuple(
        Candidate(
            node=node,
            pool=a_nodepool(),
            reschedulable=node.pods,
            price=0.4,
            instance_type=by_name[node.labels[TYPE]],
        )
        for node in nodes
    )


def a_claim(*nodes: NodeView, **more: Any) -> PlannedClaim:
    """Return what the solver buys for all pods of some nodes."""
    pods = [replace(p, spec=replace(p.spec, node_name="")) for node in nodes for p in node.pods]
    (claim,) = solve(a_problem(pods, instance_types=TYPES, **more)).claims
    return claim


def replaced(*nodes: NodeView, **more: Any) -> tuple[Command, Market]:
    """Return the command that replaces some nodes by one, and where that is bought."""
    claim = a_claim(*nodes, **more)
    command = Command(reason="Underutilized", method="sets", candidates=taking(*nodes), replacements=(claim,))
    return command, Market.of(a_problem([], instance_types=TYPES, **more))


def test_types_that_pods_came_from_are_struck() -> None:
    """The claim goes on with the others, at their price."""
    node = came_from(a_node("n", LARGE, "1"), {"small": 1})
    command, market = replaced(node)
    assert command.replacements[0].instance_types[:2] == ("small", "other")
    found = without_returns(command, market, the_ledger(node))
    assert isinstance(found, Command)
    (claim,) = found.replacements
    assert "small" not in claim.instance_types
    assert not claim.requirements[TYPE].has("small")
    assert claim.price == pytest.approx(0.12)
    assert found.worst_price == pytest.approx(0.4)


def test_pods_that_ended_elsewhere_are_remembered_all_the_same() -> None:
    """The node where they were expected remembers them, wherever the scheduler has put them."""
    node, other = a_node("n", LARGE, "1"), came_from(a_node("b", LARGE), {"small": 1})
    command, market = replaced(node)
    found = without_returns(command, market, the_ledger(node, other))
    assert isinstance(found, Command)
    assert "small" not in found.replacements[0].instance_types
    stranger = a_node("s", LARGE, "1", owner=an_owner("ReplicaSet", "other"))
    command, market = replaced(stranger)
    assert without_returns(command, market, the_ledger(stranger, node, other)) is command


def test_a_move_that_would_go_back_is_refused() -> None:
    """The verdict says whose pods, where, since when, and how long that is so."""
    node = came_from(a_node("n", LARGE, "1"), {"small": 3, "other": 1})
    command, market = replaced(node, pools=[UP_TO_TWO_CORES])
    found = without_returns(command, market, the_ledger(node))
    assert isinstance(found, Verdict)
    assert (found.node, found.code) == ("n", "undone")
    assert found.saving == pytest.approx(0.3)
    then = format_time(NOW - 3 * HOUR)
    assert found.message == (
        f"Pods of ReplicaSet default/web were moved away from small at {then}, and would go back there"
    )
    assert format_time(NOW + 9 * HOUR) in found.remedy


@pytest.mark.parametrize(
    ("node", "restarts"),
    [
        pytest.param(a_node("n", LARGE, "1"), LEDGER, id="nothing was moved"),
        pytest.param(came_from(a_node("n", LARGE, "1"), {"small": 12.1}), LEDGER, id="long ago"),
        pytest.param(came_from(a_node("n", LARGE, "1"), {"large": 1}), LEDGER, id="from somewhere else"),
        pytest.param(came_from(a_node("n", LARGE, "1"), {"small": 1}), OFF, id="moves are free"),
        pytest.param(came_from(a_node("n", LARGE, "1"), {"small": 1}, pods=2), LEDGER, id="pods have gone"),
        pytest.param(
            came_from(a_node("n", LARGE, *["100m"] * 6), {"small": 1}, pods=4), LEDGER, id="pods have come"
        ),
        pytest.param(
            came_from(a_node("n", LARGE, "1"), {"small": 1}), Restarts(payback_hours=0.5), id="it has paid"
        ),
    ],
)
def test_other_moves_are_as_they_were(node: NodeView, restarts: Restarts) -> None:
    """Savings after a change of the workload do not wait."""
    command, market = replaced(node, pools=[UP_TO_TWO_CORES])
    assert without_returns(command, market, the_ledger(node, restarts=restarts)) is command


def test_pods_on_their_way_count_once() -> None:
    """Also while the old pod is going and the new one has no place yet, or is seen in two."""
    node = came_from(a_node("n", LARGE, "1", "1"), {"small": 1}, pods=2)
    meta = replace(node.pods[0].metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    node, seen = replace(node, pods=(replace(node.pods[0], metadata=meta), node.pods[1])), node.pods[1]
    nodes = [node, a_node("m", LARGE).with_pods([seen])]
    waiting = a_pod("fresh", owner=WEB)
    twice = replace(a_problem([waiting], nodes=nodes).snapshot, taken_at=NOW)
    ledger = Ledger(twice, LEDGER, gathered(nodes))
    assert ledger.pods_of(WEB.uid) == 2
    assert set(ledger.left(WEB.uid)) == {"small"}


def test_replacements_remember_what_their_pods_came_from() -> None:
    """The types of the nodes that go, and what was remembered of the workload."""
    old = came_from(a_node("a", SMALL, "1"), {"other": 2, "ancient": 13}, pods=2)
    command, _ = replaced(old, a_node("b", LARGE, "500m"))
    ledger = the_ledger(old, a_node("b", LARGE, "500m"))
    found = memories(command, ledger, {})
    types = {"large": ago(0, 2), "other": ago(2, 2), "small": ago(0, 2)}
    assert found.replacements == ({WEB.uid: types},)
    assert found.nodes == {}
    assert memories(command, the_ledger(old, restarts=OFF), {}).replacements == ({},)
    assert memories(replace(command, reason="Drifted"), ledger, {}).replacements == ({},)


def test_nodes_that_take_pods_remember_them_too() -> None:
    """Along with what they remembered of others."""
    going = a_node("a", SMALL, "1")
    db = an_owner("StatefulSet", "db")
    taker = a_node("b", LARGE, "2", owner=db)
    known = {"other": ago(3)}
    taker = remembering(taker, {db.uid: known, "uid-gone": {"other": ago(1)}, WEB.uid: {"large": ago(13)}})
    command = Command(
        reason="Underutilized",
        method="sets",
        candidates=taking(going),
        placements={"b": ("default/a-0",), "c": ("default/waits-anyway",), "gone": ("default/a-0",)},
    )
    nodes = {node.name: node for node in (going, taker, a_node("c", LARGE, "1", owner=db))}
    assert memories(command, the_ledger(going, taker), nodes).nodes == {
        "b": {WEB.uid: {"small": ago(0)}, db.uid: known}
    }


def test_what_a_node_that_goes_remembers_of_others_is_handed_on() -> None:
    """Their pods were expected there, and are somewhere else by now."""
    db = an_owner("StatefulSet", "db")
    going = remembering(a_node("a", LARGE, "1"), {db.uid: {"other": ago(2)}})
    elsewhere = a_node("b", LARGE, "1", owner=db)
    command, _ = replaced(going)
    found = memories(command, the_ledger(going, elsewhere), {})
    assert found.replacements == ({WEB.uid: {"large": ago(0)}, db.uid: {"other": ago(2)}},)


def test_memory_outlives_the_process() -> None:
    """It is read back from the claim; what makes no sense is nothing."""
    memory = {WEB.uid: {"small": ago(0, 3)}}
    node = remembering(a_node("n", LARGE, "1"), memory)
    assert memory_of(node.claim) == memory
    assert node.claim is not None
    for text in ("", "[]", '{"uid": {"small": [1]}}', '{"uid": 3}'):
        meta = replace(node.claim.metadata, annotations={MOVED_FROM: text})
        assert memory_of(replace(node.claim, metadata=meta)) == {}
    assert memory_of(None) == {}


@pytest.mark.parametrize(
    ("price", "reason", "restarts", "code"),
    [
        (0.4, "Underutilized", LEDGER, ""),
        (0.011, "Underutilized", LEDGER, "payback"),
        (0.011, "Underutilized", OFF, ""),
        (0.011, "Drifted", LEDGER, ""),
    ],
)
def test_what_does_not_pay_is_objected_to(price: float, reason: Any, restarts: Restarts, code: str) -> None:
    """Whichever search has found it: the restart of a full node for a cent an hour."""
    node = a_machine("n", LARGE, "8")
    taken = tuple(replace(c, price=0.4) for c in taking(node))
    claim = replace(a_claim(node), price=0.4 - price)
    command = Command(reason=reason, method="single", candidates=taken, replacements=(claim,))
    found = objection(command, restarts, NOW)
    assert (found.code if found else "") == code


def decide(node: NodeView, restarts: Restarts = LEDGER) -> Decision:
    """Ask the search over sets about one node, where only one other type is cheaper."""
    found = a_round(node, types=[SMALL, LARGE], pools=[a_disrupting_pool()])
    return SetSearch()(found._replace(restarts=restarts, remembered=gathered([node])))


def test_the_search_does_not_undo_what_was_just_done() -> None:
    """It would, if there were no ledger."""
    node = a_node("n", LARGE, "1")
    assert len(decide(node).commands) == 1
    lately = came_from(node, {"small": 1})
    decision = decide(lately)
    assert decision.commands == ()
    (verdict,) = decision.verdicts
    assert verdict.code == "undone"
    assert len(decide(lately, OFF).commands) == 1
