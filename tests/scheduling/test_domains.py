"""Pods that mind who is in their zone, or in any other domain of nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Affinity, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from karpenter.apis.karpenter import NodePool
from karpenter.apis.meta import LabelSelector
from karpenter.model.problem import Plan, Problem
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.scheduling.domains import DomainLedger, Wide
from karpenter.scheduling.solver import first_plan
from karpenter.scheduling.terms import Group, NodeFilter
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_view,
    an_instance_type,
    an_offer,
    some_pods,
)
from karpenter.testing.company import app_pods
from karpenter.testing.company import spread as company_spread

WEB, DB = {"app": "web"}, {"app": "db"}


ZONES = ["zone-a", "zone-b", "zone-c"]
CAPACITY = ["on-demand", "spot"]
TYPES = [
    an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", zones=ZONES, capacity_types=CAPACITY)
    for n in (2, 4, 8, 16)
]
RACK = "example.com/rack"


def planned(problem: Problem) -> Plan:
    """Solve, and make sure that the plan is right."""
    plan = solve(problem)
    assert violations(problem, plan) == []
    return plan


def in_three_zones(pods: Iterable[Pod], **fields: Any) -> Problem:
    """Return a problem with types that three zones sell, unless others are given."""
    return a_problem(pods, **{"instance_types": TYPES, **fields})


def spread(max_skew: int = 1, key: str = labels.ZONE, **fields: object) -> dict[str, object]:
    """Return the spec of a pod that spreads web pods over domains."""
    constraint = TopologySpreadConstraint(
        max_skew=max_skew,
        topology_key=key,
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels=WEB),
    )
    return {"topology_spread_constraints": [msgspec.structs.replace(constraint, **fields)]}


def near(selected: Mapping[str, str], key: str = labels.ZONE) -> Affinity:
    """Return required affinity towards pods with some labels."""
    term = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=dict(selected)))
    return Affinity(pod_affinity=PodAffinity(required=[term]))


def far(selected: Mapping[str, str], key: str = labels.ZONE) -> Affinity:
    """Return required anti-affinity towards pods with some labels."""
    term = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=dict(selected)))
    return Affinity(pod_anti_affinity=PodAffinity(required=[term]))


def in_zone(zone: str) -> NodePool:
    """Return a pool of one zone."""
    return a_nodepool(zone, requirements=[(labels.ZONE, "In", [zone])])


def domains(plan: Plan, prefix: str = "", key: str = labels.ZONE) -> Counter[str]:
    """Return how many of the pods whose name starts with `prefix` each domain gets on new nodes."""
    found: Counter[str] = Counter()
    for claim in plan.claims:
        here = [k for k in claim.pods if k.split("/")[1].startswith(prefix)]
        if here:
            found[claim.requirements.single_value(key)] += len(here)
    return found


def zoned(zone: str, *pods: Pod, name: str = "") -> NodeView:
    """Return a full node in a zone, with pods on it."""
    return a_view(
        name or f"node-{zone}",
        labels={labels.ZONE: zone},
        pods=pods,
        allocatable={"cpu": "0", "memory": "0", "pods": "0"},
    )


@pytest.mark.parametrize(
    ("alternatives", "counted"),
    [
        (None, ["zone-a"]),
        ([], ["zone-a"]),
        ([{labels.ZONE: "zone-a"}], ["zone-a"]),
        ([{labels.ARCH: "arm64"}], ["zone-a"]),
        ([{labels.ZONE: "zone-b"}], []),
        ([{labels.ZONE: "zone-b"}, {labels.ZONE: "zone-a"}], ["zone-a"]),
    ],
)
def test_a_node_bought_in_a_new_zone_is_a_domain_of_those_that_select_it(
    alternatives: list[dict[str, str]] | None, counted: list[str]
) -> None:
    """Whoever brought it there; pods that may be anywhere make no domain."""
    chosen = None
    if alternatives is not None:
        chosen = NodeFilter(tuple(map(Requirements.from_labels, alternatives)), tolerations=())
    group = Group("spread", labels.ZONE, frozenset(["default"]), LabelSelector(match_labels=WEB), chosen)
    ledger = DomainLedger()
    (tally,) = (ledger.groups[ledger.number(group)],)
    other = Wide(keys=(labels.ZONE,))
    ledger.record(other, ("",), 1)
    assert sorted(tally.present) == []
    ledger.record(other, ("zone-a",), 2)
    assert sorted(tally.present) == counted
    assert tally.total == 0
    ledger.record(Wide(keys=(labels.ZONE,), selected=(0,)), ("",), 3)
    ledger.record(Wide(keys=(labels.ZONE,), selected=(0,)), ("zone-a",), 4)
    assert (tally.total, tally.pods) == (7, {"zone-a": 4})


def test_a_deployment_is_spread_evenly_over_zones() -> None:
    """Seven pods with maxSkew 1 over three zones: 3, 2 and 2."""
    plan = planned(in_three_zones(some_pods(7, labels=WEB, spec=spread())))
    assert sorted(domains(plan).values()) == [2, 2, 3]


def test_running_pods_count_towards_the_skew() -> None:
    """Two pods run in one zone already: the next two go to the others."""
    running = [
        a_pod(f"old-{i}", labels=WEB, node_name="node-zone-a", cpu=None, memory=None) for i in range(2)
    ]
    problem = in_three_zones(some_pods(2, labels=WEB, spec=spread()), nodes=[zoned("zone-a", *running)])
    assert domains(planned(problem)) == {"zone-b": 1, "zone-c": 1}


def test_a_zone_where_nothing_fits_does_not_take_part() -> None:
    """Only one zone sells a type large enough: the pod goes there, whatever is drawn first."""
    types = [
        an_instance_type("small", cpu="2", zones=["zone-a", "zone-b"]),
        an_instance_type("large", cpu="16", zones=["zone-c"]),
    ]
    plan = planned(in_three_zones([a_pod(cpu="8", labels=WEB, spec=spread())], instance_types=types))
    assert domains(plan) == {"zone-c": 1}


@pytest.mark.parametrize(("minimum", "placed"), [(3, 6), (4, 3)])
def test_with_too_few_domains_the_emptiest_counts_as_empty(minimum: int, placed: int) -> None:
    """minDomains 4 with three zones: each zone may hold maxSkew pods, no more."""
    plan = planned(in_three_zones(some_pods(6, labels=WEB, spec=spread(min_domains=minimum))))
    assert sum(domains(plan).values()) == placed
    assert all("topologySpread" in {r.constraint for r in u.refusals} for u in plan.unschedulable)


def test_spread_works_over_capacity_types_and_labels_of_the_pool() -> None:
    """Any label that pools define or types have can be spread over."""
    by_capacity = planned(in_three_zones(some_pods(4, labels=WEB, spec=spread(key=labels.CAPACITY_TYPE))))
    assert domains(by_capacity, key=labels.CAPACITY_TYPE) == {"on-demand": 2, "spot": 2}
    pool = a_nodepool(requirements=[(RACK, "In", ["r1", "r2"])])
    by_rack = planned(in_three_zones(some_pods(4, labels=WEB, spec=spread(key=RACK)), pools=[pool]))
    assert domains(by_rack, key=RACK) == {"r1": 2, "r2": 2}


def test_a_label_nobody_defines_keeps_only_its_pods_waiting() -> None:
    """A topology key without domains is named in the refusal; other pods are placed."""
    plan = planned(in_three_zones([a_pod("odd", labels=WEB, spec=spread(key=RACK)), a_pod("fine")]))
    assert [u.pod for u in plan.unschedulable] == ["default/odd"]
    assert RACK in plan.unschedulable[0].refusals[0].message


def test_pods_that_attract_each_other_share_a_zone() -> None:
    """The first picks a zone, all others follow, however many nodes it takes."""
    plan = planned(in_three_zones(some_pods(40, labels=WEB, affinity=near(WEB))))
    assert len(domains(plan)) == 1
    assert sum(domains(plan).values()) == 40


def test_followers_go_where_those_they_need_are() -> None:
    """A chain of three: cache needs web, web needs db, db can only be in one zone."""
    pods = [
        *some_pods(2, "cache", labels={"app": "cache"}, affinity=near(WEB)),
        *some_pods(2, "web", labels=WEB, affinity=near(DB)),
        *some_pods(2, "db", labels=DB, node_selector={labels.ZONE: "zone-b"}),
    ]
    plan = planned(in_three_zones(pods))
    assert plan.unschedulable == ()
    assert domains(plan) == {"zone-b": 6}


def test_the_first_of_a_group_goes_where_its_followers_can() -> None:
    """The follower is tied to a zone: whoever it must be near is put there, though it could go anywhere."""
    pods = [
        *some_pods(3, "web", labels=WEB, affinity=near(WEB)),
        a_pod("follower", affinity=near(WEB), node_selector={labels.ZONE: "zone-c"}),
    ]
    assert domains(planned(in_three_zones(pods))) == {"zone-c": 4}


def test_a_pod_that_needs_one_that_is_nowhere_waits() -> None:
    """Affinity towards pods that do not exist cannot be met by buying a node."""
    plan = planned(in_three_zones([a_pod(affinity=near(DB))]))
    assert [r.constraint for r in plan.unschedulable[0].refusals] == ["podAffinity"]


def test_zone_anti_affinity_is_met_in_one_batch() -> None:
    """Three pods that avoid each other's zones get three zones at once, a fourth waits."""
    plan = planned(in_three_zones(some_pods(4, labels=WEB, affinity=far(WEB))))
    assert domains(plan) == {"zone-a": 1, "zone-b": 1, "zone-c": 1}
    assert [r.constraint for r in plan.unschedulable[0].refusals] == ["podAntiAffinity"]


def test_who_is_avoided_keeps_out_of_the_avoiders_zone() -> None:
    """Anti-affinity binds both ways, also towards pods without any constraint of their own."""
    pods = [a_pod("shy", affinity=far(WEB)), *some_pods(3, "web", labels=WEB)]
    plan = planned(in_three_zones(pods))
    assert plan.unschedulable == ()
    assert not set(domains(plan, "shy")) & set(domains(plan, "web"))


def test_pods_that_must_share_a_node_get_one_that_holds_them_all() -> None:
    """Host affinity among ten pods: a single node, large enough."""
    plan = planned(in_three_zones(some_pods(3, labels=WEB, affinity=near(WEB, labels.KUBERNETES_HOSTNAME))))
    assert [len(c.pods) for c in plan.claims] == [3]


@pytest.mark.parametrize(("cpu", "grown"), [(None, "t8"), ("8", "t8"), ("7", "")])
def test_a_node_grows_for_those_that_must_be_on_it(cpu: str | None, grown: str) -> None:
    """A pod that must be beside another makes the planned node larger instead of waiting, within limits."""
    types = [an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi") for n in (2, 4, 8)]
    pods = [
        a_pod("db", labels=DB, cpu="1500m"),
        a_pod("helper", cpu="4", affinity=near(DB, labels.KUBERNETES_HOSTNAME)),
    ]
    pool = a_nodepool(limits={"cpu": cpu} if cpu else {})
    problem = in_three_zones(pods, instance_types=types, pools=[pool])
    first = first_plan(problem).plan()
    assert violations(problem, first) == []
    for plan in (first, planned(problem)):
        keys = ("default/db", "default/helper") if grown else ("default/db",)
        assert [(c.pods, c.instance_types[0]) for c in plan.claims] == [(keys, grown or "t2")]


def test_a_node_that_grew_counts_with_all_it_has() -> None:
    """The limit leaves room for one of two nodes to grow; what is free on it is used by whoever else must."""
    types = [an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi") for n in (2, 4, 8)]
    founders = [
        a_pod("db", labels=DB, cpu="1500m"),
        a_pod("web", labels=WEB, cpu="1500m", affinity=far(DB, labels.KUBERNETES_HOSTNAME)),
    ]
    helpers = [
        a_pod(name, cpu=size, affinity=near(chosen, labels.KUBERNETES_HOSTNAME))
        for name, size, chosen in (("a", "2", DB), ("b", "400m", DB), ("c", "2", WEB))
    ]
    problem = in_three_zones(
        [*founders, *helpers], instance_types=types, pools=[a_nodepool(limits={"cpu": "6"})]
    )
    plan = first_plan(problem).plan()
    assert violations(problem, plan) == []
    assert sorted((len(c.pods), c.instance_types[0]) for c in plan.claims) == [(1, "t2"), (3, "t4")]


def test_soft_spread_balances_zones_but_makes_nobody_wait() -> None:
    """ScheduleAnyway: balanced while zones can be bought, and all in one when only one can."""
    soft = spread(when_unsatisfiable="ScheduleAnyway")
    assert sorted(domains(planned(in_three_zones(some_pods(6, labels=WEB, spec=soft)))).values()) == [2, 2, 2]
    pool = in_zone("zone-a")
    tied = planned(in_three_zones(some_pods(6, labels=WEB, spec=soft), pools=[pool]))
    assert domains(tied) == {"zone-a": 6}


def tiny(count: int) -> tuple[list[Pod], NodeView]:
    """Return pods that need nothing but their node, to make a batch large, and the node."""
    blue = {"example.com/team": "blue"}
    pods = some_pods(count, "tiny", cpu=None, memory=None, node_selector=blue)
    return pods, a_view("blue", labels=blue, allocatable={"pods": "1000"})


MANY = pytest.mark.parametrize("others", [0, 600], ids=["small batch", "large batch"])


@MANY
def test_a_domain_that_another_workload_has_filled_is_given_up(others: int) -> None:
    """Both are dealt to both zones, but one has room for one share only: the other goes elsewhere."""
    pools = [
        an_offer(
            a_nodepool("a", requirements=[(labels.ZONE, "In", ["zone-a"])]), TYPES, remaining={"cpu": "4"}
        ),
        an_offer(a_nodepool("b", requirements=[(labels.ZONE, "In", ["zone-b"])]), TYPES),
    ]
    web = app_pods(*(f"web{i}" for i in range(4)), cpu="1500m", spec=company_spread("web", max_skew=4))
    api = app_pods(*(f"api{i}" for i in range(4)), cpu="1500m", spec=company_spread("api", max_skew=4))
    more, node = tiny(others)
    plan = planned(in_three_zones([*web, *api, *more], pools=pools, nodes=[node]))
    assert plan.unschedulable == ()


@MANY
def test_large_and_small_pods_of_one_spread_find_each_the_room_there_is_for_them(others: int) -> None:
    """A zone with room for one large pod has room for a small one beside it."""
    pools = [
        an_offer(
            a_nodepool("a", requirements=[(labels.ZONE, "In", ["zone-a"])]), TYPES, remaining={"cpu": "4"}
        ),
        an_offer(a_nodepool("b", requirements=[(labels.ZONE, "In", ["zone-b"])]), TYPES),
    ]
    large = app_pods("web1", "web2", cpu="3", spec=company_spread("web"))
    small = app_pods("web3", "web4", cpu="100m", spec=company_spread("web"))
    more, node = tiny(others)
    plan = planned(in_three_zones([*large, *small, *more], pools=pools, nodes=[node]))
    assert plan.unschedulable == ()


@MANY
def test_a_domain_that_runs_full_sends_its_share_elsewhere(others: int) -> None:
    """The pool of one zone has a limit: what does not fit there goes where the skew allows."""
    pools = [
        an_offer(
            a_nodepool("a", requirements=[(labels.ZONE, "In", ["zone-a"])]), TYPES, remaining={"cpu": "4"}
        ),
        an_offer(a_nodepool("b", requirements=[(labels.ZONE, "In", ["zone-b"])]), TYPES),
    ]
    pods = some_pods(8, labels=WEB, cpu="1500m", spec=spread(2))
    more, node = tiny(others)
    plan = planned(in_three_zones([*pods, *more], pools=pools, nodes=[node]))
    assert domains(plan) == {"zone-a": 2, "zone-b": 4}
