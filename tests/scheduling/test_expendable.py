"""Pods below the priority cut-off, and who comes first when something runs out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.apis.core import PodResourceClaim
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.scheduling.check_refusals import needless_refusals
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_view,
    an_instance_type,
    an_offer,
    an_offering,
    some_instance_types,
)

replace = msgspec.structs.replace
FOUR = an_instance_type("four", price=0.2)


def with_cutoff(problem: Problem, cutoff: int | None) -> Problem:
    """Return `problem` where nothing is bought below a priority."""
    return replace(problem, options=replace(problem.options, expendable_below=cutoff))


def planned(problem: Problem, steps: int = 0) -> Plan:
    """Solve, and make sure that the plan is right and refuses nobody without need."""
    plan = solve(problem, Budget(steps=steps))
    assert violations(problem, plan) == []
    assert needless_refusals(problem, plan) == []
    return plan


@pytest.mark.parametrize(("cutoff", "bought"), [(None, 2), (-5, 2), (-4, 1), (1, 0)])
def test_nothing_is_bought_below_the_cut_off(cutoff: int | None, bought: int) -> None:
    """Pods of a lower priority than the cut-off get no node of their own; without one, all do."""
    pods = [a_pod("a", cpu="3"), a_pod("b", cpu="3", priority=-5)]
    plan = planned(with_cutoff(a_problem(pods, pools=[an_offer(a_nodepool(), [FOUR])]), cutoff))
    assert len(plan.claims) == bought
    for refused in plan.unschedulable:
        (refusal,) = refused.refusals
        assert refusal.constraint == "priority"
        assert refusal.remedy == (
            f"give it priority {cutoff} or more, or lower --expendable-pods-priority-cutoff"
        )


def test_expendable_pods_take_the_room_that_others_leave() -> None:
    """They go on nodes that are there, after everybody else, and not on those that are planned."""
    view = a_view("there")
    pods = [
        a_pod("low-1", cpu="1", priority=-5),
        a_pod("low-2", cpu="1", priority=-5),
        a_pod("high", cpu="3"),
    ]
    offers = [an_offer(a_nodepool(), [FOUR])]
    plan = planned(with_cutoff(a_problem(pods, nodes=[view], pools=offers), 0))
    assert plan.placements == {"there": ("default/high", "default/low-1")}
    assert plan.claims == ()
    assert [u.pod for u in plan.unschedulable] == ["default/low-2"]


def test_what_a_higher_priority_would_not_help_is_said_first() -> None:
    """The reason of a pod that could not run anyway is that, not its priority."""
    pod = a_pod("dra", priority=-5, spec={"resource_claims": [PodResourceClaim(name="gpu")]})
    plan = planned(with_cutoff(a_problem([pod], pools=[an_offer(a_nodepool(), [FOUR])]), 0))
    assert plan.unschedulable[0].refusals[0].constraint == "dra"


@given(
    st.lists(
        st.tuples(st.sampled_from(["500m", "1", "3"]), st.sampled_from([-20, 0, 7])), min_size=1, max_size=10
    ),
    st.integers(0, 2),
    st.sampled_from([0, 10]),
)
def test_the_cut_off_changes_nothing_for_others(wants: list[tuple[str, int]], nodes: int, steps: int) -> None:
    """Whoever is above the cut-off gets what it would get if the others did not exist."""
    pods = [a_pod(f"pod-{i}", cpu=cpu, priority=p) for i, (cpu, p) in enumerate(wants)]
    views = [a_view(f"node-{i}") for i in range(nodes)]
    offers = [an_offer(a_nodepool(), some_instance_types())]
    plan = planned(with_cutoff(a_problem(pods, nodes=views, pools=offers), 0), steps)
    above = [p for p in pods if (p.spec.priority or 0) >= 0]
    assert plan.claims == solve(a_problem(above, nodes=views, pools=offers), Budget(steps=steps)).claims


# --- higher priority first --------------------------------------------------------------------------------


RESERVATION = "example.com/reservation"
SCARCE = an_instance_type("four", offerings=[replace(an_offering("zone-a", price=0.2), stock=1)])


def short_of(what: str, pods: list[Any]) -> Problem:
    """Return a problem in which one node can be bought, because `what` runs out."""
    if what == "stock":
        return a_problem(pods, pools=[an_offer(a_nodepool(), [SCARCE])])
    offer = an_offer(a_nodepool(), [FOUR])
    if what == "cluster price":
        problem = a_problem(pods, pools=[offer])
        return replace(problem, options=replace(problem.options, price_remaining=250_000))
    left = {"cpu": {"cpu": 5000}, "nodes": {"nodes": 1}, "price": {"price": 250_000}}[what]
    return a_problem(pods, pools=[replace(offer, remaining=left)])


@pytest.mark.parametrize("steps", [0, 10])
@pytest.mark.parametrize("what", ["cpu", "nodes", "price", "cluster price", "stock"])
def test_when_something_runs_out_higher_priority_goes_first(what: str, steps: int) -> None:
    """Of resources, nodes, money or stock: the last node is for the pod that matters most, large or small."""
    pods = [
        a_pod("a-large", cpu="3500m", priority=1),
        a_pod("b-most", cpu="2", priority=100),
        a_pod("c-next", cpu="1500m", priority=50),
        a_pod("d-none", cpu="3"),
    ]
    plan = planned(short_of(what, pods), steps)
    assert [claim.pods for claim in plan.claims] == [("default/b-most", "default/c-next")]
    assert sorted(u.pod for u in plan.unschedulable) == ["default/a-large", "default/d-none"]


@pytest.mark.parametrize("what", ["cpu", "nodes", "price", "cluster price", "stock"])
def test_of_equal_pods_the_oldest_goes_first(what: str) -> None:
    """Whatever they are called, those created first have the node; then uids decide, and names."""
    young, old = "2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z"
    pods = [
        a_pod(f"{name}-{i}", cpu="2", created=created)
        for name, created in (("a", young), ("b", old))
        for i in range(2)
    ]
    plan = planned(short_of(what, pods))
    assert [claim.pods for claim in plan.claims] == [("default/b-0", "default/b-1")]


@pytest.mark.parametrize("what", ["cpu", "nodes", "price", "cluster price", "stock"])
def test_equal_priorities_are_not_mixed_up(what: str) -> None:
    """Without priorities the one node is filled with as much as it holds."""
    pods = [a_pod(f"pod-{i}", cpu="1") for i in range(6)]
    plan = planned(short_of(what, pods))
    assert [len(claim.pods) for claim in plan.claims] == [4]
    assert labels.INSTANCE_TYPE in plan.claims[0].requirements
