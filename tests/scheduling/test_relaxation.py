"""What a plan's lower bound holds against: dropped preferences, other terms, nodes that are there, limits."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    an_offer,
    an_offering,
    node_affinity,
    some_pods,
)
from karpenter.testing.company import apart, app_pods
from karpenter.testing.dice import Dice
from karpenter.testing.exhaustive import TooLarge, best_plan
from karpenter.testing.problems import TINY, a_random_problem

SPOT_TOO = an_instance_type(
    "t0-2x8",
    cpu="2",
    memory="8Gi",
    offerings=[an_offering("zone-a", "on-demand", 0.086), an_offering("zone-a", "spot", 0.0344)],
)


def searched(problem: Problem) -> Plan:
    """Plan with a search of a hundred steps."""
    return solve(problem, Budget(steps=100))


def test_the_bound_admits_every_term_of_a_node_affinity() -> None:
    """A pod that may be on demand, or on anything but arm64, can be had for the price of spot."""
    on_demand, not_arm = (labels.CAPACITY_TYPE, "In", ["on-demand"]), (labels.ARCH, "NotIn", ["arm64"])
    terms = node_affinity([a_term(on_demand), a_term(not_arm)])
    plan = searched(a_problem([a_pod(affinity=terms)], instance_types=[SPOT_TOO]))
    assert plan.lower_bound is not None
    assert plan.lower_bound <= 0.0344 + 1e-9


def test_nodes_that_are_there_lower_the_bound_by_what_they_hold() -> None:
    """Of twenty pods of one core four fit an existing node: sixteen cost at least what they need."""
    types = [an_instance_type("small", cpu="2", price=2.0)]
    nodes = [a_view(allocatable={"cpu": "4", "memory": "64Gi", "pods": "110"})]
    plan = searched(a_problem(some_pods(20, cpu="1", memory="64Mi"), instance_types=types, nodes=nodes))
    assert plan.lower_bound == pytest.approx(16.0, rel=0.01)
    assert plan.cost == pytest.approx(16.0)


def test_pods_that_keep_apart_cost_a_node_each() -> None:
    """Five small pods with anti-affinity need five nodes, and the bound knows it."""
    types = [an_instance_type("small", cpu="2", price=2.0), an_instance_type("large", cpu="64", price=60.0)]
    pods = app_pods(*[f"web{i}" for i in range(1, 6)], spec=apart("web", labels.KUBERNETES_HOSTNAME))
    plan = searched(a_problem(pods, instance_types=types))
    assert plan.lower_bound == pytest.approx(10.0)


def test_a_limit_that_makes_the_plan_dearer_has_a_price() -> None:
    """With at most two nodes the large type must do: a node more would save the difference."""
    types = [an_instance_type("small", cpu="4", price=1.0), an_instance_type("large", cpu="16", price=10.0)]
    pods = some_pods(20, cpu="1", memory="64Mi")
    pool = a_nodepool(limits={"nodes": "2"})
    plan = searched(a_problem(pods, pools=[an_offer(pool, types, remaining={"nodes": "2"})]))
    assert [(p.place, p.resource, p.amount) for p in plan.limit_prices] == [
        ("nodepool/default", "nodes", "1")
    ]
    assert plan.limit_prices[0].usd == pytest.approx(2.0, rel=0.3)
    free = searched(a_problem(pods, pools=[an_offer(a_nodepool(), types)]))
    assert free.limit_prices == ()
    assert free.lower_bound is not None
    assert plan.lower_bound is not None
    assert free.lower_bound < plan.lower_bound <= plan.cost


@pytest.mark.parametrize("company", [False, True])
def test_no_plan_of_a_tiny_problem_beats_the_bound(company: bool) -> None:
    """Whatever the constraints, the best plan found by trying everything costs as much or more."""
    scale = msgspec.structs.replace(TINY, company=company)
    bounded = 0
    for seed in range(12):
        problem = a_random_problem(Dice.of_seed(f"bound/{seed}"), scale)
        plan = searched(problem)
        try:
            best = best_plan(problem, 2_000)
        except TooLarge:
            continue
        if len(plan.unschedulable) == len(best.unschedulable):
            assert plan.lower_bound is not None
            assert plan.lower_bound <= best.cost + 1e-6
            bounded += plan.lower_bound > 0
    assert bounded > 2
