"""Pods that a pass leaves out are looked at once more, by the rules of the checker."""

from karpenter.apis import labels
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import a_nodepool, a_problem, a_view, an_instance_type
from karpenter.testing.company import app_pods, beside, spread

HOST = labels.KUBERNETES_HOSTNAME


def planned(problem: Problem, budget: Budget | None = None) -> Plan:
    """Return the plan, which must be right."""
    plan = solve(problem, budget)
    assert (plan.distrusted, violations(problem, plan)) == ((), [])
    return plan


def left_out(plan: Plan) -> list[str]:
    """Return the names of the pods without a place."""
    return [u.pod.removeprefix("default/") for u in plan.unschedulable]


def test_who_is_spread_is_placed_though_others_crowd_the_zone_afterwards() -> None:
    """The only node has room for two web pods; the one that minds them has to be bound first, and can be."""
    node = a_view(
        "node", labels={labels.ZONE: "zone-a"}, allocatable={"cpu": "2", "memory": "8Gi", "pods": "9"}
    )
    pods = app_pods("web1", cpu="1", spec=spread(min_domains=2)) + app_pods("web2", cpu="1")
    plan = planned(a_problem(pods, nodes=[node], pools=[a_nodepool(limits={"cpu": "0"})]))
    assert left_out(plan) == []


def test_pods_make_way_for_those_that_need_their_company() -> None:
    """Three web pods share a node; each cache must be beside one: two of them get nodes of their own."""
    types = [an_instance_type("small", cpu="4", price=1.0)]
    pods = app_pods("web1", "web2", "web3", cpu="1") + app_pods(
        "cache1", "cache2", cpu="2500m", spec=beside("web", labels.KUBERNETES_HOSTNAME)
    )
    plan = planned(a_problem(pods, instance_types=types), Budget(steps=10))
    assert (len(plan.claims), left_out(plan)) == (3, [])
