"""What a user sees the solver do, one behaviour at a time."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import (
    Affinity,
    Container,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PVCSource,
    ResourceRequirements,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    VolumeNodeAffinity,
    WeightedPodAffinityTerm,
)
from karpenter.apis.core import NodeSelector as Selector
from karpenter.apis.karpenter import RequirementSpec
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.scheduling.solver import spender
from karpenter.testing.builders import (
    a_daemon,
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    an_offering,
    node_affinity,
    some_pods,
)

DEDICATED = Taint(key="dedicated", value="batch", effect="NoSchedule")
SOFT = Taint(key="soft", effect="PreferNoSchedule")


def planned(problem: Problem) -> Plan:
    """Solve, and make sure that the plan is right."""
    plan = solve(problem)
    assert violations(problem, plan) == []
    return plan


def why_not(plan: Plan) -> tuple[str, str]:
    """Return constraint and message of the first refusal of the first refused pod."""
    refusal = plan.unschedulable[0].refusals[0]
    return refusal.constraint, refusal.message


# --- existing capacity ----------------------------------------------------------------------------------


def test_existing_room_is_used_before_anything_is_bought() -> None:
    """Pods that fit on nodes that are there cost nothing."""
    plan = planned(a_problem(some_pods(3), nodes=[a_view("here")]))
    assert plan.claims == ()
    assert plan.placements == {"here": ("default/pod-0000", "default/pod-0001", "default/pod-0002")}


def test_initialized_nodes_come_first_then_names() -> None:
    """A node that is ready is preferred to one that is still starting, whatever its name."""
    nodes = [a_view("a", initialized=False), a_view("c"), a_view("b")]
    assert list(planned(a_problem([a_pod()], nodes=nodes)).placements) == ["b"]


def test_a_node_that_must_define_a_label_is_not_used_without_it() -> None:
    """On existing nodes no label is taken on trust, well-known ones included."""
    pod = a_pod(node_selector={labels.ARCH: "amd64"})
    plan = planned(a_problem([pod], nodes=[a_view("unlabelled")]))
    assert not plan.placements
    assert len(plan.claims) == 1


def test_room_is_kept_for_daemons_that_have_yet_to_start() -> None:
    """A daemon that will run on a node counts until it does."""
    daemon = a_daemon("logs", cpu="1")
    pods = some_pods(4)
    waiting = planned(a_problem(pods, nodes=[a_view("node")], daemons=[daemon]))
    assert len(waiting.placements["node"]) == 3
    running = msgspec.structs.replace(daemon, spec=msgspec.structs.replace(daemon.spec, node_name="node"))
    there = planned(a_problem(pods, nodes=[a_view("node", pods=[running])], daemons=[daemon]))
    assert len(there.placements["node"]) == 3


def test_an_overcommitted_node_takes_nothing() -> None:
    """Where more is asked for than there is, no further pod fits, however small."""
    full = a_view("full", pods=[a_pod("big", cpu="5", node_name="full")])
    assert not planned(a_problem([a_pod(cpu=None, memory=None)], nodes=[full])).placements


def test_a_host_name_selects_that_very_node() -> None:
    """A pod bound to a host name goes there, or nowhere."""
    pod = a_pod(node_selector={labels.KUBERNETES_HOSTNAME: "b"})
    assert list(planned(a_problem([pod], nodes=[a_view("a"), a_view("b")])).placements) == ["b"]
    assert why_not(planned(a_problem([pod], nodes=[a_view("a")])))[0] == "requirements"


def test_taints_of_nodes_are_respected() -> None:
    """Only pods that tolerate a node's taint may use it."""
    nodes = [a_view("tainted", taints=[DEDICATED])]
    assert not planned(a_problem([a_pod()], nodes=nodes)).placements
    tolerant = a_pod(tolerations=[Toleration(key="dedicated", operator="Exists")])
    assert planned(a_problem([tolerant], nodes=nodes)).placements


# --- requirements ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        ((labels.ZONE, "In", ["zone-a"]), True),
        ((labels.ZONE, "In", ["zone-x"]), False),
        ((labels.ZONE, "NotIn", ["zone-a", "zone-b"]), False),
        ((labels.INSTANCE_TYPE, "NotIn", ["general-2"]), True),
        (("cores", "Gt", ["8"]), True),
        (("cores", "Gt", ["16"]), False),
        (("cores", "Lte", ["2"]), True),
        (("cores", "Lt", ["2"]), False),
        (("undefined", "In", ["x"]), False),
        (("undefined", "Exists", []), False),
        (("undefined", "NotIn", ["x"]), True),
        (("undefined", "DoesNotExist", []), True),
        (("pool-label", "In", ["x"]), True),
        (("pool-label", "NotIn", ["x"]), False),
    ],
)
def test_node_affinity_is_met_or_the_pod_refused(term: tuple[str, str, list[str]], fits: bool) -> None:
    """Operators mean what they mean to kube-scheduler; labels nobody defines are missing."""
    types = [
        an_instance_type(f"general-{n}", cpu=str(n), memory=f"{4 * n}Gi", labels={"cores": str(n)})
        for n in (2, 16)
    ]
    problem = a_problem(
        [a_pod(affinity=node_affinity(required=[a_term(term)]))],
        pools=[a_nodepool(labels={"pool-label": "x"})],
        instance_types=types,
        well_known_labels=labels.WELL_KNOWN_LABELS | {"cores"},
    )
    assert (planned(problem).unschedulable == ()) == fits


def test_contradicting_demands_are_refused_not_forgotten() -> None:
    """Selector and affinity that exclude each other leave no node, even if the label is defined nowhere."""
    pod = a_pod(node_selector={"team": "a"}, affinity=node_affinity(required=[a_term(("team", "In", ["b"]))]))
    assert why_not(planned(a_problem([pod]))) == (
        "requirements",
        "incompatible requirements, key team, the requirements on it contradict each other",
    )


def test_one_of_several_terms_is_enough() -> None:
    """A later alternative is used when the first cannot be had."""
    terms = [a_term((labels.ZONE, "In", ["nowhere"])), a_term((labels.ZONE, "In", ["zone-b"]))]
    (claim,) = planned(a_problem([a_pod(affinity=node_affinity(required=terms))])).claims
    assert claim.requirements.single_value(labels.ZONE) == "zone-b"


def test_preferences_are_kept_where_possible_and_given_up_where_not() -> None:
    """The heaviest preference that can be had is honoured; impossible ones keep no pod from running."""
    preferred = [(1, a_term((labels.ZONE, "In", ["zone-b"]))), (9, a_term((labels.ZONE, "In", ["nowhere"])))]
    pod = a_pod(affinity=node_affinity(preferred=preferred))
    (claim,) = planned(a_problem([pod])).claims
    assert claim.requirements.single_value(labels.ZONE) == "zone-b"
    (claim,) = planned(a_problem([pod], respect_preferences=False)).claims
    assert labels.ZONE not in claim.requirements


def test_a_preference_is_given_up_before_a_term_is_lost() -> None:
    """Every combination of term and preference is tried: the first term without the preference is found."""
    pod = a_pod(
        affinity=node_affinity(
            required=[a_term((labels.ZONE, "In", ["zone-a"])), a_term((labels.ZONE, "In", ["nowhere"]))],
            preferred=[(1, a_term((labels.ARCH, "In", ["arm64"])))],
        )
    )
    (claim,) = planned(a_problem([pod])).claims
    assert claim.requirements.single_value(labels.ZONE) == "zone-a"


def test_a_custom_label_of_the_pool_reaches_the_claim() -> None:
    """A pool that leaves a label open gives each claim the value its pods ask for."""
    pool = a_nodepool(requirements=[("team", "In", ["blue", "red"])])
    plan = planned(
        a_problem(
            [a_pod("r", node_selector={"team": "red"}), a_pod("b", node_selector={"team": "blue"})],
            pools=[pool],
        )
    )
    assert sorted(c.requirements.labels()["team"] for c in plan.claims) == ["blue", "red"]


# --- taints of pools, weight ----------------------------------------------------------------------------


def test_pools_are_tried_by_weight() -> None:
    """The heavier pool wins, whatever its prices; the lighter one takes what the heavier cannot."""
    pools = [a_nodepool("dear", weight=50, taints=[DEDICATED]), a_nodepool("plain", weight=1)]
    plan = planned(
        a_problem([a_pod("a"), a_pod("b", cpu="2", tolerations=[Toleration(operator="Exists")])], pools=pools)
    )
    assert {c.pods: c.pool.name for c in plan.claims} == {("default/a",): "plain", ("default/b",): "dear"}


def test_untolerated_taints_are_named() -> None:
    """The refusal says which taint is in the way."""
    plan = planned(a_problem([a_pod()], pools=[a_nodepool(taints=[DEDICATED])]))
    assert why_not(plan) == ("taints", "did not tolerate taint dedicated=batch:NoSchedule")


def test_prefer_no_schedule_is_avoided_until_there_is_no_other_way() -> None:
    """A soft taint moves pods to another pool, but does not keep them from running."""
    soft, plain = a_nodepool("soft", weight=9, taints=[SOFT]), a_nodepool("plain")
    assert [c.pool.name for c in planned(a_problem([a_pod()], pools=[soft, plain])).claims] == ["plain"]
    assert [c.pool.name for c in planned(a_problem([a_pod()], pools=[soft])).claims] == ["soft"]


def test_startup_taints_keep_no_pod_away() -> None:
    """Pods need not tolerate taints that are gone by the time they run."""
    assert not planned(a_problem([a_pod()], pools=[a_nodepool(startup_taints=[DEDICATED])])).unschedulable


def test_no_pool_no_node() -> None:
    """Without pools, the reason is just that."""
    assert why_not(planned(a_problem([a_pod()], pools=[]))) == ("nodepool", "no nodepools found")


# --- resources ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "cheapest"),
    [
        (a_pod(cpu="1", memory="1Gi"), "general-2"),
        (a_pod(cpu="2", memory="1Gi"), "general-2"),
        (a_pod(cpu="2001m", memory="1Gi"), "general-4"),
        (a_pod(cpu="100m", memory="30Gi"), "general-8"),
        (a_pod(cpu=None, memory=None), "general-2"),
        (a_pod(spec={"overhead": {"cpu": "1500m"}}), "general-4"),
        (
            a_pod(
                spec={
                    "init_containers": [
                        Container(name="init", resources=ResourceRequirements(requests={"cpu": "7"}))
                    ]
                }
            ),
            "general-8",
        ),
    ],
)
def test_the_cheapest_type_that_holds_the_pod_comes_first(pod: Pod, cheapest: str) -> None:
    """Requests, init containers and overhead decide how big the node must be."""
    (claim,) = planned(a_problem([pod])).claims
    assert claim.instance_types[0] == cheapest
    assert list(claim.instance_types) == sorted(claim.instance_types, key=lambda n: int(n.partition("-")[2]))


def test_extended_resources_need_a_type_that_has_them() -> None:
    """A GPU pod gets a GPU node; others don't pay for one."""
    types = [an_instance_type("plain"), an_instance_type("gpu", price=3, extra={"example.com/gpu": "2"})]
    pods = [a_pod("plain"), *some_pods(3, "gpu", cpu="100m", requests={"example.com/gpu": "1"})]
    plan = planned(a_problem(pods, instance_types=types))
    assert sorted(c.instance_types[0] for c in plan.claims) == ["gpu", "gpu"] or plan.cost < 6.5
    impossible = planned(a_problem([a_pod(requests={"example.com/tpu": "1"})], instance_types=types))
    assert why_not(impossible)[0] == "resources"


def test_a_pod_that_fits_nowhere_is_told_what_would_fit() -> None:
    """The refusal counts what ruled types out, and names the largest that can be had."""
    refusal = planned(a_problem([a_pod(cpu="100")])).unschedulable[0].refusals[0]
    assert refusal.message.startswith("no instance type has enough resources")
    assert refusal.detail["removed"]["resources"] == refusal.detail["instanceTypes"] == 4
    assert refusal.remedy == "request at most 16 cpu, or allow larger instance types"


def test_a_typo_in_cpu_is_guessed() -> None:
    """A million cores are probably millicores."""
    assert "m vs M typo?" in why_not(planned(a_problem([a_pod(cpu="1M")])))[1]


def test_daemons_count_on_every_new_node() -> None:
    """A daemon's requests are part of the node's size and of the claim's requests."""
    (claim,) = planned(a_problem([a_pod(cpu="2")], daemons=[a_daemon(cpu="100m")])).claims
    assert claim.instance_types[0] == "general-4"
    assert claim.requests["cpu"] == 2100
    assert claim.requests["pods"] == 2


def test_daemons_count_only_on_types_they_run_on() -> None:
    """A daemon with alternatives counts on each type that one of them allows, whatever the order."""
    types = [an_instance_type("a", price=1.0), an_instance_type("b", price=1.0)]
    for order in (["a", "b"], ["b", "a"]):
        terms = [a_term((labels.INSTANCE_TYPE, "In", [name])) for name in order]
        daemon = a_daemon(cpu="1", affinity=node_affinity(required=terms))
        plan = planned(a_problem([a_pod(cpu="3500m")], instance_types=types, daemons=[daemon]))
        assert len(plan.unschedulable) == 1
    only_b = a_daemon(cpu="1", node_selector={labels.INSTANCE_TYPE: "b"})
    (claim,) = planned(a_problem([a_pod(cpu="3500m")], instance_types=types, daemons=[only_b])).claims
    assert claim.instance_types == ("a",)


def test_host_ports_keep_pods_apart() -> None:
    """Two pods with the same host port are never on one node; daemons' ports count too."""
    plan = planned(a_problem(some_pods(3, host_ports=[80], cpu="100m"), nodes=[a_view("node")]))
    assert [len(v) for v in plan.placements.values()] == [1]
    assert [len(c.pods) for c in plan.claims] == [1, 1]
    refused = planned(a_problem([a_pod(host_ports=[80])], daemons=[a_daemon(host_ports=[80])]))
    assert why_not(refused)[0] == "hostPorts"


# --- offerings ------------------------------------------------------------------------------------------


def test_unavailable_offerings_are_not_planned_with() -> None:
    """What the cloud is out of is neither bought nor priced."""
    types = [
        an_instance_type(
            "x",
            offerings=[
                an_offering("zone-a", "spot", 0.1, available=False),
                an_offering("zone-b", "on-demand", 1.0),
            ],
        )
    ]
    (claim,) = planned(a_problem([a_pod()], instance_types=types)).claims
    assert claim.price == 1.0
    assert claim.requirements.single_value(labels.CAPACITY_TYPE) == "on-demand"
    plan = planned(a_problem([a_pod(node_selector={labels.ZONE: "zone-a"})], instance_types=types))
    assert why_not(plan)[0] == "offering"


def test_restricted_pods_do_not_make_others_dearer() -> None:
    """Pods that need on-demand don't drag flexible ones along when that costs more."""
    pods = [
        *some_pods(4, "od", cpu="2", node_selector={labels.CAPACITY_TYPE: "on-demand"}),
        *some_pods(4, "any", cpu="2"),
    ]
    plan = planned(a_problem(pods))
    assert plan.cost == pytest.approx(8 * 0.05 + 32 * 0.005 + 0.4 * (8 * 0.05 + 32 * 0.005))


def test_claims_list_every_fallback_up_to_six_hundred() -> None:
    """A claim names what else would do, cheapest first, but not without end."""
    types = [an_instance_type(f"t-{i:04d}", price=1 + i / 1000) for i in range(700)]
    (claim,) = planned(a_problem([a_pod()], instance_types=types)).claims
    assert len(claim.instance_types) == 600
    assert claim.instance_types[0] == "t-0000"


def test_mixed_pods_share_nodes_that_suit_both() -> None:
    """Plans stay near the bound: cpu-heavy and memory-heavy pods are not bought the wrong shape."""
    types = [
        an_instance_type(f"{name}-{n}", cpu=str(n), memory=f"{n * ratio}Gi")
        for name, ratio in (("c", 2), ("m", 4), ("r", 8))
        for n in (2, 4, 8, 16, 32)
    ]
    pods = [*some_pods(40, "cpu", cpu="2", memory="1Gi"), *some_pods(40, "mem", cpu="500m", memory="6Gi")]
    plan = planned(a_problem(pods, instance_types=types))
    assert plan.lower_bound is not None
    assert plan.cost <= 1.15 * plan.lower_bound


# --- limits, minValues, priority ------------------------------------------------------------------------


def test_limits_hold_within_one_batch() -> None:
    """Cores planned for one claim are not there for the next."""
    types = [an_instance_type("four", cpu="4")]
    plan = planned(
        a_problem(some_pods(3, cpu="3"), pools=[a_nodepool(limits={"cpu": "8"})], instance_types=types)
    )
    assert len(plan.claims) == 2
    assert why_not(plan) == ("limits", "all available instance types exceed limits for nodepool: 'default'")
    assert plan.unschedulable[0].refusals[0].remedy == "raise limits.cpu by 4"


def test_node_limits_hold_within_one_batch() -> None:
    """`limits.nodes` counts the claims of the batch itself."""
    plan = planned(a_problem(some_pods(5, host_ports=[80]), pools=[a_nodepool(limits={"nodes": "2"})]))
    assert len(plan.claims) == 2
    assert len(plan.unschedulable) == 3
    assert why_not(plan)[1] == "node limits have been exhausted for nodepool: 'default'"


def test_when_one_pool_is_used_up_the_next_takes_over() -> None:
    """A lighter pool takes what the heavier one's limits leave over."""
    pools = [a_nodepool("small", weight=9, limits={"cpu": "4"}), a_nodepool("large")]
    plan = planned(a_problem(some_pods(4, cpu="4"), pools=pools))
    assert sorted(c.pool.name for c in plan.claims)[-1] == "small"
    assert plan.unschedulable == ()


def test_what_runs_out_goes_to_the_higher_priority() -> None:
    """A large pod of low priority never takes the last of a limit from a small important one."""
    pods = [a_pod("large", cpu="4", priority=0), a_pod("vital", cpu="1", priority=1000)]
    plan = planned(a_problem(pods, pools=[a_nodepool(limits={"cpu": "4"})]))
    assert [u.pod for u in plan.unschedulable] == ["default/large"]


def test_min_values_keep_enough_choice() -> None:
    """A claim offers as many types as its pool demands: it is filled less rather than narrowed."""
    pool = a_nodepool(
        requirements=[RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", min_values=3)]
    )
    plan = planned(a_problem(some_pods(10, cpu="1"), pools=[pool]))
    assert all(len(c.instance_types) >= 3 for c in plan.claims)
    assert plan.unschedulable == ()


@pytest.mark.parametrize("strict", [True, False])
def test_min_values_out_of_reach(strict: bool) -> None:
    """Strict: the pod waits, and is told why. Best effort: the claim takes what there is, and says so."""
    pool = a_nodepool(
        requirements=[RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", min_values=9)]
    )
    plan = planned(a_problem([a_pod()], pools=[pool], min_values_strict=strict))
    if strict:
        assert why_not(plan)[0] == "minValues"
    else:
        assert plan.claims[0].min_values_relaxed
        assert plan.claims[0].requirements[labels.INSTANCE_TYPE].min_values == 4


# --- volumes --------------------------------------------------------------------------------------------


def with_volume(claim: PersistentVolumeClaim | None, volume: PersistentVolume | None) -> Problem:
    """Return a problem with one pod that uses the claim `data`."""
    pod = a_pod(spec={"volumes": [Volume(name="data", persistent_volume_claim=PVCSource(claim_name="data"))]})
    problem = a_problem([pod])
    snapshot = msgspec.structs.replace(
        problem.snapshot,
        volume_claims={"default/data": claim} if claim else {},
        volumes={"pv": volume} if volume else {},
    )
    return msgspec.structs.replace(problem, snapshot=snapshot)


BOUND = PersistentVolumeClaim(
    metadata=ObjectMeta(
        name="data", namespace="default", annotations={"pv.kubernetes.io/bind-completed": "yes"}
    ),
    spec=PersistentVolumeClaimSpec(volume_name="pv"),
)


def test_a_pod_follows_its_volume() -> None:
    """The node is bought in the zone where the volume is."""
    volume = PersistentVolume(
        metadata=ObjectMeta(name="pv"),
        spec=PersistentVolumeSpec(
            node_affinity=VolumeNodeAffinity(
                required=Selector(node_selector_terms=[a_term((labels.ZONE, "In", ["zone-b"]))])
            )
        ),
    )
    (claim,) = planned(with_volume(BOUND, volume)).claims
    assert claim.requirements.single_value(labels.ZONE) == "zone-b"


def test_a_missing_volume_claim_is_named() -> None:
    """A pod whose claim is not there is refused for that, not given a node it cannot use."""
    assert why_not(planned(with_volume(None, None))) == (
        "volumes",
        "persistentvolumeclaim default/data not found",
    )


# --- not supported yet: refused, never wrong -------------------------------------------------------------


SPREAD = TopologySpreadConstraint(max_skew=1, topology_key=labels.ZONE, when_unsatisfiable="DoNotSchedule")
TERM = PodAffinityTerm(topology_key=labels.ZONE, label_selector=LabelSelector(match_labels={"a": "b"}))


@pytest.mark.parametrize(
    ("pod", "constraint", "field"),
    [
        (a_pod(spec={"resource_claims": [PodResourceClaim(name="gpu")]}), "dra", "spec.resourceClaims"),
        (
            a_pod(affinity=node_affinity(required=[a_term((labels.NODEPOOL, "DoesNotExist", []))])),
            "nodepool",
            "configured to not run",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(pod: Pod, constraint: str, field: str) -> None:
    """A demand the solver does not know how to keep is said so, and only that pod waits."""
    plan = planned(a_problem([pod, a_pod("other")]))
    assert [u.pod for u in plan.unschedulable] == ["default/pod"]
    assert why_not(plan)[0] == constraint
    assert field in why_not(plan)[1]


def test_soft_topology_does_not_stand_in_the_way() -> None:
    """ScheduleAnyway spreads and preferred pod affinities are wishes: the pod is placed."""
    soft = msgspec.structs.replace(SPREAD, when_unsatisfiable="ScheduleAnyway")
    wish = PodAffinity(preferred=[WeightedPodAffinityTerm(weight=1, pod_affinity_term=TERM)])
    pod = a_pod(affinity=Affinity(pod_affinity=wish), spec={"topology_spread_constraints": [soft]})
    assert planned(a_problem([pod])).unschedulable == ()


def test_a_pod_that_nothing_can_help_does_not_change_the_plan_for_others() -> None:
    """Priority decides only where capacity ran out between pods, not because some pod fits nowhere."""
    pods = [*some_pods(9, "low", cpu="1500m", priority=1), *some_pods(9, "high", cpu="700m", priority=5)]
    hopeless = a_pod("hopeless", priority=5, spec={"resource_claims": [PodResourceClaim(name="gpu")]})
    alone, beside = planned(a_problem(pods)), planned(a_problem([*pods, hopeless]))
    assert beside.claims == alone.claims


@pytest.mark.parametrize(
    ("budget", "clocked", "steps"),
    [
        (Budget(), True, 0),
        (Budget(steps=3), False, 3),
        (Budget(steps=0), True, 0),
        (Budget(seconds=2.0), True, 1),
        (Budget(seconds=0.0), True, 0),
        (Budget(seconds=2.0), False, 0),
        (Budget(steps=1, seconds=9.0), True, 1),
    ],
)
def test_a_budget_is_spent_to_the_last_step_and_no_further(budget: Budget, clocked: bool, steps: int) -> None:
    """Steps count before seconds, seconds from the call on; without a clock there are none."""
    now = iter(float(second) for second in range(100, 200))
    more = spender(budget, now.__next__ if clocked else None)
    assert [more() for _ in range(5)] == [True] * min(steps, 5) + [False] * (5 - min(steps, 5))


def test_the_bound_counts_every_pod_with_a_place_once() -> None:
    """Four cores of three classes fill a machine of four: no plan costs less; who waits is not counted."""
    types = [an_instance_type("four", cpu="4", memory="64Gi", price=4.0)]
    pods = [*some_pods(2, "a", cpu="1"), a_pod("b", cpu="1500m"), a_pod("c", cpu="500m"), a_pod("d", cpu="9")]
    plan = solve(a_problem(pods, instance_types=types))
    assert len(plan.unschedulable) == 1
    assert plan.cost == 4.0
    assert plan.lower_bound == pytest.approx(4.0)
    half = solve(a_problem(pods[2:], instance_types=types))
    assert half.cost == 4.0
    assert half.lower_bound == pytest.approx(2.0)
