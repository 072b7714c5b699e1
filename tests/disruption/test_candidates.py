"""Which nodes may be disrupted, the first reason why not for each other one, and commands in words."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta
from karpenter.apis.workloads import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from karpenter.base.timestamps import format_time, parse_time
from karpenter.disruption.candidates import Candidate, find_candidates
from karpenter.disruption.command import Command
from karpenter.disruption.verdicts import Verdict
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.testing.builders import (
    a_daemon,
    a_nodeclaim,
    a_nodepool,
    a_pod,
    a_view,
    an_instance_type,
    an_offering,
    an_owner,
)
from karpenter.testing.rounds import a_machine, a_round

NOW = parse_time("2026-01-01T12:00:00Z")
MEDIUM = an_instance_type("medium", price=2.5)
HELD = {labels.DO_NOT_DISRUPT: "true"}


def a_pdb(name: str, *, allowed: int = 1) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "web"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def look(
    *views: NodeView,
    pools: list[NodePool] | None = None,
    pdbs: list[PodDisruptionBudget] | None = None,
    stand_ins: frozenset[str] = frozenset(),
    **given: Any,
) -> tuple[list[Candidate], list[Verdict]]:
    snapshot = Snapshot(
        taken_at=NOW,
        nodes=tuple(sorted(views, key=lambda v: v.name)),
        pending=(),
        nodepools=tuple(pools if pools is not None else [a_nodepool()]),
        pdbs=tuple(pdbs or ()),
        stand_ins=stand_ins,
    )
    catalogues = {pool.name: (MEDIUM,) for pool in snapshot.nodepools}
    found = find_candidates(snapshot, **{"queued": frozenset(), "catalogues": catalogues, **given})
    assert found.eventual == found.candidates
    return list(found.candidates), list(found.blocked)


def annotated(what: str, value: str = "true") -> NodeView:
    view = a_view("n")
    owner = view.node if what == "node" else view.claim
    assert owner is not None
    meta = replace(owner.metadata, annotations={labels.DO_NOT_DISRUPT: value})
    return replace(view, **{what: replace(owner, metadata=meta)})


def with_pods(*pods: Pod) -> NodeView:
    return a_view("n", pods=pods)


def test_a_plain_node_is_a_candidate() -> None:
    """With its pool, type, place, price, and the pods that would need another one; empty without those."""
    pods = [a_pod("b", node_name="n"), a_daemon("d", node_name="n"), a_pod("a", node_name="n")]
    (found,), blocked = look(a_machine("n", MEDIUM, *pods, zone="zone-b"))
    assert blocked == []
    assert (found.instance_type, found.zone, found.capacity_type) == (MEDIUM, "zone-b", "on-demand")
    assert [p.name for p in found.reschedulable] == ["a", "b"]
    assert (found.price, found.pool.name, found.empty) == (2.5, "default", False)
    assert found.disruption_cost == 3.0
    assert found.savings_ratio == pytest.approx(2.5 / 3)


@pytest.mark.parametrize(
    ("pod", "empty"),
    [
        (a_daemon(node_name="n"), True),
        (a_pod("static", node_name="n", owner=an_owner("Node", api_version="v1")), True),
        (a_pod("going", node_name="n", deleted=format_time(NOW)), True),
        (a_pod("set-0", node_name="n", deleted=format_time(NOW), owner=an_owner("StatefulSet")), False),
        (a_pod("bare", node_name="n"), False),
        (a_pod("cheap", node_name="n", priority=-(2**31)), False),
    ],
)
def test_what_makes_a_node_empty(pod: Pod, empty: bool) -> None:
    """Daemons, mirrors and going pods need no other place; a going StatefulSet pod will come back."""
    (found,), _ = look(with_pods(pod))
    assert found.empty is empty


BLOCKED = [
    ("queued", a_view("n"), "Is being disrupted already"),
    ("noNode", replace(a_view("n"), node=None), "Nodeclaim does not have an associated node"),
    ("notInitialized", a_view("n", initialized=False), "Node isn't initialized"),
    ("deleting", a_view("n", marked_for_deletion=True), "Node is deleting or marked for deletion"),
    ("nominated", replace(a_view("n"), nominated_until=NOW + 1), "Node is nominated for a pending pod"),
    (
        "doNotDisrupt",
        annotated("node"),
        'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation',
    ),
    (
        "doNotDisrupt",
        annotated("claim"),
        'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation',
    ),
    (
        "noNodePool",
        a_view("n", nodepool=""),
        "Node doesn't have required label (label=karpenter.sh/nodepool)",
    ),
    ("noNodePool", a_view("n", nodepool="lost"), "NodePool not found (NodePool=lost)"),
    (
        "podDoNotDisrupt",
        with_pods(a_pod("p", node_name="n", annotations=HELD)),
        'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/p)',
    ),
    (
        "podDoNotDisrupt",
        with_pods(a_daemon("d", node_name="n", annotations=HELD)),
        'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=kube-system/d)',
    ),
    (
        "podDisruptionBudget",
        with_pods(a_pod("p", node_name="n", labels={"app": "web"})),
        "Pdb prevents pod evictions (PodDisruptionBudget=[default/web]) (Pod=default/p)",
    ),
]


@pytest.mark.parametrize(("blocker", "view", "message"), BLOCKED)
def test_each_reason_blocks(blocker: str, view: NodeView, message: str) -> None:
    """By itself, in upstream's words."""
    queued = frozenset({view.provider_id} if blocker == "queued" else ())
    candidates, (found,) = look(view, queued=queued, pdbs=[a_pdb("web", allowed=0)])
    assert candidates == []
    assert (found.node, found.code, found.message) == ("n", blocker, message)


@pytest.mark.parametrize("missing", range(9))
def test_the_first_reason_is_told(missing: int) -> None:
    """A node with everything wrong says the first; as each is put right, the next."""
    held = a_pod("p", node_name="n", annotations=HELD)
    bound = a_pod("q", node_name="n", labels={"app": "web"})
    bad = replace(
        a_view("n", pods=[held, bound], initialized=False, marked_for_deletion=True, nodepool="lost"),
        nominated_until=NOW + 1,
        claim=annotated("claim").claim,
    )
    node = bad.node
    repairs: list[tuple[str, dict[str, Any]]] = [
        ("queued", {}),
        ("noNode", {"node": node}),
        ("notInitialized", {"initialized": True}),
        ("deleting", {"marked_for_deletion": False}),
        ("nominated", {"nominated_until": NOW}),
        ("doNotDisrupt", {"claim": a_nodeclaim("c")}),
        ("noNodePool", {"nodepool": "default"}),
        ("podDoNotDisrupt", {"pods": (bound,)}),
        ("podDisruptionBudget", {"pods": ()}),
    ]
    view = replace(bad, node=None)
    for _, repair in repairs[:missing]:
        view = replace(view, **repair)
    queued = frozenset({view.provider_id} if missing == 0 else ())
    _, (found,) = look(view, queued=queued, pdbs=[a_pdb("web", allowed=0)])
    assert found.code == repairs[missing][0]


@pytest.mark.parametrize(
    "view",
    [
        replace(a_view("n"), nominated_until=NOW),  # over now
        annotated("node", "1h"),  # durations are for pods
        annotated("claim", "false"),
        with_pods(a_pod("p", node_name="n", annotations=HELD, phase="Succeeded")),
        with_pods(a_pod("p", node_name="n", annotations=HELD, deleted=format_time(NOW))),
        with_pods(a_pod("p", node_name="n", annotations={labels.DO_NOT_DISRUPT: "nonsense"})),
        with_pods(a_pod("p", node_name="n", labels={"app": "other"})),
    ],
)
def test_what_does_not_block(view: NodeView) -> None:
    """What is over, not meant for nodes, unreadable or about others."""
    candidates, blocked = look(view, pdbs=[a_pdb("web", allowed=0)])
    assert (len(candidates), blocked) == (1, [])


def test_two_budgets_over_a_pod_block() -> None:
    """The Eviction API cannot serve such a pod, however much they allow."""
    view = with_pods(a_pod("p", node_name="n", labels={"app": "web"}))
    _, (found,) = look(view, pdbs=[a_pdb("one"), a_pdb("two")])
    assert found.code == "podDisruptionBudget"
    assert found.message.startswith("Eviction does not support multiple PDBs")
    assert "default/one default/two" in found.message


def test_nodes_that_are_not_ours_are_not_spoken_of() -> None:
    """Neither candidates nor blocked."""
    assert look(replace(a_view("n"), managed=False)) == ([], [])


def test_a_pool_without_instance_types_is_named_as_such() -> None:
    """Not as a pool that is missing: its nodes are left alone until the cloud lists types again."""
    _, (found,) = look(a_view("n"), catalogues={"default": ()})
    assert (found.code, found.message) == (
        "noInstanceTypes",
        "NodePool has no instance types now (NodePool=default)",
    )


@pytest.mark.parametrize("missing", [labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE])
def test_missing_labels_do_not_exclude(missing: str) -> None:
    """The node is a candidate all the same; only its price is not known."""
    view = a_machine("n", MEDIUM)
    view = replace(view, labels={k: v for k, v in view.labels.items() if k != missing})
    (found,), blocked = look(view)
    assert (found.price, blocked) == (0.0, [])


def test_the_price_is_that_of_the_very_offering() -> None:
    """Zone, capacity type and reservation: two reservations in one zone have prices of their own. What can be
    bought no more has its price still."""
    rid = "cloud/reservation-id"
    kind = an_instance_type(
        "r",
        offerings=[
            an_offering("zone-a", "reserved", 0.1, labels={rid: "one"}),
            an_offering("zone-a", "reserved", 0.2, labels={rid: "two"}, available=False),
            an_offering("zone-a", "on-demand", 1.0),
            an_offering("zone-b", "on-demand", 1.1),
            an_offering("zone-b", "spot", float("nan")),
        ],
    )
    cases = [
        ("zone-a", "reserved", {rid: "one"}, 0.1),
        ("zone-a", "reserved", {rid: "two"}, 0.2),
        ("zone-a", "reserved", {rid: "gone"}, 0.0),
        ("zone-a", "on-demand", {}, 1.0),
        ("zone-b", "on-demand", {}, 1.1),
        ("zone-b", "spot", {}, 0.0),
        ("zone-c", "on-demand", {}, 0.0),
    ]
    for zone, capacity_type, more, price in cases:
        view = a_machine("n", kind, zone=zone, capacity_type=capacity_type, more_labels=more)
        (found,), _ = look(view, catalogues={"default": (kind,)}, reservation_label=rid)
        assert found.price == price, (zone, capacity_type, more)


WEB = {"app": "web"}
GOING = format_time(NOW)


@pytest.mark.parametrize(
    ("pod", "blocks"),
    [
        (a_pod("p", node_name="n", labels=WEB), True),
        (a_daemon("p", node_name="n", labels=WEB, namespace="default"), True),
        (a_pod("p", node_name="n", labels=WEB, owner=an_owner("Node", api_version="v1")), False),
        (a_pod("p", node_name="n", labels=WEB, phase="Succeeded"), False),
        (a_pod("p", node_name="n", labels=WEB, deleted=GOING), False),
        (a_pod("p", node_name="n", labels=WEB, namespace="elsewhere"), False),
    ],
)
def test_whom_budgets_hold(pod: Pod, blocks: bool) -> None:
    """Pods that would be evicted: not mirrors, not what has ended or is going."""
    candidates, blocked = look(with_pods(pod), pdbs=[a_pdb("web", allowed=0)])
    assert (len(candidates), len(blocked)) == ((0, 1) if blocks else (1, 0))


@pytest.mark.parametrize(
    ("pod", "blocks"),
    [
        (a_pod("p", node_name="n", annotations=HELD), True),
        (a_daemon("p", node_name="n", annotations=HELD), True),
        (a_pod("p", node_name="n", annotations=HELD, owner=an_owner("Node", api_version="v1")), True),
        (a_pod("p", node_name="n", annotations=HELD, phase="Failed"), False),
        (a_pod("p", node_name="n", annotations=HELD, deleted=GOING), False),
    ],
)
def test_whom_an_annotation_guards(pod: Pod, blocks: bool) -> None:
    """Daemons and mirrors, too; not what has ended or is going."""
    candidates, blocked = look(with_pods(pod))
    assert (len(candidates), len(blocked)) == ((0, 1) if blocks else (1, 0))


def test_disruption_costs_grow_with_what_owners_say() -> None:
    """With the cost of deletion, and with priority; never less than nothing."""

    def cost(**more: Any) -> float:
        (found,), _ = look(with_pods(a_pod("p", node_name="n", **more)))
        return found.disruption_cost

    def deletion(value: str) -> dict[str, str]:
        return {labels.POD_DELETION_COST: value}

    by_deletion = [cost(annotations=deletion(v)) for v in ("-2147483647", "-9", "0", "9", "2147483647")]
    by_priority = [cost(priority=v) for v in (-(2**31), -9, 0, 9, 2**31 - 1)]
    for costs in (by_deletion, by_priority):
        assert costs == sorted(costs)
        assert costs[0] == 1.0
        assert costs[2] == 2.0 == cost()
        assert costs[1] < costs[2] < costs[3] < costs[4] <= 11.0


GUARDED = a_pod("p", node_name="n", annotations=HELD)
COVERED = a_pod("q", node_name="n", labels={"app": "web"})


@pytest.mark.parametrize(
    ("pods", "grace", "eventual"),
    [
        ([GUARDED], None, False),
        ([GUARDED], "1h", True),
        ([COVERED], None, False),
        ([COVERED], "1h", True),
    ],
)
def test_a_termination_grace_period_overrules_pods_in_the_end(
    pods: list[Pod], grace: str | None, eventual: bool
) -> None:
    """Such nodes are for drift only; whatever stands in the way of grace is told all the same."""
    seen = a_round(a_machine("n", MEDIUM, *pods, grace=grace), types=[MEDIUM], pdbs=[a_pdb("web", allowed=0)])
    assert seen.candidates == ()
    assert [c.name for c in seen.eventual] == (["n"] if eventual else [])


def test_a_termination_grace_period_overrules_pods_only() -> None:
    """Not the node's own annotation, nor anything else about the node."""
    view = a_machine("n", MEDIUM, grace="1h")
    assert view.node is not None
    meta = replace(view.node.metadata, annotations=HELD)
    view = replace(view, node=replace(view.node, metadata=meta))
    assert a_round(view, types=[MEDIUM]).eventual == ()


def test_a_pod_that_has_its_stand_in_first_does_not_hold_its_node() -> None:
    """A budget that can never let it go keeps the node otherwise; one that has to wait keeps it as ever."""
    never, waits = a_pdb("web", allowed=0), a_pdb("web", allowed=0)
    never = replace(never, spec=replace(never.spec, max_unavailable=0))
    for pdb, stand_ins, free in [
        (never, frozenset({COVERED.key}), True),
        (never, frozenset(), False),
        (waits, frozenset({COVERED.key}), False),
    ]:
        candidates, _ = look(with_pods(COVERED), pdbs=[pdb], stand_ins=stand_ins)
        assert bool(candidates) is free


def test_pods_that_nothing_moves_are_known() -> None:
    """Guarded ones, and those of budgets that never allow an eviction; what waits for its turn can move."""
    never = a_pdb("web", allowed=0)
    never = replace(never, spec=replace(never.spec, max_unavailable=0))
    for pdb, movable in [(never, ["r"]), (a_pdb("web", allowed=0), ["q", "r"])]:
        view = a_machine("n", MEDIUM, GUARDED, COVERED, a_pod("r", node_name="n"), grace="1h")
        (found,) = a_round(view, types=[MEDIUM], pdbs=[pdb]).eventual
        assert [p.name for p in found.movable] == movable
        assert [p.name for p in found.reschedulable] == ["p", "q", "r"]


def test_a_node_may_be_protected_for_a_while() -> None:
    """As pods may: for a duration, counted from the creation of its claim."""
    view = annotated("node", "13h")
    _, (found,) = look(view)
    assert found.code == "doNotDisrupt"
    assert found.remedy == (
        "remove annotation karpenter.sh/do-not-disrupt from node/n, or wait until 2026-01-01T13:00:00Z"
    )


REMEDIES = [
    (
        {"min_available": 1},
        (1, 1, 1),
        "raise replicas to 2 or set maxUnavailable 1 "
        "(pod default/q: PodDisruptionBudget default/web: minAvailable 1 of 1 pod can never allow",
    ),
    ({"max_unavailable": 0}, (3, 3, 3), "set maxUnavailable 1 (pod default/q: PodDisruptionBudget default"),
    ({"min_available": 2}, (3, 2, 2), "1 more of its pods must become Ready (pod default/q: PodDisruption"),
]


@pytest.mark.parametrize(("rule", "status", "remedy"), REMEDIES)
def test_what_would_let_a_pod_go(rule: dict[str, Any], status: tuple[int, int, int], remedy: str) -> None:
    """A budget that can never allow an eviction is told from one that does not now, with the way out."""
    expected, healthy, desired = status
    pdb = a_pdb("web", allowed=0)
    pdb = replace(
        pdb,
        spec=replace(pdb.spec, **rule),
        status=PodDisruptionBudgetStatus(
            expected_pods=expected, current_healthy=healthy, desired_healthy=desired
        ),
    )
    ready = [Condition(type="Ready", status="True")]
    pod = replace(COVERED, status=replace(COVERED.status, conditions=ready))
    _, (found,) = look(with_pods(pod), pdbs=[pdb])
    assert found.remedy.startswith(remedy)


def test_what_would_let_a_guarded_pod_go() -> None:
    """Time, here."""
    pod = a_pod("p", node_name="n", annotations={labels.DO_NOT_DISRUPT: "2h"})
    pod = replace(pod, status=replace(pod.status, start_time="2026-01-01T11:00:00Z"))
    _, (found,) = look(with_pods(pod))
    assert found.remedy == (
        'wait (pod default/p: annotation "karpenter.sh/do-not-disrupt" protects it '
        "until 2026-01-01T13:00:00Z (2h from its start))"
    )


def test_a_command_in_words() -> None:
    """What is done, to which nodes of which pools, and what it saves."""
    names = {"a": "default", "b": "default", "z": "other"}
    prices = {"a": 1.0, "b": 0.25, "z": 0.004}
    candidates = [
        Candidate(node=a_view(name), pool=a_nodepool(pool), reschedulable=(), price=prices[name])
        for name, pool in names.items()
    ]
    command = Command(reason="Empty", candidates=tuple(candidates))
    assert command.decision == "delete"
    assert command.savings == pytest.approx(1.254)
    assert str(command) == "empty: delete: nodepools=[default, other]: [a, b, z] (savings: $1.25)"
    assert command.of_node("b") == "delete: [b] (part of 3-node consolidation)"
    assert replace(command, candidates=command.candidates[:1]).of_node("a") == "delete: [a]"
