"""Plans are in such an order that no pod fits on a machine which comes before its own."""

from collections import Counter

import pytest
from msgspec.structs import replace

from karpenter.model.problem import Budget
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.scheduling.compacting import compact
from karpenter.scheduling.improve import improved
from karpenter.scheduling.solver import first_plan
from karpenter.testing.builders import a_problem, an_instance_type, some_pods
from karpenter.testing.company import spread
from karpenter.testing.dice import Dice
from karpenter.testing.problems import Scale, a_random_problem
from karpenter.testing.realised import strays

PLAIN = Scale(workloads=12, replicas=8, pods=60, types=6, nodes=0, company=False, preferences=False)
EVERYTHING = Scale(workloads=12, replicas=8, pods=60, types=6, limited=True)


@pytest.mark.parametrize("steps", [0, 5])
def test_no_pod_fits_on_a_machine_that_comes_before_its_own(steps: int) -> None:
    """Whatever the pods ask of nodes, kube-scheduler finds no room for them before their machine is there."""
    for seed in range(30):
        problem = a_random_problem(Dice.of_seed(f"plain/{seed}"), PLAIN)
        problem = replace(problem, snapshot=replace(problem.snapshot, daemons=()))
        assert strays(problem, solve(problem, Budget(steps=steps))) == [], seed


@pytest.mark.parametrize("steps", [0, 5])
def test_plans_in_order_are_right_and_never_dearer(steps: int) -> None:
    """Pods move only where every rule allows it, and no machine becomes dearer."""
    moved = 0
    for seed in (*range(30), 143, 151):  # the last two have pods that keep each other away
        problem = a_random_problem(Dice.of_seed(f"everything/{seed}"), EVERYTHING)
        current = first_plan(problem)
        improved(current, iter([True] * steps + [False] * 100).__next__)
        before = current.plan()
        compact(current)
        after = current.plan()
        moved += {c.pods for c in before.claims} != {c.pods for c in after.claims}
        assert set(violations(problem, after)) <= set(violations(problem, before)), seed
        assert after.cost <= before.cost + 1e-9, seed
        assert after.unschedulable == before.unschedulable, seed
    assert moved > 1


def test_room_left_by_early_machines_is_filled_from_the_last() -> None:
    """Two half-full machines and a full one: the full one comes first, the last becomes smaller."""
    types = [an_instance_type(f"t-{n}", cpu=str(n), memory=f"{4 * n}Gi", price=float(n)) for n in (2, 4, 8)]
    pods = [*some_pods(6, "big", cpu="3", memory="1Gi"), *some_pods(7, "small", cpu="500m", memory="1Gi")]
    problem = a_problem(pods, instance_types=types)
    plan = solve(problem)
    assert strays(problem, plan) == []
    assert violations(problem, plan) == []


def test_claims_are_as_they_were_where_pods_go_where_they_fit() -> None:
    """Without nominations the order of the machines says nothing about where pods are bound."""
    pods = [*some_pods(40, "web", cpu="700m", memory="1Gi"), *some_pods(9, "db", cpu="3", memory="9Gi")]
    problem = a_problem(pods)
    loose = replace(problem, options=replace(problem.options, nominated=False))
    untouched = first_plan(loose).plan()
    assert Counter(c.instance_types for c in solve(loose).claims) == Counter(
        c.instance_types for c in untouched.claims
    )


def test_zones_keep_their_share() -> None:
    """Pods that are spread over zones move only within their zone."""
    zones = ("zone-a", "zone-b", "zone-c")
    types = [an_instance_type(f"t-{n}", cpu=str(n), memory=f"{4 * n}Gi", zones=zones) for n in (2, 4, 8)]
    pods = [
        pod
        for i in range(6)
        for pod in some_pods(
            14, f"app{i}", cpu=f"{200 + 90 * i}m", labels={"app": f"app{i}"}, spec=spread(f"app{i}")
        )
    ]
    problem = a_problem(pods, instance_types=types)
    current = first_plan(problem)
    before = violations(problem, current.plan())
    compact(current)
    assert before == violations(problem, current.plan()) == []
