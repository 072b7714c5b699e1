"""Which of the possible nodes are liked: a fee per node, a penalty on concentration, a ceiling on size."""

from collections import Counter
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.check import violations
from karpenter.scheduling.packing import crowding
from karpenter.testing.builders import a_pod, a_problem, an_instance_type, some_pods

SIZES = (2, 4, 8, 16, 32)
BUDGETS = [None, Budget(steps=200)]


def planned(problem: Problem, budget: Budget | None, **tastes: object) -> Plan:
    """Plan with options changed; the plan is right."""
    options = msgspec.structs.replace(problem.options, **tastes)
    asked = msgspec.structs.replace(problem, options=options)
    plan = solve(asked, budget)
    assert violations(asked, plan) == []
    return plan


def types_at(per_core: float, discount: float) -> list[InstanceType]:
    """Return types of several sizes; the larger ones are dearer per core by `discount` each step."""
    return [
        an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", price=n * per_core * discount**i)
        for i, n in enumerate(SIZES)
    ]


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_fee_buys_fewer_nodes(budget: Budget | None) -> None:
    """Where small nodes are a little cheaper per core, a fee of a few cents makes them not worth it."""
    problem = a_problem(some_pods(60, cpu="900m", memory="1Gi"), instance_types=types_at(0.05, 1.01))
    without = planned(problem, budget, node_fee=0.0)
    dear = planned(problem, budget, node_fee=0.5)
    assert len(dear.claims) < len(without.claims)
    assert without.cost <= dear.cost + 1e-9
    assert without.lower_bound == pytest.approx(dear.lower_bound or 0.0)


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_penalty_keeps_a_workload_from_one_node(budget: Budget | None) -> None:
    """Eight alike pods would share one large node; what that costs besides makes two of half the size."""
    problem = a_problem(some_pods(8, cpu="1800m", memory="1Gi"), instance_types=types_at(0.05, 0.97))
    free = planned(problem, budget)
    kept = planned(problem, budget, concentration_penalty=1.0)
    assert len(free.claims) == 1
    assert max(len(c.pods) for c in kept.claims) <= 5
    assert kept.cost < free.cost + 1.0


def test_the_penalty_grows_with_the_share_that_a_node_holds() -> None:
    """Nothing up to half of a workload, a quarter of it for three quarters, all of it for the whole."""
    four, one = (cast(Ask, SimpleNamespace(pods=["pod"] * count)) for count in (4, 1))
    options = msgspec.structs.replace(a_problem([]).options, concentration_penalty=0.8)
    held = np.array([[1, 0], [2, 1], [3, 0], [4, 1]])
    assert crowding(options, [four, one], held).tolist() == pytest.approx([0.0, 0.0, 0.2, 0.8])


@pytest.mark.parametrize("budget", BUDGETS)
def test_no_node_is_larger_than_the_ceiling(budget: Budget | None) -> None:
    """Types with more cores are neither chosen nor listed; who needs one is told of the option."""
    pods = [*some_pods(40, cpu="1", memory="1Gi"), a_pod("huge", cpu="20")]
    problem = a_problem(pods, instance_types=types_at(0.05, 0.9))
    plan = planned(problem, budget, max_node_cpu=8000)
    listed = Counter(name for claim in plan.claims for name in claim.instance_types)
    assert set(listed) == {"t2", "t4", "t8"} & set(listed) != set()
    assert [u.pod for u in plan.unschedulable] == ["default/huge"]
    assert plan.unschedulable[0].refusals[0].remedy == "raise --max-node-cpu, which is 8"
    free = planned(problem, budget)
    assert any(name in ("t16", "t32") for c in free.claims for name in c.instance_types)


def test_the_checker_knows_the_ceiling() -> None:
    """A plan that was made without the ceiling breaks it."""
    problem = a_problem(some_pods(40, cpu="1", memory="1Gi"), instance_types=types_at(0.05, 0.9))
    options = msgspec.structs.replace(problem.options, max_node_cpu=8000)
    capped = msgspec.structs.replace(problem, options=options)
    assert any("does not have" in text for text in violations(capped, solve(problem)))
