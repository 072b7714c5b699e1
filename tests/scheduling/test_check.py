"""The verifier finds what is wrong: every way to spoil a right plan is noticed."""

from collections.abc import Callable

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Taint
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.model.requirements import Requirement
from karpenter.scheduling import solve
from karpenter.scheduling.check import needless_refusals, quick_violations, violations
from karpenter.testing.builders import a_daemon, a_nodepool, a_pod, a_problem, a_view, some_pods

replace = msgspec.structs.replace
GENERAL_2 = "general-2"


def a_case() -> tuple[Problem, Plan]:
    """Return a problem with an existing node, a daemon, limits and two claims, and its plan."""
    problem = a_problem(
        [
            *some_pods(2, "zonal", cpu="1500m", node_selector={labels.ZONE: "zone-a"}),
            a_pod("od", cpu="5", node_selector={labels.CAPACITY_TYPE: "on-demand"}),
            *some_pods(2, "here", cpu="1500m", node_selector={"on": "node"}),
        ],
        pools=[a_nodepool(limits={"cpu": "16", "nodes": "4"})],
        nodes=[a_view("node", labels={"on": "node"})],
        daemons=[a_daemon()],
    )
    plan = solve(problem)
    assert violations(problem, plan) == []
    assert len(plan.claims) == 2
    assert len(plan.placements["node"]) == 2
    return problem, plan


def first(plan: Plan, **fields: object) -> Plan:
    """Return `plan` with fields of its first claim replaced."""
    return replace(plan, claims=(replace(plan.claims[0], **fields), *plan.claims[1:]))


def swapped(plan: Plan) -> Plan:
    """Return `plan` with the pods of its two claims exchanged."""
    one, other = plan.claims
    return replace(plan, claims=(replace(one, pods=other.pods), replace(other, pods=one.pods)))


def without(claim: PlannedClaim, key: str) -> PlannedClaim:
    """Return `claim` without its requirement on `key`."""
    return replace(claim, requirements=claim.requirements.without(key))


SPOILERS: dict[str, Callable[[Plan], Plan]] = {
    "dealt with 0 times": lambda p: first(p, pods=()),
    "dealt with 2 times": lambda p: replace(
        p, placements={"node": (*p.placements["node"], p.claims[0].pods[0])}
    ),
    "was not asked for": lambda p: first(p, pods=(*p.claims[0].pods, "default/ghost")),
    "is not there": lambda p: replace(p, placements={"gone": p.placements["node"]}),
    "does not accept": lambda p: replace(
        p, claims=tuple(without(without(c, labels.ZONE), labels.CAPACITY_TYPE) for c in p.claims)
    ),
    "pods and daemons need": lambda p: first(p, instance_types=(GENERAL_2,)),
    "not ordered by price": lambda p: first(p, instance_types=("general-16", *p.claims[0].instance_types)),
    "lists types that": lambda p: first(p, instance_types=("made-up",)),
    "price is": lambda p: first(p, price=p.claims[0].price / 2),
    "cost is": lambda p: replace(p, cost=p.cost + 1),
    "lower bound": lambda p: replace(p, lower_bound=p.cost + 1),
    "its pods": lambda p: first(p, requests={}),
    "is not on offer": lambda p: first(p, pool=a_nodepool("other")),
    "left of the limit": lambda p: replace(
        p,
        claims=tuple(
            replace(c, instance_types=(*c.instance_types, "general-16"))
            for c in p.claims
            if "general-16" not in c.instance_types
        ),
    ),
    "without a reason": lambda p: replace(
        first(p, pods=p.claims[0].pods[1:]),
        unschedulable=(Unschedulable(pod=p.claims[0].pods[0], refusals=()),),
    ),
    "wider than the pool's": lambda p: first(
        p, requirements=p.claims[0].requirements.without(labels.NODEPOOL)
    ),
    "no available offering": lambda p: first(
        p, requirements=p.claims[0].requirements.add(Requirement.of(labels.ZONE, "In", ["zone-x"]))
    ),
}


@pytest.mark.parametrize("message", SPOILERS)
def test_a_spoilt_plan_is_noticed(message: str) -> None:
    """Each kind of mistake is named."""
    problem, plan = a_case()
    found = violations(problem, SPOILERS[message](plan))
    assert any(message in text for text in found), found
    assert any(message in text for text in quick_violations(problem, SPOILERS[message](plan)))


def test_taints_ports_and_room_of_nodes_are_checked() -> None:
    """Pods on a node they don't tolerate, on a taken port, or beyond its size are violations."""
    tainted = a_view("tainted", taints=[Taint(key="t", effect="NoExecute")])
    small = a_view("small", allocatable={"cpu": "1", "memory": "1Gi", "pods": "10"})
    pods = some_pods(2, host_ports=[80])
    problem = a_problem(pods, nodes=[tainted, small])
    for name, messages in (("tainted", ["does not tolerate", "same host port"]), ("small", ["free is"])):
        plan = Plan(
            claims=(), placements={name: ("default/pod-0000", "default/pod-0001")}, unschedulable=(), cost=0.0
        )
        found = violations(problem, plan)
        assert all(any(m in text for text in found) for m in messages), found


def test_a_type_that_the_claim_rules_out_is_noticed() -> None:
    """A claim for arm64 nodes may not list an amd64 type."""
    problem = a_problem([a_pod()])
    plan = solve(problem)
    arm = plan.claims[0].requirements.without(labels.ARCH).add(Requirement.of(labels.ARCH, "In", ["arm64"]))
    assert any(
        "is not what the claim requires" in t for t in violations(problem, first(plan, requirements=arm))
    )


def test_a_needless_refusal_is_noticed() -> None:
    """A pod that any node could take must not be refused."""
    problem = a_problem([a_pod()])
    refusal = Refusal(place="nodepool/default", constraint="resources", message="no")
    plan = Plan(
        claims=(),
        placements={},
        unschedulable=(Unschedulable(pod="default/pod", refusals=(refusal,)),),
        cost=0.0,
    )
    assert violations(problem, plan) == []
    assert len(needless_refusals(problem, plan)) == 1
