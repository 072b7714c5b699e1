"""Pods that must, or would like to, be together or apart: over nodes, zones and any other label."""

from collections.abc import Iterable, Mapping

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Affinity, Pod, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from karpenter.apis.meta import LabelSelector
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_view,
    an_expression,
    an_instance_type,
    an_offer,
    some_pods,
)
from karpenter.testing.company import Spec, a_company_term, apart, app_pods, beside, of_app, spread
from karpenter.testing.outcomes import domains, places, planned, refusals, refused, together

ZONES = ["zone-a", "zone-b", "zone-c"]
HOST, ZONE = labels.KUBERNETES_HOSTNAME, labels.ZONE
RACK = "example.com/rack"
BOTH = ["on-demand", "spot"]
TYPES = [
    an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", zones=ZONES, capacity_types=BOTH)
    for n in (2, 4, 8)
]
FULL = {"cpu": "0", "memory": "0", "pods": "0"}
ROOMY = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def over_three(
    pods: Iterable[Pod], *, namespaces: Mapping[str, Mapping[str, str]] | None = None, **fields: object
) -> Problem:
    """Return a problem with types sold in three zones, and with namespaces and their labels."""
    problem = a_problem(pods, **{"instance_types": TYPES, **fields})  # type: ignore[arg-type]
    named = {name: dict(own) for name, own in (namespaces or {}).items()}
    return msgspec.structs.replace(
        problem, snapshot=msgspec.structs.replace(problem.snapshot, namespaces=named)
    )


def a_home(zone: str, *pods: Pod, size: Mapping[str, str] = FULL, **own: str) -> NodeView:
    """Return a node in a zone with pods on it; full unless it has a size."""
    name = f"in-{zone}"
    here = [msgspec.structs.replace(p, spec=msgspec.structs.replace(p.spec, node_name=name)) for p in pods]
    here = [
        msgspec.structs.replace(p, status=msgspec.structs.replace(p.status, phase="Running")) for p in here
    ]
    return a_view(name, labels={ZONE: zone, **own}, pods=here, allocatable=size)


def resting(*names: str, spec: Spec | None = None, **fields: object) -> list[Pod]:
    """Return pods for `a_home` that need nothing of their node."""
    return app_pods(*names, spec=spec, **{"cpu": None, "memory": None, **fields})


def wishing(
    *, near: PodAffinityTerm | None = None, far: PodAffinityTerm | None = None, weight: int = 50
) -> Affinity:
    """Return preferred affinity, anti-affinity, or both."""

    def side(term: PodAffinityTerm | None) -> PodAffinity | None:
        wish = [WeightedPodAffinityTerm(weight=weight, pod_affinity_term=term)] if term else []
        return PodAffinity(preferred=wish) if wish else None

    return Affinity(pod_affinity=side(near), pod_anti_affinity=side(far))


# --- nothing asked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "affinity",
    [
        Affinity(),
        Affinity(pod_affinity=PodAffinity(), pod_anti_affinity=PodAffinity()),
        Affinity(pod_affinity=PodAffinity(required=[])),
    ],
)
def test_empty_affinities_ask_for_nothing(affinity: Affinity) -> None:
    """Pods with empty sections share a node like any others."""
    assert together(planned(over_three(app_pods("a", "b", affinity=affinity)))) == [["a", "b"]]


# --- together ----------------------------------------------------------------------------------------------


def test_host_affinity_puts_a_pod_beside_the_one_it_needs() -> None:
    """The two share a node though each could have a cheaper one of its own."""
    pods = [
        *app_pods("db", cpu="1500m"),
        *app_pods("web", cpu="1500m", spec=beside("db", HOST)),
        *app_pods("other", cpu="1500m"),
    ]
    plan = planned(over_three(pods))
    assert places(plan)["web"] == places(plan)["db"]


@pytest.mark.rescued
@pytest.mark.parametrize("fillers", [1, 3])
def test_followers_come_before_those_who_could_go_anywhere(fillers: int) -> None:
    """With room for two on a node, the pod that must be beside another shares its node; no filler does."""
    pods = [
        *app_pods("db", cpu="900m"),
        *app_pods(*(f"any{i}" for i in range(fillers)), cpu="900m"),
        *app_pods("web", cpu="800m", spec=beside("db", HOST)),
    ]
    plan = planned(over_three(pods, instance_types=TYPES[:1]))
    assert refused(plan) == []
    assert ["db", "web"] in together(plan)


def test_host_affinity_to_a_running_pod_uses_its_node() -> None:
    """The pod goes where the other runs, not to an emptier node, and not to a new one."""
    nodes = [a_view("a-empty"), a_home("zone-a", *resting("db"), size=ROOMY)]
    plan = planned(over_three(app_pods("web", spec=beside("db", HOST)), nodes=nodes))
    assert places(plan) == {"web": "in-zone-a"}


def test_host_affinity_to_a_running_pod_on_a_full_node_waits() -> None:
    """No node that can be bought has the pod it needs."""
    plan = planned(
        over_three(app_pods("web", spec=beside("db", HOST)), nodes=[a_home("zone-a", *resting("db"))])
    )
    assert [r.constraint for r in refusals(plan, "web")] == ["podAffinity"]


@pytest.mark.parametrize("key", [ZONE, labels.CAPACITY_TYPE, labels.ARCH, labels.NODEPOOL, HOST])
def test_pods_that_need_each_other_share_one_domain(key: str) -> None:
    """Affinity to one's own app: the first chooses a domain, the others follow."""
    pods = app_pods(*(f"web{i}" for i in range(5)), cpu="1", spec=beside("web", key))
    pools = [a_nodepool("one"), a_nodepool("two")]
    plan = planned(over_three(pods, pools=pools))
    assert refused(plan) == []
    if key == HOST:
        assert len(together(plan)) == 1
    elif key == labels.NODEPOOL:
        assert len({c.pool.name for c in plan.claims}) == 1
    elif key != labels.ARCH:
        assert list(domains(plan, key=key).values()) == [5]


def test_pods_that_need_each_other_on_a_node_fill_one_only() -> None:
    """Ten of three cores, eight cores at most: two run together, no second node is founded for the rest."""
    pods = app_pods(*(f"web{i}" for i in range(10)), cpu="3", spec=beside("web", HOST))
    plan = planned(over_three(pods))
    assert [len(c.pods) for c in plan.claims] == [2]
    assert {r.constraint for u in plan.unschedulable for r in u.refusals} == {"podAffinity"}


def test_a_group_is_founded_where_most_of_it_has_room() -> None:
    """Many of three cores: a new node holds one of them, the one that is there two."""
    node = a_view("there", allocatable={"cpu": "7", "memory": "16Gi", "pods": "9"})
    types = [an_instance_type("small", cpu="4", memory="16Gi")]
    pods = app_pods(*(f"web{i}" for i in range(70)), cpu="3", spec=beside("web", HOST))
    plan = planned(a_problem(pods, instance_types=types, nodes=[node]))
    assert (len(plan.claims), len(plan.placements["there"]), len(plan.unschedulable)) == (0, 2, 68)


def test_a_second_batch_does_not_found_a_second_node() -> None:
    """The first node is full and holds the group: newcomers wait."""
    node = a_home("zone-a", *resting("web0"))
    plan = planned(over_three(app_pods("web1", spec=beside("web", HOST)), nodes=[node]))
    assert refused(plan) == ["web1"]


def test_pods_that_need_each_other_use_a_node_with_room_for_all() -> None:
    """Self affinity over hosts: the group is founded on a node that is there, nothing is bought."""
    nodes = [a_home("zone-a", size={"cpu": "2", "memory": "8Gi", "pods": "9"}), a_home("zone-b", size=ROOMY)]
    pods = app_pods("web1", "web2", "web3", cpu="2", spec=beside("web", HOST))
    assert set(places(planned(over_three(pods, nodes=nodes))).values()) == {"in-zone-b"}


def test_pods_that_need_each_other_buy_a_node_rather_than_be_torn() -> None:
    """A node that is there has room for two of three, a new one for all: the new one it is."""
    nodes = [a_home("zone-a", size={"cpu": "4", "memory": "16Gi", "pods": "9"})]
    pods = app_pods("web1", "web2", "web3", cpu="2", spec=beside("web", HOST))
    plan = planned(over_three(pods, nodes=nodes))
    assert [len(c.pods) for c in plan.claims] == [3]


def test_pods_that_need_each_other_and_cannot_be_bought_for_use_a_node() -> None:
    """What nobody sells is on one node: as many of the group as fit are there."""
    nodes = [a_home("zone-a", size={"cpu": "4", "memory": "16Gi", "pods": "9"}, disk="fast")]
    spec = beside("web", HOST)
    pods = app_pods("web1", "web2", "web3", cpu="2", spec=spec, node_selector={"disk": "fast"})
    plan = planned(over_three(pods, nodes=nodes))
    assert len(places(plan)) == 2
    assert plan.claims == ()


def test_who_must_be_near_any_pod_follows_one_that_gets_a_new_node() -> None:
    """The only node with such a pod is full; another such pod is bought a node, with room for both."""
    nodes = [a_home("zone-a", *resting("db1"))]
    pods = app_pods("db2", "web", spec={}) + app_pods("db3", spec=beside("db", HOST))
    plan = planned(over_three(pods, nodes=nodes))
    assert refused(plan) == []
    assert places(plan)["db3"] == places(plan)["db2"]


def test_followers_do_not_stand_for_whom_they_follow() -> None:
    """One follows zones, the other nodes; the only pod of theirs that runs is in zone-b: both go there."""
    nodes = [a_home("zone-b", *resting("web0"))]
    pods = app_pods("web1", spec=beside("web")) + app_pods("web2", cpu="1500m", spec=beside("web", HOST))
    plan = planned(over_three(pods, nodes=nodes))
    assert refused(plan) == []
    assert domains(plan) == {"zone-b": 2}


def test_founders_may_be_limited_to_a_zone() -> None:
    """Self affinity over zones with a zone of one's own choice: that zone it is, for all."""
    pods = app_pods("web1", "web2", "web3", spec=beside("web"), node_selector={ZONE: "zone-c"})
    assert domains(planned(over_three(pods))) == {"zone-c": 3}


def test_a_group_joins_the_zone_where_its_first_pods_run() -> None:
    """Pods that attract their own app go where it runs, not where it is cheapest."""
    nodes = [a_home("zone-b", *resting("web0"))]
    assert domains(planned(over_three(app_pods("web1", "web2", spec=beside("web")), nodes=nodes))) == {
        "zone-b": 2
    }


def test_a_group_whose_zone_the_newcomer_excludes_makes_it_wait() -> None:
    """The group lives in zone b; a member that must be in zone a cannot start another."""
    nodes = [a_home("zone-b", *resting("web0"))]
    pod = app_pods("web1", spec=beside("web"), node_selector={ZONE: "zone-a"})
    assert refused(planned(over_three(pod, nodes=nodes))) == ["web1"]


@pytest.mark.parametrize("pinned", [True, False])
def test_zone_affinity_follows_its_target(pinned: bool) -> None:
    """Wherever the target is put, in a zone of its choice or any: all that need it are in that zone."""
    target = app_pods("db", node_selector={ZONE: "zone-b"} if pinned else None)
    pods = [*target, *app_pods(*(f"web{i}" for i in range(10)), cpu="1", spec=beside("db"))]
    plan = planned(over_three(pods))
    assert refused(plan) == []
    assert list(domains(plan).values()) == [11]
    assert not pinned or "zone-b" in domains(plan)


def test_affinity_to_a_pod_that_does_not_exist_waits() -> None:
    """Nothing that is bought would help."""
    plan = planned(over_three([*app_pods("web", spec=beside("db")), a_pod("fine")]))
    assert refused(plan) == ["web"]
    assert [r.constraint for r in refusals(plan, "web")] == ["podAffinity"]


def test_affinity_over_a_label_nobody_has_waits() -> None:
    """Without domains there is no place, even beside the target."""
    pods = [*app_pods("db"), *app_pods("web", spec=beside("db", "unknown"))]
    assert refused(planned(over_three(pods))) == ["web"]


def test_affinity_to_pods_on_nodes_without_the_label_waits() -> None:
    """The target runs outside all zones: no zone has it."""
    node = a_view("nowhere", pods=app_pods("db", node_name="nowhere"), allocatable={**FULL, "cpu": "1"})
    assert refused(planned(over_three(app_pods("web", spec=beside("db")), nodes=[node]))) == ["web"]


@pytest.mark.parametrize("others", [0, 600], ids=["small batch", "large batch"])
@pytest.mark.parametrize("key", [ZONE, HOST])
def test_a_chain_of_dependents_is_placed_in_one_go(key: str, others: int) -> None:
    """ui needs cache needs web needs db: all find each other, in whatever order they are named."""
    blue = {"example.com/team": "blue"}
    node = a_view("blue", labels=blue, allocatable={"pods": "1000"})
    tiny = some_pods(others, "tiny", cpu=None, memory=None, node_selector=blue)
    pods = [
        *app_pods("ui", spec=beside("cache", key)),
        *app_pods("cache", spec=beside("web", key)),
        *app_pods("web", spec=beside("db", key)),
        *app_pods("db"),
    ]
    plan = planned(over_three([*pods, *tiny], nodes=[node]))
    assert refused(plan) == []
    assert len(plan.claims) == 1 if key == HOST else list(domains(plan).values()) == [4]


def test_a_chain_with_a_missing_link_waits_from_there() -> None:
    """Nobody is called web: who needs it waits, and who needs those, too; the others run."""
    pods = [
        *app_pods("ui", spec=beside("cache")),
        *app_pods("cache", spec=beside("web")),
        *app_pods("db"),
    ]
    assert refused(planned(over_three(pods))) == ["cache", "ui"]


def test_pods_that_need_each_other_crosswise_wait() -> None:
    """a needs b and b needs a: neither can be first, as neither could be bound first."""
    pods = [*app_pods("a", spec=beside("b")), *app_pods("b", spec=beside("a"))]
    assert refused(planned(over_three(pods))) == ["a", "b"]


def test_two_affinities_are_met_by_pods_that_meet_both() -> None:
    """As kube-scheduler has it, a pod counts for a list of terms only when each term selects it."""
    web_and_data = {"app": "web", "role": "data"}
    nodes = [
        a_home("zone-a", *resting("one", labels={"app": "web"}), *resting("two", labels={"role": "data"})),
        a_home("zone-b", *resting("both", labels=web_and_data)),
    ]
    role = a_company_term("", label_selector=LabelSelector({"role": "data"}))
    terms = PodAffinity(required=[a_company_term("web"), role])
    pod = app_pods("newcomer", affinity=Affinity(pod_affinity=terms))
    assert domains(planned(over_three(pod, nodes=nodes))) == {"zone-b": 1}
    assert refused(planned(over_three(pod, nodes=nodes[:1]))) == ["newcomer"]


@pytest.mark.parametrize(("racks", "there"), [({RACK: "r1"}, True), ({}, False)])
def test_who_has_company_in_its_zone_only_founds_no_rack(racks: dict[str, str], there: bool) -> None:
    """With a pod that meets both terms, though on a node without racks, nobody is the first any more."""
    terms = [a_company_term("web", ZONE), a_company_term("web", RACK)]
    pods = app_pods("web", affinity=Affinity(pod_affinity=PodAffinity(required=terms)))
    home = a_home("zone-a", *resting("web0"), **racks)  # type: ignore[arg-type]
    plan = planned(over_three(pods, nodes=[home], pools=[a_nodepool(labels={RACK: "r1"})]))
    assert refused(plan) == ([] if there else ["web"])


def test_two_affinities_can_be_founded_by_one_who_meets_both() -> None:
    """Pods that each of their own terms selects start the group together, over a zone and a node."""
    terms = PodAffinity(required=[a_company_term("web"), a_company_term("web", HOST)])
    pods = app_pods("web1", "web2", affinity=Affinity(pod_affinity=terms))
    assert together(planned(over_three(pods))) == [["web1", "web2"]]


def test_members_of_two_pools_share_the_zone() -> None:
    """The domain is the zone, whichever pool the node comes from."""
    pools = [a_nodepool(name, labels={"team": name}) for name in ("blue", "red")]
    pods = [
        *app_pods("db", node_selector={"team": "blue"}),
        *app_pods("web", spec=beside("db"), node_selector={"team": "red"}),
    ]
    plan = planned(over_three(pods, pools=pools))
    assert list(domains(plan).values()) == [2]
    assert {c.pool.name for c in plan.claims} == {"blue", "red"}


# --- apart -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "placed"), [(2, 2), (3, 3), (4, 3)])
def test_pods_that_avoid_each_others_zone_get_one_each_in_one_batch(count: int, placed: int) -> None:
    """Nobody waits for a later batch to know its zone; only who finds none left waits."""
    plan = planned(over_three(app_pods(*(f"web{i}" for i in range(count)), spec=apart("web"))))
    assert list(domains(plan).values()) == [1] * placed
    assert len(refused(plan)) == count - placed


def test_zones_where_the_avoided_run_are_left_out() -> None:
    """Two zones have the app already, the third takes one newcomer."""
    nodes = [a_home("zone-a", *resting("web1")), a_home("zone-c", *resting("web2"))]
    plan = planned(over_three(app_pods("web3", "web4", spec=apart("web")), nodes=nodes))
    assert domains(plan) == {"zone-b": 1}
    assert [r.constraint for u in plan.unschedulable for r in u.refusals] == ["podAntiAffinity"]


@pytest.mark.parametrize("sizes", [("2", "100m"), ("100m", "2")], ids=["avoided-first", "avoider-first"])
def test_the_avoider_and_the_avoided_are_apart_whoever_is_larger(sizes: tuple[str, str]) -> None:
    """Large pods are placed first; the order must not matter."""
    pods = [
        *app_pods("web1", "web2", cpu=sizes[0]),
        *app_pods("shy", cpu=sizes[1], spec=apart("web")),
    ]
    plan = planned(over_three(pods))
    assert refused(plan) == []
    assert not set(domains(plan, prefix="web")) & set(domains(plan, prefix="shy"))
    assert "" not in domains(plan)


def test_pods_pinned_to_every_zone_leave_none_for_who_avoids_them() -> None:
    """A web pod in each zone: the shy one waits."""
    pods = app_pods("shy", spec=apart("web"))
    for i, zone in enumerate(ZONES):
        pods += app_pods(f"web{i}", cpu="1", node_selector={ZONE: zone})
    assert refused(planned(over_three(pods))) == ["shy"]


def test_an_avoider_that_runs_keeps_newcomers_out_of_its_zone() -> None:
    """Anti-affinity of a running pod binds pods that have none of their own."""
    nodes = [a_home("zone-a", *resting("shy", spec=apart("web")), size=ROOMY)]
    problem = over_three(app_pods("web1", "web2"), nodes=nodes)
    plan = planned(problem)
    assert refused(plan) == []
    assert plan.placements == {}
    assert all(not c.requirements.get(ZONE).has("zone-a") for c in plan.claims)


def test_avoiders_in_every_zone_keep_newcomers_waiting() -> None:
    """Three zones, an avoider in each: no zone is left for whom they avoid."""
    nodes = [a_home(zone, *resting(f"shy{i}", spec=apart("web"))) for i, zone in enumerate(ZONES)]
    assert refused(planned(over_three([*app_pods("web"), *app_pods("db")], nodes=nodes))) == ["web"]


def test_avoiders_of_the_batch_keep_others_out_of_every_zone_they_take() -> None:
    """One avoider pinned to each zone: whom they avoid finds none."""
    pods = app_pods("web")
    for i, zone in enumerate(ZONES):
        pods += app_pods(f"shy{i}", cpu="1", spec=apart("web"), node_selector={ZONE: zone})
    assert refused(planned(over_three(pods))) == ["web"]


def test_a_preference_to_be_apart_binds_nobody_else() -> None:
    """Preferred anti-affinity, of running pods or of the batch, may be violated by whom it means."""
    wish = wishing(far=a_company_term("web"))
    nodes = [a_home(zone, *resting(f"shy{i}", affinity=wish)) for i, zone in enumerate(ZONES)]
    assert refused(planned(over_three(app_pods("web1", "web2"), nodes=nodes))) == []
    batch = [*app_pods("shy1", "shy2", "shy3", affinity=wish), *app_pods("web1", "web2")]
    assert refused(planned(over_three(batch))) == []


def test_host_anti_affinity_separates_and_uses_nodes_there_are() -> None:
    """One pod of the app per node: existing nodes first, those that hold one already not at all."""
    nodes = [a_view("empty"), a_home("zone-a", *resting("web0"), size=ROOMY)]
    plan = planned(over_three(app_pods("web1", "web2", "web3", spec=apart("web", HOST)), nodes=nodes))
    assert [len(keys) for keys in together(plan)] == [1, 1, 1]
    assert list(plan.placements) == ["empty"]


def test_whoever_was_put_on_a_node_keeps_those_away_whom_it_avoids() -> None:
    """On nodes that are there and on new ones: a later pod that is meant finds another node."""
    db, small = app_pods("db", cpu="6", spec=apart("cache", HOST)), app_pods("cache")
    nodes = [a_home("zone-a", size=ROOMY), a_home("zone-b", size=ROOMY)]
    plan = planned(over_three([*db, *small], nodes=nodes))
    assert plan.placements == {"in-zone-a": ("default/db",), "in-zone-b": ("default/cache",)}
    late = app_pods("cache", node_selector={labels.ZONE: "zone-a"})
    plan = planned(over_three([*db, *late], nodes=nodes[:1]))
    assert sorted(together(plan)) == [["cache"], ["db"]]


def test_apps_that_avoid_each_other_get_nodes_of_their_own() -> None:
    """Two apps, each avoiding the other: each fills its node, none is shared."""
    pods = [
        *app_pods("web1", "web2", spec=apart("db", HOST)),
        *app_pods("db1", "db2", spec=apart("web", HOST)),
    ]
    assert together(planned(over_three(pods))) == [["db1", "db2"], ["web1", "web2"]]


@pytest.mark.parametrize(
    ("key", "values", "count"), [(labels.CAPACITY_TYPE, 2, 3), (labels.NODEPOOL, 2, 3), (RACK, 2, 2)]
)
def test_anti_affinity_over_other_labels(key: str, values: int, count: int) -> None:
    """Capacity types, pools, racks: at most one of the app in each."""
    pools = [a_nodepool(name, labels={RACK: name}) for name in ("r1", "r2")]
    plan = planned(
        over_three(app_pods(*(f"web{i}" for i in range(count)), spec=apart("web", key)), pools=pools)
    )
    assert len(plan.claims) == values
    assert len(refused(plan)) == count - values


@pytest.mark.parametrize("spec", [beside("db", "unknown"), apart("db", "unknown"), spread("db", "unknown")])
def test_constraints_over_a_label_nobody_has_do_not_hold_up_whom_they_select(spec: Spec) -> None:
    """Whatever becomes of their owner: the pods it means run where the label is missing."""
    pods = [*app_pods("web", spec=spec), *app_pods("db1", "db2"), a_pod("fine")]
    assert not set(refused(planned(over_three(pods)))) & {"db1", "db2", "fine"}


@pytest.mark.parametrize("spec", [apart("web", RACK), spread("web", RACK)], ids=["anti-affinity", "spread"])
def test_pods_that_are_meant_may_go_where_the_label_is_missing(spec: Spec) -> None:
    """Only one pool has racks and it is used up; web pods without constraints use the other."""
    pools = [a_nodepool("racks", labels={RACK: "r1"}, limits={"nodes": "1"}), a_nodepool("plain", weight=9)]
    pods = app_pods("web0", cpu="1", spec=spec, node_selector={RACK: "r1"})
    pods += app_pods("web1", "web2", "web3", cpu="7")
    plan = planned(over_three(pods, pools=pools))
    assert refused(plan) == []
    assert {c.pool.name for c in plan.claims} == {"racks", "plain"}


@pytest.mark.parametrize(
    ("spec", "there"),
    [
        pytest.param(apart("web", RACK), True, id="anti-affinity"),
        pytest.param(spread("web", RACK), False, id="spread"),
        pytest.param(spread("web", RACK, when_unsatisfiable="ScheduleAnyway"), True, id="preferred spread"),
        pytest.param(beside("web", RACK), False, id="affinity"),
    ],
)
def test_a_node_without_the_label_takes_whom_it_does_not_matter_to(spec: Spec, there: bool) -> None:
    """Nobody is near on such a node, so nobody is too near; it is no domain to be spread over."""
    plan = planned(over_three(app_pods("web", spec=spec), pools=[], nodes=[a_view("node")]))
    assert places(plan) == ({"web": "node"} if there else {})


@pytest.mark.parametrize(
    ("pod", "others", "constraint", "counts"),
    [
        pytest.param(
            apart("db"),
            [],
            "podAntiAffinity",
            "anti-affinity, key=topology.kubernetes.io/zone (counts = zone-a: 1, zone-b: 1, zone-c: 1)",
            id="those it avoids are everywhere",
        ),
        pytest.param(
            beside("cache"),
            [],
            "podAffinity",
            "affinity, key=topology.kubernetes.io/zone (counts = zone-a: 0, zone-b: 0, zone-c: 0)",
            id="those it needs are nowhere",
        ),
        pytest.param(
            spread("db", min_domains=4),
            ["db4"],
            "topologySpread",
            "spread, key=topology.kubernetes.io/zone (counts = zone-a: 1, zone-b: 1, zone-c: 1)",
            id="every domain is full",
        ),
    ],
)
def test_a_refusal_shows_the_counts_of_every_domain(
    pod: Spec, others: list[str], constraint: str, counts: str
) -> None:
    """Which rule it is, over which label, and how many of the pods in question are where."""
    nodes = [a_home(f"zone-{zone}", *resting(f"db{i}")) for i, zone in enumerate("abc", 1)]
    name = others[0] if others else "web"
    plan = planned(over_three(app_pods(name, spec=pod), nodes=nodes))
    (refusal,) = refusals(plan, name)
    assert refusal.constraint == constraint
    assert counts in refusal.message


def test_a_refusal_tells_of_those_who_keep_others_away() -> None:
    """Three that avoid web are planned into all three zones: web hears that it is unwelcome there."""
    guards = app_pods("db1", "db2", "db3", spec={**apart("web"), **spread("db")}, cpu="1")
    plan = planned(over_three([*guards, *app_pods("web")]))
    assert refused(plan) == ["web"]
    (refusal,) = refusals(plan, "web")
    assert refusal.constraint == "podAntiAffinity"


def test_affinity_and_anti_affinity_together() -> None:
    """Near db by zone, one per node: in db's zone, on nodes of their own."""
    affinity = Affinity(
        pod_affinity=PodAffinity(required=[a_company_term("db")]),
        pod_anti_affinity=PodAffinity(required=[a_company_term("web", HOST)]),
    )
    pods = [
        *app_pods("db", node_selector={ZONE: "zone-b"}),
        *app_pods("web1", "web2", "web3", affinity=affinity),
    ]
    plan = planned(over_three(pods))
    assert domains(plan) == {"zone-b": 4}
    assert max(sum(name.startswith("web") for name in names) for names in together(plan)) == 1


def test_anti_affinity_and_spread_together() -> None:
    """One per node and balanced by zone."""
    spec = {**spread("web"), **apart("web", HOST)}
    plan = planned(over_three(app_pods(*(f"web{i}" for i in range(6)), spec=spec)))
    assert domains(plan) == dict.fromkeys(ZONES, 2)
    assert len(plan.claims) == 6


# --- preferences -------------------------------------------------------------------------------------------


def test_a_preference_that_cannot_be_met_keeps_nobody_waiting() -> None:
    """Company that does not exist, or is everywhere: the pod runs all the same."""
    missing = app_pods("web1", affinity=wishing(near=a_company_term("nobody", HOST)))
    assert refused(planned(over_three(missing))) == []
    nodes = [a_home(zone, *resting(f"db{i}")) for i, zone in enumerate(ZONES)]
    avoiding = app_pods("web2", affinity=wishing(far=a_company_term("db")))
    assert refused(planned(over_three(avoiding, nodes=nodes))) == []


def test_a_required_term_beats_a_preferred_one() -> None:
    """Must be in zone b, would like db's zone, which is a: zone b."""
    pods = app_pods("web", node_selector={ZONE: "zone-b"}, affinity=wishing(near=a_company_term("db")))
    assert domains(planned(over_three(pods, nodes=[a_home("zone-a", *resting("db"))]))) == {"zone-b": 1}


def test_the_heavier_preference_wins() -> None:
    """Two wishes that exclude each other: the one with more weight is granted."""
    nodes = [a_home("zone-a", *resting("db")), a_home("zone-c", *resting("cache"))]
    for heavy, zone in (("db", "zone-a"), ("cache", "zone-c")):
        wishes = [
            WeightedPodAffinityTerm(weight=90 if app == heavy else 10, pod_affinity_term=a_company_term(app))
            for app in ("db", "cache")
        ]
        pods = app_pods("web", affinity=Affinity(pod_affinity=PodAffinity(preferred=wishes)))
        assert domains(planned(over_three(pods, nodes=nodes))) == {zone: 1}


# --- namespaces and selectors ------------------------------------------------------------------------------

SHOP, OTHER = "shop", "other"
SPACES = {"default": {"team": "web"}, SHOP: {"team": "web"}, OTHER: {"team": "data"}}
TEAM = LabelSelector(match_labels={"team": "web"})
EVERYONE = LabelSelector()


@pytest.mark.parametrize(
    ("fields", "where", "meant"),
    [
        ({}, "default", True),
        ({}, SHOP, False),
        ({"namespaces": [SHOP]}, SHOP, True),
        ({"namespaces": [SHOP]}, "default", False),
        ({"namespaces": [SHOP, OTHER]}, OTHER, True),
        ({"namespace_selector": TEAM}, SHOP, True),
        ({"namespace_selector": TEAM}, "default", True),
        ({"namespace_selector": TEAM}, OTHER, False),
        ({"namespace_selector": EVERYONE}, OTHER, True),
        ({"namespace_selector": EVERYONE}, "default", True),
        ({"namespace_selector": TEAM, "namespaces": [OTHER]}, OTHER, True),
        ({"namespace_selector": TEAM, "namespaces": [OTHER]}, SHOP, True),
        ({"namespace_selector": LabelSelector(match_labels={"team": "x"})}, "default", False),
    ],
)
@pytest.mark.parametrize("kind", ["affinity", "anti-affinity", "inverse"])
def test_namespaces_decide_whom_a_term_means(
    fields: dict[str, object], where: str, meant: bool, kind: str
) -> None:
    """One's own by default; else those listed and those selected, of which `{}` selects all."""
    near, far = beside("db", ZONE, **fields), apart("db", ZONE, **fields)
    nodes = [a_home(zone, *resting(f"db{i}", namespace=where)) for i, zone in enumerate(ZONES)]
    newcomer = app_pods("web", spec=near if kind == "affinity" else far)
    if kind == "inverse":
        nodes = [a_home(zone, *resting(f"web{i}", spec=far)) for i, zone in enumerate(ZONES)]
        newcomer = app_pods("db", namespace=where)
    plan = planned(over_three(newcomer, nodes=nodes, namespaces=SPACES))
    assert bool(refused(plan)) == (meant if kind != "affinity" else not meant)


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        (of_app("db"), True),
        (of_app("cache"), False),
        (LabelSelector(), True),
        (None, False),
        (LabelSelector(match_expressions=[an_expression("app", "Exists")]), True),
        (LabelSelector(match_expressions=[an_expression("app", "NotIn", ["db"])]), False),
        (LabelSelector({"app": "db"}, [an_expression("app", "DoesNotExist")]), False),
    ],
)
def test_selectors_decide_whom_a_term_means(selector: LabelSelector | None, meant: bool) -> None:
    """`{}` means every pod, no selector none; labels and expressions must all hold."""
    nodes = [a_home(zone, *resting(f"db{i}")) for i, zone in enumerate(ZONES)]
    plan = planned(over_three(app_pods("web", spec=apart("x", label_selector=selector)), nodes=nodes))
    assert bool(refused(plan)) == meant


@pytest.mark.parametrize(("matching", "alone"), [("match_label_keys", False), ("mismatch_label_keys", True)])
def test_label_keys_narrow_a_term_to_ones_own_value_or_to_others(matching: str, alone: bool) -> None:
    """Apart from pods of the same tenant only, or of other tenants only."""
    spec = apart("web", ZONE, **{matching: ["tenant"]})
    pods = [
        *app_pods("web1", "web2", labels={"app": "web", "tenant": "x"}, spec=spec),
        *app_pods("web3", "web4", labels={"app": "web", "tenant": "y"}, spec=spec),
    ]
    plan = planned(over_three(pods))
    assert refused(plan) == []
    here = {name: places(plan)[name] for name in ("web1", "web2", "web3", "web4")}
    if alone:
        assert not {here["web1"], here["web2"]} & {here["web3"], here["web4"]}
    else:
        assert here["web1"] != here["web2"]
        assert here["web3"] != here["web4"]


# --- company and capacity ----------------------------------------------------------------------------------


def test_who_is_followed_is_put_where_the_follower_fits() -> None:
    """The follower needs a type that one zone sells: both go there, though the other could go anywhere."""
    types = [*TYPES, an_instance_type("huge", cpu="64", memory="256Gi", zones=["zone-c"])]
    pods = [*app_pods("web1", spec=beside("web")), *app_pods("web2", cpu="32", spec=beside("web"))]
    assert domains(planned(over_three(pods, instance_types=types))) == {"zone-c": 2}


def test_a_limited_pool_does_not_strand_followers() -> None:
    """The pool of one zone can hold the group only in part: the group is founded where all fit."""
    pools = [
        an_offer(
            a_nodepool("small", weight=9, requirements=[(ZONE, "In", ["zone-a"])]),
            TYPES,
            remaining={"cpu": "2"},
        ),
        an_offer(a_nodepool("large", requirements=[(ZONE, "In", ["zone-b"])]), TYPES),
    ]
    pods = app_pods(*(f"web{i}" for i in range(6)), cpu="1", spec=beside("web"))
    plan = planned(over_three(pods, pools=pools))
    assert len(domains(plan)) == 1
