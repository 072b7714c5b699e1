"""What was moved lately is not moved back before it has paid, unless the workload has changed."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis.annotations import MOVED_FROM
from karpenter.base.timestamps import format_time
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.ledger import (
    Memory,
    memories,
    memory_of,
    objection,
    remembering,
    without_returns,
)
from karpenter.disruption.market import Market
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.rounds import Decision
from karpenter.disruption.sets import SetSearch
from karpenter.disruption.verdicts import Verdict
from karpenter.model.problem import PlannedClaim
from karpenter.model.snapshot import NodeView
from karpenter.scheduling import solve
from karpenter.testing.builders import a_nodepool, a_problem, an_instance_type
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


def came_from(node: NodeView, types: Mapping[str, float], *, share: float = 1.0) -> NodeView:
    """Return the node with a memory of these types, so many hours ago, and so much of what it was to have."""
    load = {name: round(amount / share) for name, amount in node.requested.items() if name != "pods"}
    then = {name: NOW - hours * HOUR for name, hours in types.items()}
    return remembering(node, Memory(types=then, load=load))


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
    command, market = replaced(came_from(a_machine("n", LARGE, "1"), {"small": 1}))
    assert command.replacements[0].instance_types[:2] == ("small", "other")
    found = without_returns(command, market, LEDGER, NOW)
    assert isinstance(found, Command)
    (claim,) = found.replacements
    assert "small" not in claim.instance_types
    assert not claim.requirements[TYPE].has("small")
    assert claim.price == pytest.approx(0.12)
    assert found.worst_price == pytest.approx(0.4)


def test_a_move_that_would_go_back_is_refused() -> None:
    """The verdict says where, since when, and how long that is so."""
    node = came_from(a_machine("n", LARGE, "1"), {"small": 3, "other": 1})
    command, market = replaced(node, pools=[UP_TO_TWO_CORES])
    found = without_returns(command, market, LEDGER, NOW)
    assert isinstance(found, Verdict)
    assert (found.node, found.code) == ("n", "undone")
    assert found.saving == pytest.approx(0.3)
    then = format_time(NOW - 3 * HOUR)
    assert found.message == f"Its pods were moved away from small at {then}, and would go back there"
    assert format_time(NOW + 9 * HOUR) in found.remedy


@pytest.mark.parametrize(
    ("node", "restarts"),
    [
        pytest.param(a_machine("n", LARGE, "1"), LEDGER, id="nothing was moved"),
        pytest.param(came_from(a_machine("n", LARGE, "1"), {"small": 12.1}), LEDGER, id="long ago"),
        pytest.param(came_from(a_machine("n", LARGE, "1"), {"large": 1}), LEDGER, id="from somewhere else"),
        pytest.param(came_from(a_machine("n", LARGE, "1"), {"small": 1}), OFF, id="moves are free"),
        pytest.param(
            came_from(a_machine("n", LARGE, "1"), {"small": 1}, share=0.75), LEDGER, id="pods have gone"
        ),
        pytest.param(
            came_from(a_machine("n", LARGE, "1"), {"small": 1}, share=1.25), LEDGER, id="pods have come"
        ),
        pytest.param(
            came_from(a_machine("n", LARGE, "1"), {"small": 1}), Restarts(payback_hours=0.5), id="it has paid"
        ),
    ],
)
def test_other_moves_are_as_they_were(node: NodeView, restarts: Restarts) -> None:
    """Savings after a change of the workload do not wait."""
    command, market = replaced(node, pools=[UP_TO_TWO_CORES])
    assert without_returns(command, market, restarts, NOW) is command


def test_replacements_remember_what_their_pods_came_from() -> None:
    """The types of the nodes that go, and what those remembered; with what is to run there."""
    old = came_from(a_machine("a", SMALL, "1"), {"other": 2, "ancient": 13})
    command, _ = replaced(old, a_machine("b", LARGE, "500m"))
    found = memories(command, {}, LEDGER, NOW)
    (memory,) = found.replacements
    assert memory is not None
    assert memory.types == {"large": NOW, "other": NOW - 2 * HOUR, "small": NOW}
    assert memory.load == {"cpu": 1500, "memory": 2 * 64 * 2**20}
    assert found.nodes == {}
    assert memories(command, {}, OFF, NOW).replacements == (None,)
    drifted = replace(command, reason="Drifted")
    assert memories(drifted, {}, LEDGER, NOW).replacements == (None,)


def test_nodes_that_take_pods_remember_them_too() -> None:
    """Along with what they remembered, and what they carried."""
    going = a_machine("a", SMALL, "1")
    taker = came_from(a_machine("b", LARGE, "2"), {"other": 3})
    command = Command(
        reason="Underutilized",
        method="sets",
        candidates=taking(going),
        placements={"b": ("default/a-0",), "c": ("default/waits-anyway",), "gone": ("default/a-0",)},
    )
    nodes = {node.name: node for node in (going, taker, a_machine("c", LARGE, "1"))}
    found = memories(command, nodes, LEDGER, NOW)
    assert set(found.nodes) == {"b"}
    assert found.nodes["b"].types == {"other": NOW - 3 * HOUR, "small": NOW}
    assert found.nodes["b"].load["cpu"] == 3000


def test_memory_outlives_the_process() -> None:
    """It is read back from the claim; what makes no sense is nothing."""
    memory = Memory(types={"small": NOW}, load={"cpu": 1000, "memory": 1})
    node = remembering(a_machine("n", LARGE, "1"), memory)
    assert memory_of(node.claim) == memory
    assert node.claim is not None
    for text in ("", "{}", '{"types": 3}'):
        meta = replace(node.claim.metadata, annotations={MOVED_FROM: text})
        assert memory_of(replace(node.claim, metadata=meta)) is None
    assert memory_of(None) is None


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
    return SetSearch()(found._replace(restarts=restarts))


def test_the_search_does_not_undo_what_was_just_done() -> None:
    """It would, if there were no ledger."""
    node = a_machine("n", LARGE, "1")
    assert len(decide(node).commands) == 1
    lately = came_from(node, {"small": 1})
    decision = decide(lately)
    assert decision.commands == ()
    (verdict,) = decision.verdicts
    assert verdict.code == "undone"
    assert len(decide(lately, OFF).commands) == 1
