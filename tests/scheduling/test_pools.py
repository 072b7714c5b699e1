"""Several NodePools: whose nodes are bought, within which limits, and with how much choice (minValues)."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Pod, Taint, Toleration
from karpenter.apis.karpenter import NodePool, RequirementSpec
from karpenter.model.problem import Plan, PoolOffer
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    an_offer,
    node_affinity,
    some_instance_types,
    some_pods,
)
from karpenter.testing.outcomes import planned, refusals, refused, the_claim

FAMILY, CORES = "example.com/family", "example.com/cores"
WELL_KNOWN = labels.WELL_KNOWN_LABELS | {FAMILY, CORES}
DEDICATED = Taint(key="dedicated", effect="NoSchedule")
SOFT = Taint(key="soft", effect="PreferNoSchedule")


def pools_used(plan: Plan) -> list[str]:
    """Return the pools of a plan's claims, sorted."""
    return sorted(c.pool.name for c in plan.claims)


# --- which pool --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "winner"),
    [
        ({"a": None, "b": None}, "b"),
        ({"a": 1, "b": None}, "a"),
        ({"a": 10, "b": 20, "c": 15}, "b"),
        ({"a": 20, "b": 10, "c": 15}, "a"),
        ({"a": 5, "b": 5, "c": 1}, "b"),
    ],
)
def test_the_heaviest_pool_wins_and_names_break_ties(weights: dict[str, int | None], winner: str) -> None:
    """No weight is the least; equal weights go by name, descending."""
    pools = [a_nodepool(name, weight=weight) for name, weight in weights.items()]
    assert the_claim(a_problem([a_pod()], pools=pools)).pool.name == winner


def test_a_pool_that_is_doubted_comes_after_all_others() -> None:
    """Its machines have lately not become nodes: it buys what no other pool can, by weight among its like."""
    first, second = (an_offer(a_nodepool(name, weight=weight)) for name, weight in (("a", 100), ("b", 50)))
    last = an_offer(a_nodepool("c"), [an_instance_type("dear", price=99.0)])
    doubted = [msgspec.structs.replace(offer, doubted=True) for offer in (first, second)]
    for offers, winner in (([last, *doubted], "c"), (doubted, "a"), ([first, last, doubted[1]], "a")):
        problem = msgspec.structs.replace(a_problem([a_pod()]), pools=tuple(offers))
        assert the_claim(problem).pool.name == winner


@pytest.mark.parametrize(
    ("weights", "winner"),
    [((None, None), "a"), ((5, 5), "a"), ((5, None), "a"), ((None, 5), "b"), ((4, 5), "b")],
)
def test_of_pools_of_one_weight_the_cheaper_one_buys(
    weights: tuple[int | None, int | None], winner: str
) -> None:
    """Names decide only where prices don't; a heavier pool buys whatever it costs."""
    types = [an_instance_type("cheap", price=1.0), an_instance_type("dear", price=5.0)]
    pools = [
        a_nodepool(name, weight=weight, requirements=[(labels.INSTANCE_TYPE, "In", [kind])])
        for name, weight, kind in zip("ab", weights, ("cheap", "dear"), strict=True)
    ]
    assert the_claim(a_problem([a_pod()], pools=pools, instance_types=types)).pool.name == winner


def test_when_the_cheapest_pool_is_used_up_its_equals_follow_by_price() -> None:
    """Three pools of one weight, one node each: cheapest first, whatever their names."""
    types = [an_instance_type(f"t{price}", cpu="2", price=price) for price in (1.0, 2.0, 3.0)]
    pools = [
        a_nodepool(name, limits={"nodes": "1"}, requirements=[(labels.INSTANCE_TYPE, "In", [kind.name])])
        for name, kind in zip(("b", "c", "a"), types, strict=True)
    ]
    plan = planned(a_problem(some_pods(2, cpu="1500m"), pools=pools, instance_types=types))
    assert pools_used(plan) == ["b", "c"]


def test_a_pod_that_names_its_pool_gets_it_whatever_the_weights() -> None:
    """Selecting by the pool's label, or by a label that only a light pool has."""
    pools = [a_nodepool("heavy", weight=100), a_nodepool("light", weight=1, labels={"team": "a"})]
    for selector in ({labels.NODEPOOL: "light"}, {"team": "a"}):
        assert the_claim(a_problem([a_pod(node_selector=selector)], pools=pools)).pool.name == "light"


@pytest.mark.parametrize(
    "pool",
    [
        a_nodepool("heavy", weight=9, taints=[DEDICATED]),
        a_nodepool("heavy", weight=9, requirements=[(labels.ARCH, "In", ["arm64"])]),
        a_nodepool("heavy", weight=9, requirements=[(labels.INSTANCE_TYPE, "In", ["general-2"])]),
        a_nodepool("heavy", weight=9, limits={"cpu": "2"}),
        a_nodepool("heavy", weight=9, limits={"nodes": "0"}),
        a_nodepool(
            "heavy",
            weight=9,
            requirements=[RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", min_values=40)],
        ),
    ],
    ids=["taint", "requirement", "size", "limit", "node-limit", "minValues"],
)
def test_a_heavy_pool_that_cannot_serve_leaves_it_to_the_next(pool: NodePool) -> None:
    """Whatever the obstacle, the lighter pool takes the pod."""
    claim = the_claim(a_problem([a_pod(cpu="3")], pools=[pool, a_nodepool("light")]))
    assert claim.pool.name == "light"


def test_each_pod_gets_the_heaviest_pool_that_can_serve_it() -> None:
    """The heavy pool is for those who tolerate it; the others share the light one."""
    pools = [a_nodepool("heavy", weight=9, taints=[DEDICATED]), a_nodepool("light")]
    tolerant = some_pods(2, "tolerant", tolerations=[Toleration(key="dedicated", operator="Exists")])
    plan = planned(a_problem([*tolerant, *some_pods(2, "plain")], pools=pools))
    assert {c.pool.name: {k.split("/")[1][:5] for k in c.pods} for c in plan.claims} == {
        "heavy": {"toler"},
        "light": {"plain"},
    }


def test_a_limit_that_leaves_one_node_is_not_blamed_for_a_pod_that_fits_no_type() -> None:
    """As long as one node may be bought, what is in the way is the size of the pod."""
    pool = a_nodepool(limits={"nodes": "1"})
    (refusal,) = refusals(planned(a_problem([a_pod(cpu="100")], pools=[pool])))
    assert refusal.constraint == "resources"


def test_room_on_a_node_of_a_lighter_pool_is_used_before_a_heavier_one_buys() -> None:
    """What a restricted pod's node has left costs nothing, whichever pool it is from."""
    pools = [a_nodepool("heavy", weight=9), a_nodepool("light", labels={"example.com/team": "red"})]
    restricted = a_pod("restricted", cpu="1500m", node_selector={"example.com/team": "red"})
    (claim,) = planned(a_problem([restricted, a_pod("free", cpu="300m")], pools=pools)).claims
    assert (claim.pool.name, len(claim.pods)) == ("light", 2)


def test_pools_offer_each_what_its_own_catalogue_has() -> None:
    """Types of one pool are not listed in claims of another."""
    pools = [
        an_offer(a_nodepool("a", weight=9), [an_instance_type("small", cpu="2")]),
        an_offer(a_nodepool("b"), [an_instance_type("large", cpu="8")]),
    ]
    plan = planned(a_problem([a_pod("s"), a_pod("l", cpu="8")], pools=pools))
    assert {c.pool.name: c.instance_types for c in plan.claims} == {"a": ("small",), "b": ("large",)}


def test_a_pool_without_types_is_passed_over() -> None:
    """It says so when nobody else can serve."""
    empty = an_offer(a_nodepool("empty", weight=9), [])
    assert the_claim(a_problem([a_pod()], pools=[empty, a_nodepool("light")])).pool.name == "light"
    (refusal,) = refusals(planned(a_problem([a_pod()], pools=[empty])))
    assert refusal.constraint == "nodepool"


def test_every_pool_that_was_tried_says_why_not() -> None:
    """A refusal for each, heaviest first, each naming its pool."""
    pools = [a_nodepool("tainted", weight=9, taints=[DEDICATED]), a_nodepool("small", limits={"cpu": "1"})]
    found = refusals(planned(a_problem([a_pod()], pools=pools)))
    assert [(r.place, r.constraint) for r in found] == [
        ("nodepool/tainted", "taints"),
        ("nodepool/small", "limits"),
    ]


def test_a_softly_tainted_pool_is_avoided_when_another_takes_the_pod() -> None:
    """Weight does not outdo PreferNoSchedule; a pod only that pool can serve does."""
    pools = [a_nodepool("soft", weight=99, taints=[SOFT], labels={"team": "a"}), a_nodepool("plain")]
    pods = [a_pod("any"), a_pod("tied", node_selector={"team": "a"})]
    plan = planned(a_problem(pods, pools=pools))
    assert {c.pool.name: c.pods for c in plan.claims} == {
        "soft": ("default/tied",),
        "plain": ("default/any",),
    }


# --- limits ------------------------------------------------------------------------------------------------


def limited(pods: list[Pod], limits: dict[str, str], remaining: dict[str, str] | None = None) -> Plan:
    """Return the plan with one limited pool."""
    offer = an_offer(a_nodepool(limits=limits), some_instance_types(), remaining=remaining)
    return planned(a_problem(pods, pools=[offer]))


@pytest.mark.parametrize(
    ("limits", "cpu", "placed"),
    [
        ({"cpu": "16"}, "3", 4),
        ({"cpu": "4"}, "4", 1),
        ({"cpu": "3900m"}, "3", 0),
        ({"cpu": "8"}, "3", 2),
        ({"memory": "16Gi"}, "3", 1),
        ({"memory": "15Gi"}, "3", 0),
        ({"cpu": "100", "memory": "32Gi"}, "3", 2),
        ({"cpu": "0"}, "100m", 0),
        ({"nodes": "3"}, "14", 3),
        ({"nodes": "0"}, "14", 0),
        ({"nodes": "1", "cpu": "100"}, "14", 1),
        ({"nodes": "9", "cpu": "32"}, "14", 2),
        ({"example.com/gpu": "0"}, "3", 4),
    ],
)
def test_limits_are_used_up_but_never_passed(limits: dict[str, str], cpu: str, placed: int) -> None:
    """Four pods: as many are placed as machines fit within what the limits leave, to the last core."""
    plan = limited(some_pods(4, cpu=cpu), limits)
    assert 4 - len(refused(plan)) == placed
    assert {r.constraint for u in plan.unschedulable for r in u.refusals} <= {"limits"}


def test_a_limited_number_of_nodes_makes_for_larger_ones() -> None:
    """Two nodes may be bought, and the first pods want a small one each: one is larger for the last pod."""
    types = [an_instance_type("small", cpu="2", price=0.04), an_instance_type("large", cpu="16", price=0.6)]
    pods = [*some_pods(2, "first", cpu="1500m", priority=9), a_pod("last", cpu="1")]
    plan = planned(a_problem(pods, pools=[an_offer(a_nodepool(limits={"nodes": "2"}), types)]))
    assert refused(plan) == []
    assert sorted(claim.instance_types[0] for claim in plan.claims) == ["large", "small"]


def test_a_limit_on_a_device_counts_only_machines_that_have_it() -> None:
    """GPUs are limited: plain machines are not."""
    types = [an_instance_type("gpu", extra={"example.com/gpu": "1"}, price=9), an_instance_type("plain")]
    pods = [*some_pods(2, "gpu", requests={"example.com/gpu": "1"}), *some_pods(2, "plain", cpu="3")]
    pool = an_offer(a_nodepool(limits={"example.com/gpu": "1"}), types)
    plan = planned(a_problem(pods, pools=[pool]))
    assert refused(plan) == ["gpu-0001"]


def test_what_is_in_use_is_not_there_to_buy() -> None:
    """The limit is sixteen, twelve are taken: one machine of four remains."""
    plan = limited(some_pods(4, cpu="3"), {"cpu": "16"}, {"cpu": "4"})
    assert len(plan.claims) == 1


def test_machines_no_larger_than_the_limit_leaves_are_listed() -> None:
    """Whatever of the claim's types is launched, the limit holds."""
    plan = limited([a_pod(cpu="1")], {"cpu": "8"})
    (claim,) = plan.claims
    assert set(claim.instance_types) <= {"general-2", "general-4", "general-8"}


def test_a_limit_of_one_pool_sends_the_rest_to_another() -> None:
    """Each pool takes what its limit allows; the last ones wait."""
    pools = [
        a_nodepool("a", weight=3, limits={"cpu": "4"}),
        a_nodepool("b", weight=2, limits={"nodes": "1"}),
    ]
    plan = planned(a_problem(some_pods(12, cpu="3"), pools=pools))
    assert pools_used(plan) == ["a", "b"]
    assert len(refused(plan)) == 12 - sum(len(c.pods) for c in plan.claims)


def test_existing_nodes_are_used_whatever_the_limits_say() -> None:
    """A limit that is used up keeps nobody from nodes there are."""
    offer = an_offer(a_nodepool(limits={"cpu": "4"}), some_instance_types(), remaining={"cpu": "0"})
    plan = planned(a_problem(some_pods(2), pools=[offer], nodes=[a_view("node")]))
    assert refused(plan) == []


# --- minValues ---------------------------------------------------------------------------------------------

TYPES = [
    *(
        an_instance_type(
            f"{family}{n}",
            cpu=str(n),
            memory=f"{4 * n}Gi",
            labels={FAMILY: family, CORES: str(n)},
            capacity_types=["on-demand", "spot"],
        )
        for family in ("c", "m", "r")
        for n in (2, 4, 8)
    )
]


def least(key: str, count: int, operator: str = "Exists", *values: str) -> RequirementSpec:
    """Return a requirement with minValues."""
    return RequirementSpec(key=key, operator=operator, values=list(values), min_values=count)


def choosy(*requirements: RequirementSpec, **fields: object) -> PoolOffer:
    """Return a pool with such requirements over TYPES."""
    return an_offer(a_nodepool(requirements=requirements, **fields), TYPES)  # type: ignore[arg-type]


def with_choice(
    pods: list[Pod], *requirements: RequirementSpec, strict: bool = True, also: tuple[PoolOffer, ...] = ()
) -> Plan:
    """Return the plan for pods with one such pool, weight 9, and others."""
    return planned(
        a_problem(
            pods,
            pools=[choosy(*requirements, weight=9), *also],
            min_values_strict=strict,
            well_known_labels=WELL_KNOWN,
        )
    )


def values_listed(plan: Plan, key: str) -> list[int]:
    """Return how many different values of `key` the types of each claim have."""
    by_name = {t.name: t for t in TYPES}
    return [len({by_name[n].requirements.single_value(key) for n in c.instance_types}) for c in plan.claims]


@pytest.mark.parametrize(
    ("requirements", "fits"),
    [
        ([least(labels.INSTANCE_TYPE, 9)], True),
        ([least(labels.INSTANCE_TYPE, 10)], False),
        ([least(labels.INSTANCE_TYPE, 2, "In", "c2", "m2", "r2")], True),
        ([least(labels.INSTANCE_TYPE, 3, "In", "c2", "m2", "gone")], False),
        ([least(labels.INSTANCE_TYPE, 8, "NotIn", "c2")], True),
        ([least(labels.INSTANCE_TYPE, 9, "NotIn", "c2")], False),
        ([least(FAMILY, 3)], True),
        ([least(FAMILY, 4)], False),
        ([least(FAMILY, 2, "In", "c", "m")], True),
        ([least(CORES, 2, "Gt", "2")], True),
        ([least(CORES, 3, "Gt", "2")], False),
        ([least(CORES, 2, "Lt", "8")], True),
        ([least(CORES, 3, "Lt", "8")], False),
        ([least(CORES, 2, "Gte", "4")], True),
        ([least(CORES, 1, "Lte", "2")], True),
        ([least(FAMILY, 3), least(CORES, 3)], True),
        ([least(FAMILY, 3), least(CORES, 4)], False),
        ([least(FAMILY, 4), least(CORES, 3)], False),
        ([least(FAMILY, 1), least(FAMILY, 3)], True),
        ([least(FAMILY, 1), least(FAMILY, 4)], False),
        ([least(FAMILY, 2, "In", "c", "m", "r"), least(FAMILY, 2, "NotIn", "r")], True),
        ([least(FAMILY, 3, "In", "c", "m", "r"), least(FAMILY, 2, "NotIn", "r")], False),
        ([least(CORES, 2, "Gt", "2"), least(CORES, 1, "Lt", "8")], False),
        ([least(labels.CAPACITY_TYPE, 2)], True),
        ([least(labels.ZONE, 2)], True),
        ([least(labels.ZONE, 3)], False),
    ],
)
def test_strict_min_values(requirements: list[RequirementSpec], fits: bool) -> None:
    """Several on one key: the largest counts, over what all of them leave; short of it, nothing is bought."""
    plan = with_choice([a_pod()], *requirements)
    assert (refused(plan) == []) == fits
    for refusal in refusals(plan):
        assert refusal.constraint == "minValues"


def test_a_node_is_filled_only_while_enough_types_hold_it() -> None:
    """Eight-core types alone would be one family short of choice: nodes stay smaller."""
    plan = with_choice(some_pods(12, cpu="1"), least(CORES, 2))
    assert refused(plan) == []
    assert min(values_listed(plan, CORES)) >= 2
    assert all(c.requests["cpu"] <= 4000 for c in plan.claims)


def test_pods_do_not_join_where_they_would_narrow_the_choice() -> None:
    """A pod that needs one family gets no node where three are demanded; it waits, the other does not."""
    tied = a_pod("tied", node_selector={FAMILY: "c"})
    plan = with_choice([tied, a_pod("free")], least(FAMILY, 3))
    assert refused(plan) == ["tied"]
    assert values_listed(plan, FAMILY) == [3]


def test_a_pod_too_large_for_the_choice_waits() -> None:
    """Only three types hold seven cores; four are demanded."""
    assert (
        refusals(with_choice([a_pod(cpu="7")], least(labels.INSTANCE_TYPE, 4)))[0].constraint == "minValues"
    )
    assert refused(with_choice([a_pod(cpu="7")], least(labels.INSTANCE_TYPE, 3))) == []


def test_best_effort_lowers_what_cannot_be_had_and_says_so() -> None:
    """The claim keeps as many values as there are."""
    plan = with_choice([a_pod()], least(FAMILY, 5), least(CORES, 2), strict=False)
    (claim,) = plan.claims
    assert claim.min_values_relaxed
    assert claim.requirements[FAMILY].min_values == 3
    assert claim.requirements[CORES].min_values == 2


def test_best_effort_says_nothing_where_nothing_had_to_be_lowered() -> None:
    """A claim with all its choice is not marked."""
    (claim,) = with_choice([a_pod()], least(FAMILY, 3), strict=False).claims
    assert not claim.min_values_relaxed
    assert claim.requirements[FAMILY].min_values == 3


@pytest.mark.parametrize(("strict", "pool"), [(True, "light"), (False, "default")])
def test_best_effort_prefers_the_heavier_pool_with_less_choice(strict: bool, pool: str) -> None:
    """Strict goes to the next pool; best effort lowers the demand of the heavier one first."""
    light = an_offer(a_nodepool("light", weight=1), TYPES)
    plan = with_choice([a_pod()], least(FAMILY, 5), strict=strict, also=(light,))
    assert pools_used(plan) == [pool]


def test_min_values_survive_the_cut_to_six_hundred_types() -> None:
    """The values that are needed may belong to dear types: they are listed though six hundred are cheaper."""
    cheap = [an_instance_type(f"cheap{i:04d}", price=1 + i / 10000, labels={FAMILY: "x"}) for i in range(650)]
    dear = [an_instance_type(f"dear{i}", price=50 + i, labels={FAMILY: f"y{i}"}) for i in range(3)]
    offer = an_offer(a_nodepool(requirements=[least(FAMILY, 3)]), [*cheap, *dear])
    claim = the_claim(a_problem([a_pod()], pools=[offer], well_known_labels=WELL_KNOWN))
    assert len(claim.instance_types) == 600
    assert {"dear0", "dear1"} <= set(claim.instance_types)
    assert "dear2" not in claim.instance_types


def test_min_values_with_a_limit() -> None:
    """Both hold at once: enough types to choose from, none of them beyond the limit."""
    offer = choosy(least(labels.INSTANCE_TYPE, 4), limits={"cpu": "4"})
    plan = planned(a_problem(some_pods(4, cpu="1"), pools=[offer], well_known_labels=WELL_KNOWN))
    assert [len(c.instance_types) >= 4 for c in plan.claims] == [True]
    assert all(not name.endswith("8") for c in plan.claims for name in c.instance_types)


def test_unavailable_types_are_no_choice() -> None:
    """A type that is sold out does not count towards minValues."""
    gone = [
        msgspec.structs.replace(
            t, offerings=tuple(msgspec.structs.replace(o, available=False) for o in t.offerings)
        )
        if t.name.startswith("r")
        else t
        for t in TYPES
    ]
    offer = an_offer(a_nodepool(requirements=[least(FAMILY, 3)]), gone)
    plan = planned(a_problem([a_pod()], pools=[offer], well_known_labels=WELL_KNOWN))
    assert refusals(plan)[0].constraint == "minValues"


def test_min_values_of_a_key_that_pods_narrow() -> None:
    """Two of three families by the pod's own affinity: two are enough, three are not to be had."""
    pod = a_pod(affinity=node_affinity(required=[a_term((FAMILY, "In", ["c", "m"]))]))
    assert refused(with_choice([pod], least(FAMILY, 2))) == []
    assert refused(with_choice([pod], least(FAMILY, 3))) == ["pod"]
