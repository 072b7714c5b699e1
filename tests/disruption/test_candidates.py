"""Which nodes may be disrupted, the first reason why not for each other one, and commands in words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.apis.workloads import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from karpenter.base.timestamps import format_time, parse_time
from karpenter.disruption.candidates import Blocked, Candidate, find_candidates
from karpenter.disruption.command import Command
from karpenter.disruption.emptiness import empty_nodes
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.testing.builders import a_daemon, a_nodeclaim, a_nodepool, a_pod, a_view, an_owner

NOW = parse_time("2026-01-01T12:00:00Z")
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
    **given: Any,
) -> tuple[list[Candidate], list[Blocked]]:
    snapshot = Snapshot(
        taken_at=NOW,
        nodes=tuple(sorted(views, key=lambda v: v.name)),
        pending=(),
        nodepools=tuple(pools if pools is not None else [a_nodepool()]),
        pdbs=tuple(pdbs or ()),
    )
    given = {"queued": frozenset(), "prices": {}, **given}
    return find_candidates(snapshot, **given)


def annotated(what: str, value: str = "true") -> NodeView:
    view = a_view("n")
    owner = view.node if what == "node" else view.claim
    assert owner is not None
    meta = replace(owner.metadata, annotations={labels.DO_NOT_DISRUPT: value})
    return replace(view, **{what: replace(owner, metadata=meta)})


def with_pods(*pods: Pod) -> NodeView:
    return a_view("n", pods=pods)


def test_a_plain_node_is_a_candidate() -> None:
    """With its pool, price, and the pods that would need another place; it is empty without those."""
    pods = [a_pod("b", node_name="n"), a_daemon("d", node_name="n"), a_pod("a", node_name="n")]
    (found,), blocked = look(a_view("n", pods=pods), prices={"n": 2.5})
    assert blocked == []
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
    ("queued", a_view("n"), "is being disrupted already"),
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
    assert (found.node, found.blocker, found.message) == ("n", blocker, message)


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
    assert found.blocker == repairs[missing][0]


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
    assert found.blocker == "podDisruptionBudget"
    assert found.message.startswith("Eviction does not support multiple PDBs")
    assert "default/one default/two" in found.message


def test_nodes_that_are_not_ours_are_not_spoken_of() -> None:
    """Neither candidates nor blocked."""
    assert look(replace(a_view("n"), managed=False)) == ([], [])


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 5))
def test_the_choice_does_not_depend_on_the_order(order: list[str], remaining: int) -> None:
    """Where a budget binds, the dearest go first, ties by name, however nodes are listed."""
    prices = {"a": 1.0, "b": 3.0, "c": 3.0, "d": 0.0}
    ready = a_nodeclaim("c", conditions=["Consolidatable"])
    views = [replace(a_view(name), claim=ready) for name in order]
    candidates, _ = look(*views, prices=prices)
    shuffled = sorted(candidates, key=lambda c: order.index(c.node.name))
    command, kept = empty_nodes(shuffled, {"default": remaining})
    chosen = [c.node.name for c in command.candidates] if command else []
    assert chosen == ["b", "c", "a", "d"][:remaining]
    assert {entry.reason for entry in kept} == ({"budget"} if remaining < 4 else set())


def test_a_command_in_words() -> None:
    """What is done, to which nodes of which pools, and what it saves."""
    other = replace(a_view("z"), nodepool="other")
    candidates, _ = look(
        a_view("b"),
        other,
        a_view("a"),
        pools=[a_nodepool(), a_nodepool("other")],
        prices={"a": 1.0, "b": 0.25, "z": 0.004},
    )
    command = Command(reason="Empty", candidates=tuple(candidates))
    assert command.decision == "delete"
    assert command.savings == pytest.approx(1.254)
    assert str(command) == "empty: delete: nodepools=[default, other]: [a, b, z] (savings: $1.25)"
