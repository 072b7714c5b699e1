"""What pods would like: kept where possible, given up in a known order, ignored when that is the policy."""

import pytest

from karpenter.apis import labels
from karpenter.apis.core import (
    Affinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    Toleration,
    WeightedPodAffinityTerm,
)
from karpenter.model.problem import PlannedClaim, Problem
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.solver import first_plan
from karpenter.testing.builders import (
    Expression,
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    node_affinity,
    some_pods,
)
from karpenter.testing.company import a_company_term, a_spread, app_pods
from karpenter.testing.outcomes import domains, planned, refused, the_claim

ZONES = ["zone-a", "zone-b", "zone-c"]
TYPES = [
    an_instance_type(
        f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", zones=ZONES, capacity_types=["on-demand", "spot"]
    )
    for n in (2, 4, 8)
]
SOFT = Taint(key="soft", effect="PreferNoSchedule")


def in_(*zones: str) -> Expression:
    """Return the expression that asks for one of some zones."""
    return (labels.ZONE, "In", zones)


def wishing(
    required: list[list[Expression]] | None = None, preferred: dict[int, list[Expression]] | None = None
) -> Pod:
    """Return a pod with OR-terms and preferences by weight."""
    return a_pod(
        affinity=node_affinity(
            required=[a_term(*expressions) for expressions in required or []],
            preferred=[(weight, a_term(*expressions)) for weight, expressions in (preferred or {}).items()],
        )
    )


def in_three_zones(*pods: Pod, **fields: object) -> Problem:
    """Return a problem with types that three zones sell."""
    return a_problem(pods, **{"instance_types": TYPES, **fields})  # type: ignore[arg-type]


def zones_of(claim: PlannedClaim) -> list[str]:
    """Return the zones a claim may be launched in."""
    return [z for z in ZONES if claim.requirements.get(labels.ZONE).has(z)]


# --- node affinity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("required", "preferred", "zones"),
    [
        # Preferences alone
        ([], {1: [in_("zone-b")]}, ["zone-b"]),
        ([], {1: [in_("nowhere")]}, ZONES),
        ([], {1: [in_("zone-b")], 50: [in_("zone-c")]}, ["zone-c"]),
        ([], {50: [in_("zone-b")], 1: [in_("zone-c")]}, ["zone-b"]),
        ([], {1: [in_("zone-b")], 50: [in_("nowhere")], 70: [in_("nowhere-else")]}, ["zone-b"]),
        ([], {1: [(labels.ZONE, "NotIn", ["zone-a"])]}, ["zone-b", "zone-c"]),
        ([], {1: [(labels.ZONE, "NotIn", ZONES)]}, ZONES),
        ([], {1: [(labels.ZONE, "DoesNotExist", [])]}, ZONES),
        ([], {1: [("undefined", "Exists", [])]}, ZONES),
        # Requirements hold whatever is preferred
        ([[in_("zone-a", "zone-b")]], {1: [in_("zone-b")]}, ["zone-b"]),
        ([[in_("zone-a")]], {1: [in_("zone-b")]}, ["zone-a"]),
        ([[in_("zone-a")]], {1: [(labels.ZONE, "NotIn", ["zone-a"])]}, ["zone-a"]),
        ([[(labels.ZONE, "NotIn", ["zone-a"])]], {1: [in_("zone-a")]}, ["zone-b", "zone-c"]),
        # Alternatives: the first that can be had
        ([[in_("zone-c")], [in_("zone-a")]], {}, ["zone-c"]),
        ([[in_("nowhere")], [in_("zone-a")]], {}, ["zone-a"]),
        ([[in_("nowhere")], [in_("nowhere-else")], [in_("zone-b"), in_("zone-b", "zone-c")]], {}, ["zone-b"]),
        # A preference is given up rather than the first alternative, and met by a later one rather than not
        ([[in_("zone-a")], [in_("zone-b")]], {1: [in_("nowhere")]}, ["zone-a"]),
        ([[in_("zone-a")], [in_("zone-b")]], {1: [in_("zone-b")]}, ["zone-b"]),
        ([[in_("nowhere")], [in_("zone-b", "zone-c")]], {1: [in_("zone-c")]}, ["zone-c"]),
    ],
)
def test_the_best_that_can_be_had_of_terms_and_preferences(
    required: list[list[Expression]], preferred: dict[int, list[Expression]], zones: list[str]
) -> None:
    """The claim is for exactly the zones that the heaviest possible preference and a required term leave."""
    assert zones_of(the_claim(in_three_zones(wishing(required, preferred)))) == zones


@pytest.mark.parametrize(
    "required",
    [[[in_("nowhere")]], [[in_("nowhere")], [in_("nowhere-else")]], [[in_("zone-a"), in_("zone-b")]]],
)
def test_the_last_required_term_is_never_given_up(required: list[list[Expression]]) -> None:
    """A pod whose every alternative is impossible waits."""
    pod = wishing(required, {1: [in_("zone-a")]})
    assert refused(planned(in_three_zones(pod))) == ["pod"]


def test_two_preferences_for_the_same_place_are_both_kept() -> None:
    """The types of the heaviest preference are narrowed no further than it says."""
    pod = wishing(preferred={9: [(labels.CAPACITY_TYPE, "In", ["on-demand"])]})
    claim = the_claim(in_three_zones(pod))
    assert claim.requirements.single_value(labels.CAPACITY_TYPE) == "on-demand"
    assert zones_of(claim) == ZONES


def test_preferred_nodes_that_exist_are_used_others_before_buying() -> None:
    """A preference picks among nodes there are; if none has it, a new node that has it is bought."""
    nodes = [
        a_view("node-a", labels={labels.ZONE: "zone-a"}),
        a_view("node-b", labels={labels.ZONE: "zone-b"}),
    ]
    there = planned(in_three_zones(wishing(preferred={1: [in_("zone-b")]}), nodes=nodes))
    assert list(there.placements) == ["node-b"]
    impossible = planned(in_three_zones(wishing(preferred={1: [in_("nowhere")]}), nodes=nodes))
    assert list(impossible.placements) == ["node-a"]


def test_preferences_do_not_leave_pods_behind_when_capacity_for_them_ends() -> None:
    """The preferred pool's limit is used up: the others go without their preference."""
    pools = [
        a_nodepool("gold", labels={"tier": "gold"}, limits={"cpu": "2"}),
        a_nodepool("silver", labels={"tier": "silver"}),
    ]
    pods = some_pods(4, affinity=node_affinity(preferred=[(1, a_term(("tier", "In", ["gold"])))]))
    plan = planned(a_problem(pods, pools=pools, instance_types=TYPES))
    assert plan.unschedulable == ()
    assert {c.pool.name: len(c.pods) for c in plan.claims}["gold"] == 2


# --- PreferNoSchedule --------------------------------------------------------------------------------------


def test_prefer_no_schedule_is_tolerated_only_when_no_pool_is_without() -> None:
    """A pool that is better avoided is used when nothing else takes the pod, and only by that pod."""
    soft = a_nodepool("soft", weight=100, taints=[SOFT], requirements=[in_("zone-a")])
    plain = a_nodepool("plain", requirements=[in_("zone-b")])
    pods = [a_pod("free"), a_pod("tied", node_selector={labels.ZONE: "zone-a"})]
    plan = planned(in_three_zones(*pods, pools=[soft, plain]))
    assert {c.pods: c.pool.name for c in plan.claims} == {
        ("default/free",): "plain",
        ("default/tied",): "soft",
    }


def test_affinity_is_relaxed_before_prefer_no_schedule_is_tolerated() -> None:
    """Only the tainted pool has the preferred zone: the pod goes without its zone, not into the taint."""
    soft = a_nodepool("soft", taints=[SOFT], requirements=[in_("zone-a")])
    plain = a_nodepool("plain", requirements=[in_("zone-b")])
    pod = wishing(preferred={1: [in_("zone-a")]})
    plan = planned(in_three_zones(pod, pools=[soft, plain]))
    assert [c.pool.name for c in plan.claims] == ["plain"]


def test_an_or_term_is_given_up_before_prefer_no_schedule_is_tolerated() -> None:
    """The first alternative needs the tainted pool, the second does not."""
    soft = a_nodepool("soft", weight=9, taints=[SOFT], requirements=[in_("zone-a")])
    plain = a_nodepool("plain", requirements=[in_("zone-b")])
    pod = wishing([[in_("zone-a")], [in_("zone-b")]])
    plan = planned(in_three_zones(pod, pools=[soft, plain]))
    assert [c.pool.name for c in plan.claims] == ["plain"]


def test_a_pod_that_tolerates_the_soft_taint_uses_the_heavier_pool() -> None:
    """A toleration makes the pool as good as any other."""
    pools = [a_nodepool("soft", weight=9, taints=[SOFT]), a_nodepool("plain")]
    pod = a_pod(tolerations=[Toleration(key="soft", operator="Exists")])
    assert the_claim(a_problem([pod], pools=pools)).pool.name == "soft"


def test_nodes_with_a_soft_taint_are_used_before_money_is_spent_only_if_nothing_is_bought_without() -> None:
    """An existing node one should avoid is avoided by buying, and used when nothing can be bought."""
    node = a_view("soft", taints=[SOFT])
    assert not planned(a_problem([a_pod()], nodes=[node])).placements
    assert list(planned(a_problem([a_pod()], nodes=[node], pools=[])).placements) == ["soft"]


@pytest.mark.parametrize("respect", [True, False])
def test_hard_taints_are_never_relaxed(respect: bool) -> None:
    """NoSchedule and NoExecute keep pods out under either policy."""
    for effect in ("NoSchedule", "NoExecute"):
        pool = a_nodepool(taints=[Taint(key="hard", effect=effect)])
        assert refused(planned(a_problem([a_pod()], pools=[pool], respect_preferences=respect))) == ["pod"]


# --- policy Ignore -----------------------------------------------------------------------------------------


def test_ignored_preferences_leave_the_claim_open() -> None:
    """With --preference-policy=Ignore a preference for a zone is as good as none."""
    pod = wishing(preferred={1: [in_("zone-b")]})
    assert zones_of(the_claim(in_three_zones(pod, respect_preferences=False))) == ZONES


def test_required_terms_hold_under_either_policy() -> None:
    """Ignoring preferences ignores nothing else: alternatives are still tried in order."""
    pod = wishing([[in_("nowhere")], [in_("zone-b")]], {1: [in_("zone-c")]})
    assert zones_of(the_claim(in_three_zones(pod, respect_preferences=False))) == ["zone-b"]


def preferring(term: PodAffinityTerm, *, company: bool) -> Affinity:
    """Return a preferred pod affinity (`company`) or anti-affinity."""
    side = PodAffinity(preferred=[WeightedPodAffinityTerm(weight=10, pod_affinity_term=term)])
    return Affinity(pod_affinity=side) if company else Affinity(pod_anti_affinity=side)


def test_preferred_anti_affinity_takes_another_zone_unless_ignored() -> None:
    """Three small pods that would rather be apart get three zones, or share a node under Ignore."""
    pods = app_pods("web1", "web2", "web3", affinity=preferring(a_company_term("web"), company=False))
    assert domains(planned(in_three_zones(*pods))) == dict.fromkeys(ZONES, 1)
    assert len(planned(in_three_zones(*pods, respect_preferences=False)).claims) == 1


def test_preferred_host_anti_affinity_uses_the_nodes_there_are() -> None:
    """Pods that would rather not share a node are spread over the nodes there are; none is bought for it."""
    wish = preferring(a_company_term("web", labels.KUBERNETES_HOSTNAME), company=False)
    pods = app_pods("web1", "web2", "web3", affinity=wish)
    nodes = [a_view("node-a"), a_view("node-b")]
    plan = planned(in_three_zones(*pods, nodes=nodes))
    assert sorted(len(keys) for keys in plan.placements.values()) == [1, 2]
    assert plan.claims == ()
    ignored = planned(in_three_zones(*pods, nodes=nodes, respect_preferences=False))
    assert list(ignored.placements) == ["node-a"]


def on_host(app: str, *, company: bool = True) -> Affinity:
    """Return the wish to share a node with pods of the app, or not to."""
    return preferring(a_company_term(app, labels.KUBERNETES_HOSTNAME), company=company)


def two_nodes(*running: Pod, cpu: str = "4") -> list[NodeView]:
    """Return an empty node-a, and a node-b on which some pods run."""
    size = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    return [a_view("node-a", allocatable=size), a_view("node-b", allocatable=size, pods=running)]


def test_preferred_host_affinity_joins_the_node_of_those_that_run_unless_ignored() -> None:
    """A follower would like the node of the app it talks to, as long as it has room; then any will do."""
    nodes = two_nodes(*app_pods("db", node_name="node-b"))
    pods = app_pods("web1", "web2", affinity=on_host("db"))
    assert planned(in_three_zones(*pods, nodes=nodes)).placements == {
        "node-b": ("default/web1", "default/web2")
    }
    ignored = planned(in_three_zones(*pods, nodes=nodes, respect_preferences=False))
    assert list(ignored.placements) == ["node-a"]
    many = app_pods(*(f"web{i}" for i in range(5)), cpu="1", affinity=on_host("db"))
    plan = planned(in_three_zones(*many, nodes=nodes))
    assert {name: len(keys) for name, keys in plan.placements.items()} == {"node-a": 2, "node-b": 3}


def test_preferred_host_affinity_among_themselves_fills_the_roomiest_node() -> None:
    """Pods that would like to share a node go where all of them can."""
    there = app_pods("other1", "other2", node_name="node-a")
    size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    nodes = [a_view("node-a", allocatable=size, pods=there), a_view("node-b", allocatable=size)]
    pods = app_pods("web1", "web2", "web3", affinity=on_host("web"))
    assert list(planned(in_three_zones(*pods, nodes=nodes)).placements) == ["node-b"]


def test_preferred_host_affinity_chooses_among_planned_nodes_and_buys_none() -> None:
    """Of the nodes that are bought anyway, pods take those of the pods they would like to be with."""
    db = app_pods("db", cpu="1500m", node_selector={labels.ZONE: "zone-b"})
    cache = app_pods("cache", cpu="1500m", node_selector={labels.ZONE: "zone-a"})
    web = app_pods("web", cpu="400m", memory="1Gi", affinity=on_host("db"))
    plan = planned(in_three_zones(*db, *cache, *web))
    assert sorted(claim.pods for claim in plan.claims) == [("default/cache",), ("default/db", "default/web")]


def test_wishes_about_company_are_given_up_one_kind_after_the_other() -> None:
    """Pods that would like a node of db's but none of their own kind still avoid their own kind then."""
    wish = Affinity(
        pod_affinity=on_host("db").pod_affinity,
        pod_anti_affinity=on_host("web", company=False).pod_anti_affinity,
    )
    nodes = two_nodes(*app_pods("db", node_name="node-b"))
    pods = app_pods("web1", "web2", affinity=wish)
    plan = planned(in_three_zones(*pods, nodes=nodes))
    assert {name: len(keys) for name, keys in plan.placements.items()} == {"node-a": 1, "node-b": 1}


@pytest.mark.parametrize("zone", ZONES)
def test_preferred_affinity_joins_the_zone_of_those_that_run_unless_ignored(zone: str) -> None:
    """A follower would like the zone of the app it talks to; under Ignore any zone will do."""
    full = {"cpu": "100m", "memory": "64Mi", "pods": "1"}
    node = a_view("node", labels={labels.ZONE: zone}, allocatable=full, pods=app_pods("db", node_name="node"))
    pods = app_pods("web", affinity=preferring(a_company_term("db"), company=True))
    assert domains(planned(in_three_zones(*pods, nodes=[node]))) == {zone: 1}
    ignored = planned(in_three_zones(*pods, nodes=[node], respect_preferences=False))
    assert domains(ignored) == {"": 1}


def test_preferred_affinity_among_themselves_keeps_pods_in_one_zone() -> None:
    """Pods that would like to be together are, whatever the number of nodes it takes."""
    wish = preferring(a_company_term("web"), company=True)
    pods = app_pods(*(f"web{i}" for i in range(9)), cpu="3", affinity=wish)
    assert list(domains(planned(in_three_zones(*pods))).values()) == [9]


def test_schedule_anyway_spreads_unless_ignored() -> None:
    """A soft spread balances zones; under Ignore one node is enough."""
    spec = {"topology_spread_constraints": [a_spread("web", when_unsatisfiable="ScheduleAnyway")]}
    pods = app_pods("web1", "web2", "web3", spec=spec)
    assert domains(planned(in_three_zones(*pods))) == dict.fromkeys(ZONES, 1)
    assert len(planned(in_three_zones(*pods, respect_preferences=False)).claims) == 1


def roomy(zone: str, *pods: Pod) -> NodeView:
    """Return a node with room in a zone."""
    return a_view(f"node-{zone[-1]}", labels={labels.ZONE: zone}, pods=pods)


def test_preferences_about_zones_choose_among_the_nodes_there_are() -> None:
    """With room in every zone, wishes decide where; with room in one, all pods go there rather than wait."""
    softly = {"topology_spread_constraints": [a_spread("web", when_unsatisfiable="ScheduleAnyway")]}
    pods = app_pods("web1", "web2", "web3", spec=softly)
    problem = in_three_zones(*pods, nodes=[roomy(zone) for zone in ZONES])
    assert domains(planned(problem), problem) == dict.fromkeys(ZONES, 1)
    problem = in_three_zones(*pods, nodes=[roomy("zone-b")])
    assert domains(planned(problem), problem) == {"zone-b": 3}


@pytest.mark.parametrize(("company", "zones"), [(True, ["zone-c"]), (False, ["zone-a"])])
def test_preferred_company_chooses_among_the_nodes_there_are(company: bool, zones: list[str]) -> None:
    """The pod it would like to be near, or away from, runs in zone c; all zones have room."""
    db = app_pods("db", node_name="node-c")
    nodes = [roomy(zone, *(db if zone == "zone-c" else [])) for zone in ZONES]
    pods = app_pods("web1", "web2", affinity=preferring(a_company_term("db"), company=company))
    problem = in_three_zones(*pods, nodes=nodes)
    assert list(domains(planned(problem), problem)) == zones


@pytest.mark.parametrize(
    ("nodes", "mixed", "pools"), [("1", True, ["dear", "plain"]), ("2", False, ["dear"] * 2)]
)
def test_who_got_what_it_wished_keeps_it_when_the_others_cannot(
    nodes: str, mixed: bool, pools: list[str]
) -> None:
    """One of two equal pods fits into the pool they prefer: a search must not take them for one another."""
    wish = node_affinity(preferred=[(1, a_term((labels.NODEPOOL, "In", ["dear"])))])
    types = [an_instance_type("only", cpu="2", memory="8Gi")]
    offers = [a_nodepool("dear", limits={"nodes": nodes}), a_nodepool("plain")]
    problem = a_problem(some_pods(2, cpu="1500m", affinity=wish), pools=offers, instance_types=types)
    assert sorted(claim.pool.name for claim in planned(problem).claims) == pools
    assert [ask.mixed for ask in first_plan(problem).asks] == [mixed]
