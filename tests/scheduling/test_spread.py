"""Topology spread: pods counted by domain, over any label, by kube-scheduler's rules."""

from collections.abc import Iterable, Mapping

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Pod, Taint, Toleration
from karpenter.apis.karpenter import NodePool
from karpenter.apis.meta import LabelSelector, SelectorRequirement
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    node_affinity,
)
from karpenter.testing.company import Spec, a_spread, apart, app_pods, spread
from karpenter.testing.outcomes import domains, places, planned, refusals, refused, the_claim, together

ZONES = ["zone-a", "zone-b", "zone-c"]
RACK = "example.com/rack"
HOST = labels.KUBERNETES_HOSTNAME
TYPES = [
    an_instance_type(
        f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", zones=ZONES, capacity_types=["on-demand", "spot"]
    )
    for n in (2, 4, 8)
]
SOFTLY = "ScheduleAnyway"
DEDICATED = Taint(key="dedicated", effect="NoSchedule")
FULL = {"cpu": "0", "memory": "0", "pods": "0"}
ROOMY = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def web(count: int, spec: Spec | None = None, **fields: object) -> list[Pod]:
    """Return some small pods of the app web, spread over zones unless `spec` says otherwise."""
    names = (f"web{i}" for i in range(count))
    return app_pods(*names, spec=spread() if spec is None else spec, **fields)


def running(count: int, node: str, **fields: object) -> list[Pod]:
    """Return pods of the app web that run on a node and need nothing of it."""
    defaults: dict[str, object] = {"labels": {"app": "web"}, "cpu": None, "memory": None, "node_name": node}
    return [a_pod(f"{node}-{i}", **{**defaults, **fields}) for i in range(count)]  # type: ignore[arg-type]


def zoned(
    zone: str,
    count: int = 0,
    *,
    own: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    size: Mapping[str, str] = FULL,
    pods: Iterable[Pod] | None = None,
) -> NodeView:
    """Return a full node in a zone, with `count` web pods."""
    name = f"in-{zone}"
    inside = running(count, name) if pods is None else pods
    return a_view(
        name, labels={labels.ZONE: zone, **(own or {})}, taints=taints, pods=inside, allocatable=size
    )


def in_zones(*zones: str, name: str = "default", **fields: object) -> NodePool:
    """Return a pool restricted to some zones."""
    return a_nodepool(name, requirements=[(labels.ZONE, "In", zones)], **fields)  # type: ignore[arg-type]


def over_three(pods: Iterable[Pod], **fields: object) -> Problem:
    """Return a problem with types sold in three zones, spot and on-demand."""
    return a_problem(pods, **{"instance_types": TYPES, **fields})  # type: ignore[arg-type]


def zones(**counts: int) -> dict[str, int]:
    """Return counts by zone: `zones(a=2)` is `{"zone-a": 2}`."""
    return {f"zone-{name}": count for name, count in counts.items()}


# --- zones -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "max_skew", "sold", "expected"),
    [
        (1, 1, 3, [1]),
        (2, 1, 3, [1, 1]),
        (4, 1, 3, [1, 1, 2]),
        (6, 1, 3, [2, 2, 2]),
        (6, 1, 2, [3, 3]),
        (6, 1, 1, [6]),
        (3, 5, 1, [3]),
        (9, 3, 3, [3, 3, 3]),
    ],
)
def test_pods_are_balanced_over_the_zones_that_can_be_bought(
    count: int, max_skew: int, sold: int, expected: list[int]
) -> None:
    """Only zones that the pool allows take part."""
    plan = planned(over_three(web(count, spread(max_skew=max_skew)), pools=[in_zones(*ZONES[:sold])]))
    assert sorted(domains(plan).values()) == expected


@pytest.mark.parametrize(
    ("by", "pool"),
    [
        ("requirement", in_zones("zone-a", "zone-b")),
        ("exclusion", a_nodepool(requirements=[(labels.ZONE, "NotIn", ["zone-c"])])),
    ],
)
def test_zones_that_the_pool_rules_out_do_not_attract(by: str, pool: NodePool) -> None:
    """Neither do they count as empty: two zones take all pods."""
    assert domains(planned(over_three(web(6), pools=[pool]))) == zones(a=3, b=3)


def test_a_zone_fixed_by_the_pools_label_is_the_only_domain() -> None:
    """A label of the template limits the domains as a requirement does."""
    pool = a_nodepool(labels={labels.ZONE: "zone-b"})
    assert domains(planned(over_three(web(4), pools=[pool]))) == zones(b=4)


def test_zones_of_several_pools_are_domains_together() -> None:
    """Each pool sells one zone: all of them are used, whatever the weights."""
    pools = [in_zones(zone, name=zone, weight=weight) for zone, weight in zip(ZONES, (90, 1, 1), strict=True)]
    assert domains(planned(over_three(web(6), pools=pools))) == zones(a=2, b=2, c=2)


@pytest.mark.parametrize(
    ("present", "count", "expected"),
    [
        (zones(a=1), 2, zones(b=1, c=1)),
        (zones(a=2), 4, zones(b=2, c=2)),
        (zones(a=1, b=1), 1, zones(c=1)),
        (zones(a=5), 3, zones(b=2, c=1)),
        (zones(a=1, b=1, c=1), 3, zones(a=1, b=1, c=1)),
        (zones(a=3, b=1, c=0), 1, zones(c=1)),
        (zones(a=3, b=1, c=0), 2, zones(b=1, c=1)),
    ],
)
def test_running_pods_count(present: dict[str, int], count: int, expected: dict[str, int]) -> None:
    """Skew is measured with them; where it is violated already, only the emptiest zones take more."""
    nodes = [zoned(zone, n) for zone, n in present.items()]
    assert domains(planned(over_three(web(count), nodes=nodes))) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {"app": "db"}},
        {"labels": {}},
        {"namespace": "other"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"deleted": "2026-01-01T00:00:00Z"},
    ],
    ids=["other-app", "no-label", "other-namespace", "succeeded", "failed", "terminating"],
)
def test_pods_that_are_not_meant_or_not_running_do_not_count(fields: dict[str, object]) -> None:
    """One zone holds five pods that the constraint does not count: it is as empty as the others."""
    node = zoned("zone-a", pods=running(5, "in-zone-a", **fields))
    assert domains(planned(over_three(web(3), nodes=[node]))) == zones(a=1, b=1, c=1)


def test_pods_on_nodes_without_the_label_do_not_count() -> None:
    """A node outside all zones is no domain, whatever runs there."""
    node = a_view("nowhere", pods=running(4, "nowhere"), allocatable=FULL)
    assert domains(planned(over_three(web(3), nodes=[node]))) == zones(a=1, b=1, c=1)


def test_pods_that_are_placed_anew_do_not_count_where_they_were() -> None:
    """A node goes away: its pods are spread over the zones as if they were new."""
    pods = web(3, node_name="in-zone-a")
    going = a_view("in-zone-a", labels={labels.ZONE: "zone-a"}, pods=pods, marked_for_deletion=True)
    assert domains(planned(over_three(pods, nodes=[going]))) == zones(a=1, b=1, c=1)


def test_a_domain_known_from_a_node_only_counts_as_empty() -> None:
    """No pool sells a node's zone, nobody runs there and it is full: it holds the others to the skew."""
    plan = planned(over_three(web(4), nodes=[zoned("zone-x")], pools=[in_zones("zone-a", "zone-b")]))
    assert domains(plan) == zones(a=1, b=1)
    assert len(refused(plan)) == 2


@pytest.mark.parametrize(("counts", "placed"), [((0, 5), 1), ((5, 0), 1), ((2, 5), 3), ((5, 5), 5)])
def test_the_emptiest_domain_counts_also_where_nothing_can_be_had(
    counts: tuple[int, int], placed: int
) -> None:
    """Two zones have full nodes only: the lower of their counts limits the zone that can be bought in."""
    nodes = [zoned("zone-b", counts[0]), zoned("zone-c", counts[1])]
    plan = planned(over_three(web(5), pools=[in_zones("zone-a")], nodes=nodes))
    assert sum(domains(plan).values()) == placed


def test_a_refusal_shows_domains_out_of_reach_too() -> None:
    """The zone that can be bought in is one ahead of a zone that has only full nodes: both are named."""
    nodes = [zoned("zone-a", 1), zoned("zone-b")]
    plan = planned(over_three(web(1), pools=[in_zones("zone-a")], nodes=nodes))
    (refusal,) = refusals(plan, "web0")
    assert refusal.constraint == "topologySpread"
    assert "(counts = zone-a: 1, zone-b: 0)" in refusal.message


def test_existing_nodes_take_their_share() -> None:
    """A node with room in one zone is used for that zone, and for no more than its share."""
    problem = over_three(web(3), nodes=[zoned("zone-b", size=ROOMY)])
    plan = planned(problem)
    assert domains(plan, problem) == zones(a=1, b=1, c=1)
    assert len(plan.placements["in-zone-b"]) == 1


@pytest.mark.parametrize(("max_skew", "count", "on_node"), [(5, 3, 3), (2, 3, 2), (1, 3, 1), (2, 9, 4)])
def test_nodes_with_room_come_before_an_even_spread(max_skew: int, count: int, on_node: int) -> None:
    """As far as the skew lets them: nothing is bought for the sake of balance alone."""
    node = zoned("zone-a", size=ROOMY)
    plan = planned(over_three(web(count, spread(max_skew=max_skew)), nodes=[node]))
    assert len(plan.placements[node.name]) == on_node


def test_pods_that_others_count_fill_the_nodes_there_are() -> None:
    """They need not be even themselves."""
    node = zoned("zone-a", size=ROOMY)
    others = app_pods("counted", labels={"app": "web"})
    plan = planned(over_three([*web(3), *others], nodes=[node]))
    assert "default/counted" in plan.placements[node.name]


@pytest.mark.parametrize(
    ("minimum", "placed"),
    [(1, 9), (2, 9), (3, 9), (4, 3), (10, 3)],
    ids=["one", "fewer", "as-many", "more", "many-more"],
)
def test_min_domains(minimum: int, placed: int) -> None:
    """Fewer domains than demanded: the least count is taken as zero, so each holds maxSkew pods."""
    plan = planned(over_three(web(9, spread(min_domains=minimum))))
    assert sum(domains(plan).values()) == placed
    assert {r.constraint for u in plan.unschedulable for r in u.refusals} <= {"topologySpread"}


def test_as_many_domains_as_demanded_are_not_too_few() -> None:
    """With one pod in each of three zones and minDomains 3 a second is within the skew; others bar it."""
    nodes = [
        zoned(zone, pods=[*running(1, f"in-{zone}"), *running(1, f"{zone}-db", labels={"app": "db"})])
        for zone in ZONES
    ]
    pod = app_pods("web9", spec={**spread(min_domains=3), **apart("db")})
    (refusal,) = refusals(planned(over_three(pod, nodes=nodes)), "web9")
    assert refusal.constraint == "podAntiAffinity"


def test_min_domains_with_a_larger_skew() -> None:
    """Each of too few domains holds maxSkew pods."""
    plan = planned(over_three(web(9, spread(max_skew=2, min_domains=4))))
    assert domains(plan) == zones(a=2, b=2, c=2)


def test_min_domains_counts_pods_that_run() -> None:
    """With too few domains a zone that holds a pod already takes none."""
    plan = planned(over_three(web(3, spread(min_domains=4)), nodes=[zoned("zone-a", 1)]))
    assert domains(plan) == zones(b=1, c=1)


def test_min_domains_of_two_workloads_that_count_the_same_pods_are_their_own() -> None:
    """Two constraints differ in minDomains only: each keeps its own."""
    strict = app_pods("web1", "web2", "web3", "web4", spec=spread(min_domains=4))
    lax = app_pods("web5", "web6", "web7", spec=spread())
    plan = planned(over_three([*strict, *lax]))
    assert all(name in {"web1", "web2", "web3", "web4"} for name in refused(plan))
    assert refused(plan)


def test_the_zone_that_fits_is_found_whatever_is_emptier() -> None:
    """Three empty zones, only one sells a type large enough: the pod goes there at the first attempt."""
    types = [*TYPES, an_instance_type("huge", cpu="64", memory="256Gi", zones=["zone-c"])]
    assert domains(planned(over_three(web(1, cpu="32"), instance_types=types))) == zones(c=1)


def test_cheaper_zones_come_first_where_the_skew_leaves_a_choice() -> None:
    """One pod, three zones, one of them cheaper: it goes there."""
    prices = zip(ZONES, (1.0, 0.9, 1.1), strict=True)
    types = [an_instance_type(zone, price=price, zones=[zone]) for zone, price in prices]
    assert domains(planned(over_three(web(1), instance_types=types))) == zones(b=1)


# --- which nodes are domains -------------------------------------------------------------------------------


def test_a_pods_own_selection_limits_its_domains() -> None:
    """Pods that may use two zones only are balanced over these, and refused in no other's favour."""
    term = a_term((labels.ZONE, "In", ["zone-a", "zone-b"]))
    pods = web(4, affinity=node_affinity(required=[term]))
    assert domains(planned(over_three(pods))) == zones(a=2, b=2)
    chosen = web(4, node_selector={labels.ZONE: "zone-c"})
    assert domains(planned(over_three(chosen))) == zones(c=4)


def test_a_preference_does_not_limit_the_domains() -> None:
    """Pods that would like one zone are still spread over all."""
    pods = web(6, affinity=node_affinity(preferred=[(1, a_term((labels.ZONE, "In", ["zone-a"])))]))
    assert domains(planned(over_three(pods))) == zones(a=2, b=2, c=2)


@pytest.mark.parametrize(("policy", "placed"), [(None, 4), ("Honor", 4), ("Ignore", 2)])
def test_node_affinity_policy_decides_whether_excluded_zones_count(policy: str | None, placed: int) -> None:
    """Zone c has a node but is not for the pod: honoured it does not count, ignored it counts as empty."""
    term = a_term((labels.ZONE, "In", ["zone-a", "zone-b"]))
    pods = web(4, spread(node_affinity_policy=policy), affinity=node_affinity(required=[term]))
    plan = planned(over_three(pods, nodes=[zoned("zone-c")]))
    assert sum(domains(plan).values()) == placed


@pytest.mark.parametrize(
    ("policy", "placed"), [(None, 2), ("Ignore", 2), ("Honor", 4)], ids=["unset", "ignore", "honor"]
)
def test_node_taints_policy_decides_whether_tainted_zones_count(policy: str | None, placed: int) -> None:
    """Zone c has only a node that the pods don't tolerate: ignored taints make it an empty domain."""
    nodes = [zoned("zone-c", taints=[DEDICATED])]
    pods = web(4, spread(node_taints_policy=policy))
    plan = planned(over_three(pods, nodes=nodes, pools=[in_zones("zone-a", "zone-b")]))
    assert sum(domains(plan).values()) == placed


@pytest.mark.parametrize(
    ("policy", "expected"), [("Honor", zones(a=2, b=1, c=1)), ("Ignore", zones(b=2, c=2))]
)
def test_pods_on_tainted_nodes_count_by_node_taints_policy(policy: str, expected: dict[str, int]) -> None:
    """Two pods run on a node that newcomers don't tolerate; whether they count decides where two more go."""
    nodes = [zoned("zone-a", 2, taints=[DEDICATED])]
    pods = web(4, spread(node_taints_policy=policy))
    assert domains(planned(over_three(pods, nodes=nodes))) == expected


def test_pools_that_exclude_each_other_by_taint_share_a_domain() -> None:
    """Two tainted pools sell the same zones: pods of each are balanced over them on their own pool."""
    pools, pods = [], []
    for team in ("blue", "red"):
        taint = Taint(key="team", value=team, effect="NoSchedule")
        pools.append(in_zones("zone-a", "zone-b", name=team, taints=[taint]))
        tolerations = [Toleration(key="team", operator="Equal", value=team)]
        spec = spread(team, node_taints_policy="Honor")
        pods += app_pods(f"{team}1", f"{team}2", spec=spec, tolerations=tolerations)
    plan = planned(over_three(pods, pools=pools))
    assert refused(plan) == []
    assert domains(plan, prefix="blue") == domains(plan, prefix="red") == zones(a=1, b=1)


def test_a_zone_of_a_pool_the_pod_does_not_tolerate_attracts_nobody() -> None:
    """No node can be bought there for the pod, so it is not waited for."""
    pools = [in_zones("zone-a", "zone-b"), in_zones("zone-c", name="tainted", taints=[DEDICATED])]
    assert domains(planned(over_three(web(4), pools=pools))) == zones(a=2, b=2)


# --- other labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "max_skew", "nodes"), [(4, 1, 4), (4, 2, 2), (4, 4, 1), (5, 2, 3)])
def test_host_names(count: int, max_skew: int, nodes: int) -> None:
    """Every new node is an empty domain: each holds at most maxSkew of the pods."""
    plan = planned(over_three(web(count, spread(key=HOST, max_skew=max_skew))))
    assert refused(plan) == []
    assert len(together(plan)) == nodes
    assert max(len(names) for names in together(plan)) <= max_skew


def test_host_names_of_existing_nodes() -> None:
    """A node that holds a pod of the app takes no other at maxSkew 1; one that holds another app's does."""
    busy = zoned("zone-a", 1, size=ROOMY)
    free = zoned("zone-b", size=ROOMY, pods=running(1, "in-zone-b", labels={"app": "db"}))
    plan = planned(over_three(web(2, spread(key=HOST)), nodes=[busy, free]))
    assert len(plan.placements["in-zone-b"]) == 1
    assert "in-zone-a" not in plan.placements
    assert len(plan.claims) == 1


RED = {"example.com/team": "red"}


MANY = pytest.mark.parametrize("others", [0, 600], ids=["small batch", "large batch"])


def tiny(count: int) -> list[Pod]:
    """Return pods that stay on the full node, to make a batch large."""
    return [
        a_pod(f"tiny{i}", cpu=None, memory=None, node_selector={"example.com/team": "blue"})
        for i in range(count)
    ]


BLUE = a_view("blue", labels={"example.com/team": "blue"}, allocatable={"pods": "1000"})


@MANY
def test_pods_that_can_only_run_on_one_node_are_measured_by_that_node(others: int) -> None:
    """Nodes that they do not select are no domains of theirs: the one left takes all it has room for."""
    exactly = {"cpu": "300m", "memory": "1Gi", "pods": "110"}
    nodes = [zoned("zone-a", size=exactly, own=RED), BLUE]
    pods = [*web(4, spread(key=HOST), node_selector=RED), *tiny(others)]
    plan = planned(over_three(pods, nodes=nodes))
    assert len(plan.placements["in-zone-a"]) == 3
    assert len(refused(plan)) == 1


@MANY
def test_a_planned_node_is_one_more_to_measure_by(others: int) -> None:
    """With one node there and one that can be bought, each holds maxSkew pods; nobody is put on top."""
    pods = [*web(4, spread(key=HOST), node_selector=RED), *tiny(others)]
    pool = a_nodepool(limits={"nodes": "1"}, labels=RED)
    plan = planned(over_three(pods, nodes=[zoned("zone-a", size=ROOMY, own=RED), BLUE], pools=[pool]))
    assert len(plan.placements["in-zone-a"]) == len(plan.claims[0].pods) == 1
    assert len(refused(plan)) == 2


@MANY
def test_pods_that_a_spread_only_counts_are_not_left_out_because_nodes_are_bought_for_others(
    others: int,
) -> None:
    """The one node they select takes them beside the pod that counts them, whatever else is planned."""
    node = zoned("zone-a", size=ROOMY, own=RED)
    owner = web(1, spread(key=HOST), node_selector=RED)
    counted = app_pods("web8", "web9", node_selector=RED)
    elsewhere = app_pods("large", cpu="7", node_selector={labels.ZONE: "zone-b"})
    plan = planned(over_three([*owner, *counted, *elsewhere, *tiny(others)], nodes=[node, BLUE]))
    assert refused(plan) == []
    assert len(plan.placements["in-zone-a"]) == 3


def test_pods_that_a_spread_over_hosts_only_counts_leave_less_room() -> None:
    """A large pod that a spread counts and does not bind: with maxSkew 2 one more pod may share its node."""
    large = app_pods("web9", cpu="6")
    plan = planned(over_three([*large, *web(3, spread(key=HOST, max_skew=2))]))
    (claim,) = [c for c in plan.claims if "default/web9" in c.pods]
    assert len(claim.pods) == 2


def test_two_apps_spread_over_hosts_share_nodes() -> None:
    """One pod of each app per node: two nodes, not four."""
    pods = [
        *app_pods("web1", "web2", spec=spread(key=HOST)),
        *app_pods("db1", "db2", spec=spread("db", HOST)),
    ]
    plan = planned(over_three(pods))
    assert len(plan.claims) == 2


@pytest.mark.parametrize(("count", "expected"), [(4, [2, 2]), (5, [2, 3])])
def test_capacity_types(count: int, expected: list[int]) -> None:
    """Spot and on-demand are domains like any other."""
    plan = planned(over_three(web(count, spread(key=labels.CAPACITY_TYPE))))
    assert sorted(domains(plan, key=labels.CAPACITY_TYPE).values()) == expected


def test_capacity_types_the_pool_excludes_are_no_domains() -> None:
    """Only spot may be bought: everything is."""
    pool = a_nodepool(requirements=[(labels.CAPACITY_TYPE, "In", ["spot"])])
    plan = planned(over_three(web(4, spread(key=labels.CAPACITY_TYPE)), pools=[pool]))
    assert domains(plan, key=labels.CAPACITY_TYPE) == {"spot": 4}


def test_running_pods_count_by_capacity_type() -> None:
    """Two run on spot: two newcomers get on-demand."""
    node = zoned("zone-a", 2, own={labels.CAPACITY_TYPE: "spot"})
    plan = planned(over_three(web(2, spread(key=labels.CAPACITY_TYPE)), nodes=[node]))
    assert domains(plan, key=labels.CAPACITY_TYPE) == {"on-demand": 2}


def test_schedule_anyway_may_violate_the_skew() -> None:
    """Five run on spot, only spot can be bought: three more are."""
    node = zoned("zone-a", 5, own={labels.CAPACITY_TYPE: "spot"})
    other = a_view("other", labels={labels.CAPACITY_TYPE: "on-demand"}, allocatable=FULL)
    pool = a_nodepool(requirements=[(labels.CAPACITY_TYPE, "In", ["spot"])])
    soft = spread(key=labels.CAPACITY_TYPE, when_unsatisfiable=SOFTLY)
    plan = planned(over_three(web(3, soft), nodes=[node, other], pools=[pool]))
    assert domains(plan, key=labels.CAPACITY_TYPE) == {"spot": 3}
    hard = planned(over_three(web(3, spread(key=labels.CAPACITY_TYPE)), nodes=[node, other], pools=[pool]))
    assert len(refused(hard)) == 3


def test_architectures() -> None:
    """Types of two architectures: pods that run on both are balanced over them."""
    types = [an_instance_type("arm", arch="arm64", price=9), an_instance_type("intel")]
    plan = planned(over_three(web(4, spread(key=labels.ARCH)), instance_types=types))
    assert domains(plan, key=labels.ARCH) == {"amd64": 2, "arm64": 2}


def test_running_pods_count_by_architecture() -> None:
    """Two run on ARM: two newcomers go to the other."""
    types = [an_instance_type("arm", arch="arm64"), an_instance_type("intel")]
    node = zoned("zone-a", 2, own={labels.ARCH: "arm64"})
    plan = planned(over_three(web(2, spread(key=labels.ARCH)), nodes=[node], instance_types=types))
    assert domains(plan, key=labels.ARCH) == {"amd64": 2}


def test_labels_of_the_pools() -> None:
    """Racks that pools define, each its own or all in one: any label that can be given can be spread over."""
    each = [a_nodepool(rack, labels={RACK: rack}) for rack in ("r1", "r2")]
    one = [a_nodepool(requirements=[(RACK, "In", ["r1", "r2"])])]
    for pools in (each, one):
        plan = planned(over_three(web(4, spread(key=RACK)), pools=pools))
        assert domains(plan, key=RACK) == {"r1": 2, "r2": 2}


def test_a_label_without_domains_keeps_only_its_own_pods_waiting() -> None:
    """Nobody defines the topology key: those pods wait, others are placed."""
    plan = planned(over_three([*web(2, spread(key="unknown")), a_pod("fine")]))
    assert refused(plan) == ["web0", "web1"]
    assert "unknown" in refusals(plan, "web0")[0].message


def test_a_soft_spread_over_a_label_without_domains_stands_in_nobodys_way() -> None:
    """ScheduleAnyway over an unknown key is as good as none."""
    soft = spread(key="unknown", when_unsatisfiable=SOFTLY)
    assert refused(planned(over_three(web(2, soft)))) == []


def test_a_soft_spread_over_an_unknown_label_leaves_a_hard_one_its_effect() -> None:
    """Zones are balanced though nobody defines the label of the preference beside."""
    soft = a_spread("web", "unknown", when_unsatisfiable=SOFTLY)
    plan = planned(over_three(web(3, both(a_spread("web"), soft))))
    assert domains(plan) == zones(a=1, b=1, c=1)


# --- several constraints -----------------------------------------------------------------------------------


def both(*constraints: object) -> Spec:
    """Return the spec of pods with several spreads."""
    return {"topology_spread_constraints": list(constraints)}


def test_zone_and_host_together() -> None:
    """Each zone its share, and each node its own."""
    plan = planned(over_three(web(6, both(a_spread("web"), a_spread("web", HOST)))))
    assert domains(plan) == zones(a=2, b=2, c=2)
    assert [len(names) for names in together(plan)] == [1] * 6


def test_zone_and_capacity_type_together() -> None:
    """Balanced by zone and by capacity type at once."""
    plan = planned(over_three(web(6, both(a_spread("web"), a_spread("web", labels.CAPACITY_TYPE)))))
    assert domains(plan) == zones(a=2, b=2, c=2)
    assert domains(plan, key=labels.CAPACITY_TYPE) == {"on-demand": 3, "spot": 3}


def test_zone_capacity_type_and_host_together() -> None:
    """Three constraints at once hold for any number of pods."""
    spec = both(a_spread("web"), a_spread("web", labels.CAPACITY_TYPE), a_spread("web", HOST, 3))
    for count in (1, 5, 12):
        plan = planned(over_three(web(count, spec)))
        assert refused(plan) == []
        shares = domains(plan).values()
        assert max(shares) - min(shares) <= 1 or len(shares) < 3
        assert max(len(names) for names in together(plan)) <= 3


def test_a_hard_spread_beside_a_soft_one() -> None:
    """The hard one holds, the soft one yields: on-demand is not sold in two of the zones."""
    types = [
        an_instance_type("spot-only", zones=["zone-a", "zone-b"], capacity_types=["spot"]),
        an_instance_type("on-demand-only", zones=["zone-c"]),
    ]
    soft = a_spread("web", labels.CAPACITY_TYPE, when_unsatisfiable=SOFTLY)
    plan = planned(over_three(web(6, both(a_spread("web"), soft)), instance_types=types))
    assert domains(plan) == zones(a=2, b=2, c=2)


def test_constraints_of_two_apps_that_count_each_other() -> None:
    """Each counts the other's pods, too: the sum is balanced."""
    selector = LabelSelector(match_expressions=[SelectorRequirement(key="app", operator="Exists")])
    pods = app_pods("web1", "web2", "db1", "db2", "db3", "db4", spec=spread(label_selector=selector))
    assert domains(planned(over_three(pods))) == zones(a=2, b=2, c=2)


# --- whom a constraint counts ------------------------------------------------------------------------------


def test_a_constraint_that_does_not_count_its_own_pod_balances_others() -> None:
    """Web pods follow the spread of db pods that run: they may go wherever db is not in excess."""
    nodes = [zoned("zone-a", pods=running(2, "in-zone-a", labels={"app": "db"}))]
    plan = planned(over_three(web(3, spread("db")), nodes=nodes))
    assert refused(plan) == []
    assert "zone-a" not in domains(plan)


@pytest.mark.parametrize(
    ("expression", "counted"),
    [
        (SelectorRequirement(key="app", operator="In", values=["web", "db"]), True),
        (SelectorRequirement(key="app", operator="NotIn", values=["db"]), True),
        (SelectorRequirement(key="app", operator="Exists"), True),
        (SelectorRequirement(key="tier", operator="DoesNotExist"), True),
        (SelectorRequirement(key="app", operator="In", values=["db"]), False),
        (SelectorRequirement(key="app", operator="NotIn", values=["web"]), False),
        (SelectorRequirement(key="tier", operator="Exists"), False),
    ],
)
def test_selector_expressions_decide_who_counts(expression: SelectorRequirement, counted: bool) -> None:
    """Two web pods run in a zone; the constraint counts them, or does not."""
    selector = LabelSelector(match_expressions=[expression])
    plan = planned(over_three(web(2, spread(label_selector=selector)), nodes=[zoned("zone-a", 2)]))
    assert (domains(plan) == zones(b=1, c=1)) == counted


@pytest.mark.parametrize("selector", [None, LabelSelector(match_expressions=[])], ids=["nil", "empty"])
def test_a_nil_selector_counts_nobody_an_empty_one_everybody(selector: LabelSelector | None) -> None:
    """Without selector there is nothing to balance: pods share a node. `{}` counts all of the namespace."""
    problem = over_three(web(2, spread(label_selector=selector)), nodes=[zoned("zone-a", 3)])
    plan = planned(problem)
    assert refused(plan) == []
    if selector is None:
        assert len(together(plan)) == 1
    else:
        assert domains(plan) == zones(b=1, c=1)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [(["revision"], zones(a=1, b=1, c=1)), ([], zones(b=2, c=1)), (["absent"], zones(b=2, c=1))],
    ids=["narrowed", "not", "key-the-pod-lacks"],
)
def test_match_label_keys_count_one_revision(keys: list[str], expected: dict[str, int]) -> None:
    """The old revision fills a zone: with the key it does not count; a key that the pod lacks is ignored."""
    old = running(2, "in-zone-a", labels={"app": "web", "revision": "1"})
    pods = web(3, spread(match_label_keys=keys), labels={"app": "web", "revision": "2"})
    assert domains(planned(over_three(pods, nodes=[zoned("zone-a", pods=old)]))) == expected


def test_two_revisions_in_one_batch_are_spread_each_by_itself() -> None:
    """matchLabelKeys make two groups of one constraint."""
    pods = [
        pod
        for revision in ("1", "2")
        for pod in app_pods(
            *(f"r{revision}x{i}" for i in range(3)),
            labels={"app": "web", "revision": revision},
            spec=spread(match_label_keys=["revision"]),
        )
    ]
    plan = planned(over_three(pods))
    assert domains(plan, prefix="r1") == domains(plan, prefix="r2") == zones(a=1, b=1, c=1)


def test_a_pod_without_any_selection_of_domains_is_not_held_back() -> None:
    """Pods that spread nothing fill the cheapest node, whoever else is spread."""
    pods = [*web(3), *app_pods("db1", "db2")]
    plan = planned(over_three(pods))
    assert len(plan.claims) == 3
    assert places(plan)["db1"] in {places(plan)[f"web{i}"] for i in range(3)}


def test_a_spread_pod_fixes_the_zone_in_its_claim() -> None:
    """The claim of a spread pod allows the zone it was dealt to, and no other."""
    assert the_claim(over_three(web(1))).requirements.single_value(labels.ZONE) in ZONES
