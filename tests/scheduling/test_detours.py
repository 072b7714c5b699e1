"""Small batches are planned in several ways, and the cheapest is taken."""

from karpenter.apis import labels
from karpenter.apis.core import Taint
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import (
    a_nodepool,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    an_offer,
    an_offering,
    node_affinity,
    some_pods,
)
from karpenter.testing.company import app_pods, beside, spread

OD = labels.CAPACITY_ON_DEMAND


def searched(problem: Problem) -> Plan:
    """Return the plan that a search finds, which must be right."""
    plan = solve(problem, Budget(steps=100))
    assert (plan.distrusted, violations(problem, plan)) == ((), [])
    return plan


def test_room_that_is_there_goes_to_whom_it_saves_most() -> None:
    """The largest pod would take the node and leave two others to be bought for: they take it instead."""
    types = [an_instance_type("small", cpu="2", memory="8Gi", price=1.0)]
    node = a_view("node", allocatable={"cpu": "2", "memory": "16Gi", "pods": "9"})
    pods = some_pods(1, "busy", cpu="1500m", memory="1Gi") + some_pods(2, "fat", cpu="1", memory="6Gi")
    problem = a_problem(pods, instance_types=types, nodes=[node])
    assert solve(problem).cost == 2.0
    plan = searched(problem)
    assert plan.cost == 1.0
    assert plan.placements == {"node": ("default/fat-0000", "default/fat-0001")}


def test_a_spread_leans_to_the_cheaper_zone() -> None:
    """Three pods, two zones, a node for two in the dearer one only: what is cheapest in all is done.

    No zone is left empty for that: it could be bought in.
    """
    single = [an_offering("zone-a", OD, 1.0), an_offering("zone-b", OD, 1.2)]
    double = [an_offering("zone-b", OD, 1.3)]
    types = [
        an_instance_type("single", cpu="1", memory="8Gi", offerings=single),
        an_instance_type("double", cpu="2", memory="8Gi", offerings=double),
    ]
    for max_skew in (1, 2):
        pods = app_pods("web1", "web2", "web3", cpu="900m", spec=spread(max_skew=max_skew))
        plan = searched(a_problem(pods, instance_types=types))
        assert (plan.cost, len(plan.claims)) == (2.3, 2)


def test_what_is_given_up_counts_more_than_the_price() -> None:
    """With a pool to be avoided if possible small batches are planned in several ways, too, and keep off it.

    One of three pods goes to the node in zone a; zone a is the cheaper one, but in c the others share a node.
    """
    places = [an_offering("zone-a", OD, 1.0), an_offering("zone-c", OD, 1.1)]
    types = [an_instance_type("double", cpu="2", memory="8Gi", offerings=places)]
    bargain = an_instance_type("bargain", cpu="8", memory="8Gi", price=0.1)
    avoided = a_nodepool("avoided", taints=[Taint(key="avoid", effect="PreferNoSchedule")])
    room = {"cpu": "1", "memory": "8Gi", "pods": "2"}
    running = app_pods("web8", "web9", node_name="full")
    nodes = [
        a_view("free", labels={labels.ZONE: "zone-a"}, allocatable=room),
        a_view("full", labels={labels.ZONE: "zone-b"}, allocatable=room, pods=running),
    ]
    pods = app_pods("web1", "web2", "web3", cpu="900m", spec=spread(max_skew=2))
    pools = [an_offer(a_nodepool("plain"), types), an_offer(avoided, [bargain])]
    plan = searched(a_problem(pods, pools=pools, nodes=nodes))
    assert [(c.pool.name, c.price) for c in plan.claims] == [("plain", 1.1)]


def test_pods_that_prefer_something_keep_what_they_have() -> None:
    """A preference is not given up for money."""
    dear = a_nodepool("dear", requirements=[("disk", "In", ["fast"])])
    cheap = a_nodepool("cheap", requirements=[("disk", "In", ["slow"])])
    offers = {"small": 1.0, "large": 9.0}
    types = [an_instance_type(name, cpu="4", price=price) for name, price in offers.items()]
    wish = node_affinity(preferred=[(1, a_term(("disk", "In", ["fast"])))])
    plan = searched(a_problem(some_pods(2, affinity=wish), pools=[cheap, dear], instance_types=types))
    assert {c.pool.name for c in plan.claims} == {"dear"}


def test_whoever_an_urgent_pod_needs_is_as_urgent() -> None:
    """Room for two: the urgent pod and the one it must be beside, though that has no priority itself."""
    node = a_view("node", allocatable={"cpu": "2", "memory": "16Gi", "pods": "9"})
    pods = app_pods("db1", cpu="1", spec={}) + app_pods(
        "web1", cpu="1", spec=beside("db", labels.KUBERNETES_HOSTNAME), priority=100
    )
    others = app_pods("cache1", "cache2", cpu="1", spec={})
    plan = searched(a_problem(pods + others, pools=[a_nodepool(limits={"cpu": "0"})], nodes=[node]))
    assert plan.placements == {"node": ("default/db1", "default/web1")}
