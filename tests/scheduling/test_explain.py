"""Refusals and plans in words."""

import json

import msgspec
import pytest

from karpenter.scheduling import solve
from karpenter.scheduling.explain import cost_text, plan_text, unschedulable_json, unschedulable_text
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, an_instance_type


def test_a_refusal_names_place_reason_counts_and_remedy() -> None:
    """One line per place, with figures."""
    (refused,) = solve(a_problem([a_pod(cpu="100")])).unschedulable
    assert unschedulable_text(refused).splitlines() == [
        "pod default/pod cannot be scheduled:",
        "  - nodepool/default: no instance type has enough resources, "
        "resources=cpu=100, memory=1Gi, pods=1 (resources rule out 4 of 4 instance types); "
        "request at most 16 cpu, or allow larger instance types",
    ]


def test_a_refusal_is_json() -> None:
    """The same, as data that survives JSON."""
    (refused,) = solve(a_problem([a_pod(cpu="100")])).unschedulable
    data = json.loads(json.dumps(unschedulable_json(refused)))
    assert data["pod"] == "default/pod"
    assert data["refusals"][0]["constraint"] == "resources"
    assert data["refusals"][0]["detail"]["removed"]["resources"] == 4


def test_a_plan_is_summed_up() -> None:
    """What is bought, what is placed, who is left out, and how near to the optimum it is."""
    plan = solve(a_problem([a_pod("a"), a_pod("b", cpu="100")], pools=[a_nodepool("main")]))
    lines = plan_text(plan).splitlines()
    assert lines[0].startswith("1 pods on 1 new nodes, 0 on existing ones, 1 left out; cost $0.06/h, ≥ $0.0")
    assert lines[1] == "  main: general-2 or 3 others, $0.0560/h, 1 pods"
    assert lines[2] == "pod default/b cannot be scheduled:"


@pytest.mark.parametrize(
    ("types", "others"), [(1, "only-0,"), (2, "only-0 or 1 others,"), (3, "only-0 or 2 others,")]
)
def test_a_node_is_named_by_its_cheapest_type(types: int, others: str) -> None:
    """How many others may stand in for it is said where there are any."""
    catalogue = [an_instance_type(f"only-{i}", price=1.0 + i) for i in range(types)]
    lines = plan_text(solve(a_problem([a_pod()], instance_types=catalogue))).splitlines()
    assert lines[1] == f"  default: {others} $1.0000/h, 1 pods"


def test_the_gap_is_a_share_of_the_bound() -> None:
    """A plan for $1.10 where $1.00 may be possible is 10 % above it."""
    plan = msgspec.structs.replace(solve(a_problem([])), cost=1.1, lower_bound=1.0)
    assert cost_text(plan) == "cost $1.10/h, ≥ $1.00/h possible, gap 10.0 %"


def test_a_free_plan_has_no_gap() -> None:
    """Nothing bought, nothing to compare."""
    assert cost_text(solve(a_problem([]))) == "cost $0.00/h"
