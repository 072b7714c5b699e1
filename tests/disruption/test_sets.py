"""Which nodes go together, and what is bought for them."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Round
from karpenter.disruption.sets import SetSearch
from karpenter.disruption.simulation import Simulator
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, a_view, an_instance_type, an_offering

PRICES = {"small": 0.1, "medium": 0.19, "large": 0.4}
TYPES = [
    an_instance_type(name, cpu=cpu, memory="64Gi", offerings=[an_offering(price=PRICES[name])])
    for name, cpu in (("small", "2"), ("medium", "4"), ("large", "8"))
]


def a_node(name: str, kind: str, *cpu: str) -> NodeView:
    size = next(t for t in TYPES if t.name == kind)
    view = a_view(name, labels={labels.INSTANCE_TYPE: kind, labels.ZONE: "zone-a"})
    view = replace(view, allocatable=size.allocatable, capacity={**size.capacity, "nodes": 1})
    return view.with_pods(
        a_pod(f"{name}-{i}", cpu=each, memory="64Mi", node_name=name) for i, each in enumerate(cpu)
    )


def decide(
    *views: NodeView, budget: int = 100, held: frozenset[str] = frozenset(), **more: Any
) -> Command | None:
    """Return what is done about the nodes; those `held` may not be touched."""
    problem = a_problem([], nodes=views, instance_types=TYPES)
    problem = replace(problem, options=replace(problem.options, node_fee=0.0))
    candidates = tuple(
        Candidate(
            node=v,
            pool=a_nodepool(),
            reschedulable=v.pods,
            price=PRICES[v.labels[labels.INSTANCE_TYPE]],
        )
        for v in problem.nodes
        if v.name not in held
    )
    found = SetSearch()(
        Round(
            snapshot=problem.snapshot,
            candidates=candidates,
            eventual=candidates,
            remaining={"Underutilized": {"default": budget}},
            simulator=Simulator(problem),
            **more,
        )
    )
    return found.commands[0] if found.commands else None


def told(command: Command | None) -> tuple[list[str], list[str]]:
    assert command is not None
    return (
        [c.node.name for c in command.candidates],
        sorted(claim.instance_types[0] for claim in command.replacements),
    )


def test_nodes_go_whose_pods_fit_elsewhere() -> None:
    """As many as possible at once, without anything bought."""
    nodes = [a_node(f"n{i}", "medium", "1") for i in range(4)]
    gone, bought = told(decide(*nodes))
    assert (len(gone), bought) == (3, [])


def test_several_nodes_become_one_that_is_cheaper() -> None:
    """Three half-empty ones make one, if none of them can take the others."""
    nodes = [a_node(f"n{i}", "large", "2500m", "2500m") for i in range(3)]
    command = decide(*nodes)
    assert command is not None
    assert command.savings == pytest.approx(1.2 - 0.8)


def test_one_node_becomes_several() -> None:
    """A node too large for its pods is cut into what they need, which one replacement could not be."""
    gone, bought = told(decide(a_node("n", "large", "1900m", "1900m")))
    assert (gone, bought) == (["n"], ["medium"])
    gone, bought = told(decide(a_node("n", "large", "3900m", "1900m")))
    assert (gone, bought) == (["n"], ["medium", "small"])


def test_what_is_as_cheap_as_can_be_stays() -> None:
    """Nodes that would only be bought again are left alone."""
    assert decide(a_node("n", "medium", "3900m"), a_node("m", "small", "1900m")) is None


def test_budgets_bound_the_set() -> None:
    """The nodes that save most per disruption go first."""
    nodes = [a_node("a", "medium", "1"), a_node("b", "large", "1"), a_node("c", "large", "1")]
    gone, _ = told(decide(*nodes, budget=1))
    assert gone == ["b"]
    assert decide(*nodes, budget=0) is None


def test_nodes_that_may_not_be_touched_still_take_pods() -> None:
    """They are no candidates, but room."""
    gone, bought = told(decide(a_node("a", "medium", "1"), a_node("b", "large", "1"), held=frozenset({"b"})))
    assert (gone, bought) == (["a"], [])


def test_pods_without_another_place_keep_their_node() -> None:
    """However dear it is."""
    huge = replace(a_node("n", "large", "1"), pods=())
    pinned = a_pod("p", cpu="1", node_name="n", node_selector={labels.KUBERNETES_HOSTNAME: "n"})
    assert decide(huge.with_pods([pinned])) is None


def test_the_clock_ends_the_search() -> None:
    """And the next round looks again."""
    nodes = [a_node(f"n{i}", "medium", "1") for i in range(4)]
    assert decide(*nodes, more=lambda: False) is None
