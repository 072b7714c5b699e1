"""Plans handed to kube-scheduler's judgement: what is bound where, and what it costs in the end."""

import pytest

from karpenter.model.problem import Problem
from karpenter.scheduling import solve
from karpenter.testing.builders import a_problem, a_view, some_pods
from karpenter.testing.company import spread
from karpenter.testing.realised import (
    ORDERS,
    Decision,
    Purchase,
    decided,
    nodes_after,
    realise,
)


def ours(problem: Problem) -> Decision:
    """Return what this project's planner decides."""
    return decided(problem, solve(problem))


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
