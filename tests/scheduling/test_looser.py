"""Plans made for a kube-scheduler that puts pods wherever they fit."""

import msgspec
import pytest

from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import a_nodepool, a_problem, an_instance_type, some_pods
from karpenter.testing.company import apart, spread
from karpenter.testing.realised import ORDERS, Decision, Planner, decided, realise

KINDS = (
    *(an_instance_type(f"c-{n}", cpu=str(n), memory=f"{2 * n}Gi", price=0.085 * n) for n in (2, 4, 8)),
    *(an_instance_type(f"m-{n}", cpu=str(n), memory=f"{4 * n}Gi", price=0.1 * n) for n in (2, 4, 8)),
    *(an_instance_type(f"r-{n}", cpu=str(n), memory=f"{8 * n}Gi", price=0.13 * n) for n in (2, 4, 8)),
)


def lopsided(*, nominated: bool) -> Problem:
    """Return pods that want cpu and pods that want memory, which cheap plans put on different machines."""
    problem = a_problem(
        [
            *some_pods(24, "compute", cpu="900m", memory="900Mi", labels={"app": "compute"}),
            *some_pods(24, "memory", cpu="450m", memory="3500Mi", labels={"app": "memory"}),
        ],
        instance_types=KINDS,
    )
    return told(problem, nominated=nominated)


def told(problem: Problem, *, nominated: bool) -> Problem:
    """Return `problem` for a kube-scheduler that heeds nominations, or does not."""
    options = msgspec.structs.replace(problem.options, nominated=nominated)
    return msgspec.structs.replace(problem, options=options)


def planner(*, nominated: bool) -> Planner:
    """Return the planner, told what kube-scheduler does."""

    def plan(problem: Problem) -> Decision:
        return decided(problem, solve(told(problem, nominated=nominated), Budget(steps=40)))

    return plan


def ratios(problem: Problem, plan: Plan) -> set[str]:
    """Return the families of the machines that are bought."""
    return {purchase.instance_type[0] for purchase in decided(problem, plan).purchases}


def test_without_nominations_nodes_are_alike_where_that_is_cheaper_in_the_end() -> None:
    """Compute and memory nodes each would be filled with the wrong pods; nodes in between are not."""
    tight, loose = solve(lopsided(nominated=True)), solve(lopsided(nominated=False))
    assert len(ratios(lopsided(nominated=True), tight)) > 1
    assert len(ratios(lopsided(nominated=False), loose)) == 1
    assert loose.cost > tight.cost


@pytest.mark.parametrize("order", ORDERS)
def test_looser_plans_cost_less_once_pods_are_bound(order: str) -> None:
    """What counts is the price of all rounds of buying."""
    problem = lopsided(nominated=False)
    costs = {
        nominated: sum(
            realise(problem, planner(nominated=nominated), order=order, seed=s).cost for s in (1, 2, 3)
        )
        for nominated in (True, False)
    }
    assert costs[False] <= costs[True]


def test_a_looser_plan_is_valid_and_complete() -> None:
    """The checker finds nothing, and nobody is left out for the sake of likeness."""
    problem = lopsided(nominated=False)
    plan = solve(problem, Budget(steps=40))
    assert violations(problem, plan) == []
    assert plan.unschedulable == ()


def test_pods_that_only_some_machines_suit_still_get_them() -> None:
    """A shape that cannot host everyone is not chosen."""
    special = an_instance_type("special", cpu="4", memory="64Gi", extra={"example.com/gpu": "1"}, price=9.0)
    problem = a_problem(
        [
            *some_pods(12, "compute", cpu="900m", memory="900Mi"),
            *some_pods(2, "gpu", cpu="1", memory="1Gi", requests={"example.com/gpu": "1"}),
        ],
        instance_types=[*KINDS, special],
    )
    plan = solve(told(problem, nominated=False))
    assert plan.unschedulable == ()
    assert "special" in {p.instance_type for p in decided(problem, plan).purchases}


@pytest.mark.parametrize("company", [spread("compute"), apart("compute", "kubernetes.io/hostname")])
def test_pods_that_mind_their_company_are_planned_for(company: dict[str, object]) -> None:
    """Spread and anti-affinity hold in looser plans too."""
    pods = [
        *some_pods(8, "compute", cpu="900m", memory="900Mi", labels={"app": "compute"}, spec=company),
        *some_pods(12, "memory", cpu="450m", memory="3500Mi"),
    ]
    problem = told(a_problem(pods, pools=[a_nodepool()], instance_types=KINDS), nominated=False)
    plan = solve(problem, Budget(steps=20))
    assert violations(problem, plan) == []
    assert plan.unschedulable == ()


def test_one_node_needs_no_looser_plan() -> None:
    """Where there is one node only, all pods go there."""
    problem = a_problem(some_pods(3, cpu="500m", memory="500Mi"), instance_types=KINDS)
    assert solve(told(problem, nominated=False)) == solve(problem)
