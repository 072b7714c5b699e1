"""Offerings that override the capacity or the overhead of their instance type."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.karpenter import NodePool, RequirementSpec
from karpenter.base.quantity import resources_of
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.problem import Plan, PoolOffer, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import needless_refusals, violations
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    an_instance_type,
    an_offer,
    an_offering,
    some_pods,
)

SPOT, ON_DEMAND = labels.CAPACITY_SPOT, labels.CAPACITY_ON_DEMAND


def sized(offering: Offering, capacity: dict[str, str], overhead: dict[str, str] | None = None) -> Offering:
    """Return `offering` with a capacity and an overhead of its own."""
    return replace(
        offering, capacity_override=resources_of(capacity), overhead_override=resources_of(overhead or {})
    )


def planned(problem: Problem) -> Plan:
    """Solve, and make sure that the plan is right and refuses nobody without need."""
    plan = solve(problem)
    assert violations(problem, plan) == []
    assert needless_refusals(problem, plan) == []
    return plan


def a_market(*types: InstanceType, limits: dict[str, str] | None = None) -> list[PoolOffer | NodePool]:
    """Return one pool that sells these types."""
    return [an_offer(a_nodepool("default", limits=limits), types)]


SMALL_IN_A = an_instance_type(
    "mixed",
    cpu="4",
    offerings=[an_offering("zone-a", price=0.1), sized(an_offering("zone-b", price=0.3), {"cpu": "8"})],
)


def test_a_pod_gets_the_offering_that_is_large_enough() -> None:
    """Of a type that is larger in one zone, a pod that needs that size gets a claim for that zone."""
    plan = planned(a_problem([a_pod("big", cpu="6")], pools=a_market(SMALL_IN_A)))
    (claim,) = plan.claims
    assert claim.instance_types == ("mixed",)
    assert claim.requirements.get(labels.ZONE).permitted() == ("zone-b",)
    assert claim.price == 0.3


def test_a_pod_that_fits_either_size_takes_the_cheaper_and_leaves_both_open() -> None:
    """A claim whose pods fit every size of a type is not narrowed."""
    plan = planned(a_problem([a_pod("small", cpu="2")], pools=a_market(SMALL_IN_A)))
    (claim,) = plan.claims
    assert claim.price == 0.1
    assert claim.instance_types == ("mixed",)
    assert {*claim.requirements.get(labels.ZONE).permitted()} in ({"zone-a", "zone-b"}, set())


def test_a_resource_that_only_an_offering_adds_can_be_had() -> None:
    """An override may add a resource, such as huge pages, which then come out of memory."""
    kind = an_instance_type(
        "pages",
        memory="16Gi",
        offerings=[
            an_offering("zone-a", price=0.1),
            sized(an_offering("zone-b", price=0.2), {"hugepages-2Mi": "4Gi"}),
        ],
    )
    fits = a_pod("fits", cpu="1", memory="12Gi", requests={"hugepages-2Mi": "1Gi"})
    too_much = a_pod("too-much", cpu="1", memory="13Gi", requests={"hugepages-2Mi": "1Gi"})
    plan = planned(a_problem([fits, too_much], pools=a_market(kind)))
    assert [c.pods for c in plan.claims] == [("default/fits",)]
    assert [u.pod for u in plan.unschedulable] == ["default/too-much"]


def test_an_overhead_of_its_own_makes_an_offering_smaller() -> None:
    """What the system keeps may differ by offering, too."""
    heavy = sized(an_offering("zone-a", price=0.1), {}, {"cpu": "2"})
    kind = an_instance_type("kept", cpu="4", offerings=[heavy, an_offering("zone-b", price=0.2)])
    plan = planned(a_problem([a_pod("w", cpu="3")], pools=a_market(kind)))
    assert [c.price for c in plan.claims] == [0.2]


def test_an_override_names_only_what_differs() -> None:
    """Resources that an override does not name are as the type says."""
    kind = an_instance_type("kept", cpu="4", memory="4Gi", offerings=[sized(an_offering(), {"cpu": "8"})])
    plan = planned(a_problem([a_pod("w", cpu="7", memory="6Gi")], pools=a_market(kind)))
    assert [u.pod for u in plan.unschedulable] == ["default/w"]


def test_another_type_is_not_listed_where_one_of_its_sizes_is_too_small() -> None:
    """A type is left off a claim when the cloud might launch it in a size that does not hold the pods."""
    plain = an_instance_type("plain", cpu="8", zones=("zone-a", "zone-b"), price=0.25)
    (claim,) = planned(a_problem([a_pod("w", cpu="6")], pools=a_market(SMALL_IN_A, plain))).claims
    assert claim.instance_types == ("plain",)
    (claim,) = planned(a_problem([a_pod("w", cpu="3")], pools=a_market(SMALL_IN_A, plain))).claims
    assert claim.instance_types == ("mixed", "plain")


def test_where_no_single_label_tells_sizes_apart_all_of_them_do() -> None:
    """A claim is nailed to zone and capacity type when only both together make the size sure."""
    kind = an_instance_type(
        "cross",
        cpu="4",
        offerings=[
            sized(an_offering("zone-a", SPOT, 0.1), {"cpu": "8"}),
            an_offering("zone-a", ON_DEMAND, 0.2),
            an_offering("zone-b", SPOT, 0.1),
            sized(an_offering("zone-c", ON_DEMAND, 0.5), {"cpu": "8"}),
        ],
    )
    (claim,) = planned(a_problem([a_pod("w", cpu="6")], pools=a_market(kind))).claims
    assert claim.price == 0.1
    assert claim.requirements.single_value(labels.ZONE) == "zone-a"
    assert claim.requirements.single_value(labels.CAPACITY_TYPE) == SPOT


def test_one_label_is_enough_to_tell_sizes_apart_if_that_makes_nothing_dearer() -> None:
    """The zone is fixed, not the capacity type, which would be dearer, nor a label that decides nothing."""
    tier = "example.com/tier"
    kind = an_instance_type(
        "mixed",
        cpu="4",
        offerings=[
            sized(an_offering("zone-a", SPOT, 0.1, labels={tier: "gold"}), {"cpu": "8"}),
            sized(an_offering("zone-a", ON_DEMAND, 0.3, labels={tier: "gold"}), {"cpu": "8"}),
            an_offering("zone-b", SPOT, 0.1),
        ],
    )
    known = labels.WELL_KNOWN_LABELS | {tier}
    problem = a_problem([a_pod("w", cpu="6")], pools=a_market(kind), well_known_labels=known)
    (claim,) = planned(problem).claims
    assert claim.price == 0.1
    assert claim.requirements.get(labels.ZONE).permitted() == ("zone-a",)
    assert claim.requirements.get(labels.CAPACITY_TYPE).permitted() == (ON_DEMAND, SPOT)
    assert tier not in claim.requirements


def test_a_size_that_is_often_interrupted_is_kept_out() -> None:
    """The cloud goes by price alone: what is cheaper only because of interruptions must not be launched."""
    calm = sized(an_offering("zone-a", SPOT, 0.1), {"cpu": "8"})
    risky = replace(an_offering("zone-b", SPOT, 0.08), hazard=1.0)
    (offer,) = a_market(an_instance_type("mixed", cpu="4", offerings=[calm, risky]))
    problem = a_problem([a_pod("w", cpu="2")], pools=[replace(offer, interruption_cost=0.5)])
    (claim,) = planned(problem).claims
    assert claim.price == 0.1
    assert claim.requirements.get(labels.ZONE).permitted() == ("zone-a",)


def test_offerings_that_nothing_tells_apart_count_as_the_smaller() -> None:
    """Of two offerings of one place that differ in size, only the least is relied on."""
    both = [an_offering("zone-a", price=0.1), sized(an_offering("zone-a", price=0.1), {"cpu": "8"})]
    market = a_market(an_instance_type("twice", cpu="4", offerings=both))
    plan = planned(a_problem([a_pod("fits", cpu="3"), a_pod("not", cpu="6")], pools=market))
    assert [c.pods for c in plan.claims] == [("default/fits",)]


def test_limits_count_the_size_that_is_launched() -> None:
    """A claim counts against limits as the largest size that it may be launched in."""
    market = a_market(SMALL_IN_A, limits={"cpu": "7"})
    (claim,) = planned(a_problem([a_pod("w", cpu="2")], pools=market)).claims
    assert claim.requirements.get(labels.ZONE).permitted() == ("zone-a",)
    plan = planned(a_problem([a_pod("w", cpu="6")], pools=market))
    assert not plan.claims


def test_the_ceiling_on_cores_is_for_sizes() -> None:
    """`--max-node-cpu` keeps out the sizes above it, not the type."""
    problem = a_problem([a_pod("w", cpu="2")], pools=a_market(SMALL_IN_A))
    problem = replace(problem, options=replace(problem.options, max_node_cpu=4000))
    (claim,) = planned(problem).claims
    assert claim.requirements.get(labels.ZONE).permitted() == ("zone-a",)


def test_with_min_values_a_type_counts_as_its_smallest_offering() -> None:
    """Where a pool wants variety, no type may drop out of a claim for one of its sizes."""
    pool = a_nodepool(
        "varied", requirements=[RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", min_values=2)]
    )
    other = an_instance_type("other", cpu="8", price=0.5)
    problem = a_problem([a_pod("w", cpu="3")], pools=[an_offer(pool, [SMALL_IN_A, other])])
    (claim,) = planned(problem).claims
    assert claim.instance_types == ("mixed", "other")
    refused = solve(replace(problem, pods=(a_pod("w", cpu="6"),)))
    assert [u.pod for u in refused.unschedulable] == ["default/w"]


AMOUNTS = st.sampled_from(["2", "4", "8"])


@st.composite
def types_of_many_sizes(draw: st.DrawFn, name: str) -> InstanceType:
    """Return a type of which some offerings have a size of their own."""
    places = draw(st.sets(st.sampled_from([(z, c) for z in "abc" for c in (SPOT, ON_DEMAND)]), min_size=1))
    offerings = []
    for zone, kind in sorted(places):
        offering = an_offering(f"zone-{zone}", kind, draw(st.sampled_from([0.1, 0.2, 0.4])))
        if draw(st.booleans()):
            offering = sized(offering, {"cpu": draw(AMOUNTS)}, {"cpu": draw(st.sampled_from(["0", "1"]))})
        offerings.append(offering)
    return an_instance_type(name, cpu=draw(AMOUNTS), offerings=offerings)


@given(st.data())
def test_whatever_offerings_override_plans_are_right(data: st.DataObject) -> None:
    """No claim may be launched too small, none is refused that could be had, whoever asks and wherever."""
    types = [data.draw(types_of_many_sizes(name)) for name in ("one", "two")]
    limits = data.draw(st.sampled_from([None, {"cpu": "8"}, {"cpu": "12"}]))
    pods = [
        *some_pods(data.draw(st.integers(0, 4)), "w", cpu=data.draw(st.sampled_from(["500m", "1500m"]))),
        a_pod("big", cpu=data.draw(st.sampled_from(["1", "3", "5", "7"]))),
        a_pod("zoned", cpu="1", node_selector={labels.ZONE: "zone-b"}),
    ]
    problem = a_problem(pods, pools=a_market(*types, limits=limits))
    plan = solve(problem)
    assert violations(problem, plan) == []
    assert limits or needless_refusals(problem, plan) == []
