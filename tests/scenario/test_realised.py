"""Plans handed to kube-scheduler's judgement: what is bound where, and what it costs in the end."""

import pytest
from benchmarks.realised import scenarios

from karpenter.model.pods import pod_key
from karpenter.model.problem import Budget, Problem
from karpenter.scheduling import solve
from karpenter.testing.builders import a_problem, a_view, an_instance_type, some_pods
from karpenter.testing.company import spread
from karpenter.testing.realised import (
    ORDERS,
    Decision,
    Purchase,
    decided,
    nodes_after,
    realise,
)

PODS = 200


def ours(problem: Problem) -> Decision:
    """Return what this project's planner decides."""
    return decided(problem, solve(problem))


def searching(problem: Problem) -> Decision:
    """Return what this project's planner decides after a short search."""
    return decided(problem, solve(problem, Budget(steps=10)))


def mixed() -> Problem:
    """Return big and small pods that want several machines."""
    return a_problem(
        [
            *some_pods(20, "small", cpu="300m", memory="256Mi", labels={"app": "small"}),
            *some_pods(7, "big", cpu="3", memory="11Gi", labels={"app": "big"}, spec=spread("big")),
        ]
    )


@pytest.mark.parametrize("order", ORDERS)
def test_nominated_pods_stay_where_they_were_planned(order: str) -> None:
    """With nominations nearly all pods end where they were meant to, and one round of buying is enough."""
    found = realise(mixed(), ours, order=order, nominate=True)
    assert found.waiting == ()
    assert found.rounds == 1
    assert found.cost == pytest.approx(found.planned_cost)


@pytest.mark.parametrize("name", scenarios(PODS))
def test_machines_that_come_in_the_order_of_the_plan_get_the_pods_planned_for_them(name: str) -> None:
    """No pod finds room on a machine before its own is there, so nothing more need be bought."""
    problem = scenarios(PODS)[name]()
    for order in ORDERS:
        found = realise(problem, searching, order=order, nominate=True, arrival="planned")
        assert found.share_as_planned >= 0.99, order
        assert found.cost == pytest.approx(found.planned_cost), order
        assert found.waiting == (), order


@pytest.mark.parametrize("order", ORDERS)
def test_everyone_is_bound_in_the_end(order: str) -> None:
    """Without nominations pods may go elsewhere; further rounds buy what is then missing."""
    found = realise(mixed(), ours, order=order)
    assert found.waiting == ()
    assert found.cost >= found.planned_cost
    assert found.pods == 27


def test_a_stray_pod_costs_another_machine() -> None:
    """A small pod that takes the room of a big one is paid for with a second machine."""
    problem = a_problem(
        [*some_pods(1, "small", cpu="1", memory="1Gi"), *some_pods(1, "wide", cpu="15", memory="1Gi")]
    )

    def tight(asked: Problem) -> Decision:
        keys = tuple(p.metadata.name for p in asked.pods)
        types = {"default/small-0000": "general-2", "default/wide-0000": "general-16"}
        pods = [f"default/{name}" for name in keys]
        return Decision(
            purchases=tuple(
                Purchase(
                    pool="default",
                    instance_type=types[pod],
                    zone="zone-a",
                    capacity_type="on-demand",
                    price=float(types[pod].removeprefix("general-")),
                    pods=(pod,),
                )
                for pod in pods
            )
        )

    free = [realise(problem, tight, seed=seed) for seed in range(6)]
    assert {r.planned_cost for r in free} == {18.0}
    assert all(realise(problem, tight, seed=s, nominate=True).cost == 18.0 for s in range(6))
    assert all(r.waiting == () for r in free)


def two_machines(asked: Problem) -> Decision:
    """Return a large machine for the wide pod, with room left over, and a small one for the other."""
    keys = [pod_key(p) for p in asked.pods]
    sizes = {"default/small-0000": 2, "default/wide-0000": 16}
    return Decision(
        purchases=tuple(
            Purchase(
                pool="default",
                instance_type=f"general-{sizes[key]}",
                zone="zone-a",
                capacity_type="on-demand",
                price=float(sizes[key]),
                pods=(key,),
            )
            for key in keys
        )
    )


def test_a_nomination_to_a_node_to_come_keeps_nobody_waiting() -> None:
    """Why not all pods end where planned: kube-scheduler takes whoever waits to room that is there.

    The small pod's machine is the second to arrive, the first has room for it beside its own pod. A
    nomination keeps that room from nobody who has none to leave; with both there it is bound as planned.
    """
    problem = a_problem(
        [*some_pods(1, "small", cpu="1", memory="1Gi"), *some_pods(1, "wide", cpu="10", memory="1Gi")]
    )
    found = [realise(problem, two_machines, seed=seed, nominate=True) for seed in range(8)]
    assert {r.share_as_planned for r in found} == {0.5, 1.0}
    assert {(r.cost, r.late, r.waiting) for r in found} == {(18.0, 0, ())}
    at_once = [
        realise(problem, two_machines, seed=seed, nominate=True, arrival="together") for seed in range(8)
    ]
    assert {r.share_as_planned for r in at_once} == {1.0}


@pytest.mark.parametrize("order", ORDERS)
def test_pods_spread_over_zones_are_bound_where_planned(order: str) -> None:
    """Once all machines are there, in whatever order kube-scheduler comes to the pods."""
    found = realise(spread_over_zones(), ours, order=order, nominate=True, arrival="together")
    assert (found.share_as_planned, found.rounds) == (1.0, 1)


@pytest.mark.parametrize(
    ("order", "seed"), [("creation", 3), ("creation", 10), ("random", 4), ("biggest", 10)]
)
def test_nothing_more_is_bought_for_pods_that_change_zones(order: str, seed: int) -> None:
    """Machines arrive one by one; whoever slips into another zone leaves its place to one planned there.

    With these seeds another machine would be bought if it did not.
    """
    found = realise(spread_over_zones(), ours, order=order, seed=seed, nominate=True, behind=0)
    assert (found.waiting, found.rounds) == ((), 1)
    assert found.cost == pytest.approx(found.planned_cost)


def spread_over_zones() -> Problem:
    """Return workloads of different sizes, each spread over three zones."""
    zones = ("zone-a", "zone-b", "zone-c")
    sizes = [(n, memory) for n in (2, 4, 8, 16) for memory in (2, 4, 8)]
    types = [an_instance_type(f"t-{n}-{m}", cpu=str(n), memory=f"{m * n}Gi", zones=zones) for n, m in sizes]
    pods = [
        pod
        for i in range(12)
        for pod in some_pods(
            20,
            f"app{i}",
            cpu=f"{150 + 70 * (5 * i % 12)}m",
            memory=f"{500 + 300 * (7 * i % 12)}Mi",
            labels={"app": f"app{i}"},
            spec=spread(f"app{i}"),
        )
    ]
    return a_problem(pods, instance_types=types)


def test_nodes_that_are_there_come_first() -> None:
    """Pods that fit on a node that is there are bound before anything is planned."""
    found = realise(a_problem(some_pods(2, cpu="1"), nodes=[a_view("there")]), ours)
    assert (found.pods, found.rounds, found.cost) == (0, 0, 0.0)


def test_the_nodes_afterwards_hold_all_pods() -> None:
    """What is left behind can be asked about again."""
    problem = mixed()
    after = nodes_after(problem, ours)
    assert sum(len(view.pods) for view in after) == len(problem.pods)
    assert all(view.requested["cpu"] <= view.allocatable["cpu"] for view in after)


def test_an_unknown_order_is_refused() -> None:
    """A misspelt order is named."""
    with pytest.raises(ValueError, match="'smallest' is none of creation, random, biggest"):
        realise(mixed(), ours, order="smallest")
