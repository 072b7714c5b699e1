"""Which NodeOverlays are in force together."""

from collections.abc import Sequence
from itertools import permutations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis.karpenter import NodeOverlay
from karpenter.cloudprovider.overlayevaluation import Evaluation, PoolTypes, evaluate
from karpenter.cloudprovider.overlays import pool_labels
from karpenter.model.instancetype import InstanceType
from karpenter.testing.builders import a_nodepool, some_instance_types
from karpenter.testing.overlays import Raw, an_overlay, requirement

TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
CAPACITY_TYPE, POOL = "karpenter.sh/capacity-type", "karpenter.sh/nodepool"
TYPES = tuple(some_instance_types())


def judged(
    *overlays: NodeOverlay, pools: Sequence[PoolTypes] = (), types: tuple[InstanceType, ...] = TYPES
) -> Evaluation:
    """Return the verdict over one pool that may buy everything, unless `pools` are given."""
    return evaluate(overlays, pools or [PoolTypes(pool_labels(a_nodepool()), types)])


def in_force(evaluation: Evaluation) -> list[str]:
    """Return the names of accepted overlays in order of precedence."""
    return [overlay.name for overlay in evaluation.overlays]


SPOT, ON_DEMAND = requirement(CAPACITY_TYPE, "In", "spot"), requirement(CAPACITY_TYPE, "In", "on-demand")
SMALL, LARGE = requirement(TYPE, "In", "general-2"), requirement(TYPE, "In", "general-16")
ZONE_A, ZONE_B = requirement(ZONE, "In", "zone-a"), requirement(ZONE, "In", "zone-b")
GPU, FPGA = {"example.com/gpu": 1}, {"example.com/fpga": 1}


@pytest.mark.parametrize(
    ("left", "right", "conflict"),
    [
        (an_overlay("a", price="1"), an_overlay("b", price="2"), True),
        (an_overlay("a", price="1"), an_overlay("b", price="1"), True),
        (an_overlay("a", price="1"), an_overlay("b", priceAdjustment="-10%"), True),
        (an_overlay("a", price="1", weight=1), an_overlay("b", price="2"), False),
        (an_overlay("a", price="1", weight=7), an_overlay("b", price="2", weight=7), True),
        (an_overlay("a", SMALL, price="1"), an_overlay("b", LARGE, price="2"), False),
        (an_overlay("a", SMALL, price="1"), an_overlay("b", SPOT, price="2"), True),
        (an_overlay("a", SPOT, price="1"), an_overlay("b", ON_DEMAND, price="2"), False),
        (an_overlay("a", SPOT, ZONE_A, price="1"), an_overlay("b", SPOT, ZONE_B, price="2"), False),
        (an_overlay("a", SPOT, price="1"), an_overlay("b", ZONE_B, price="2"), True),
        (an_overlay("a", price="1"), an_overlay("b", capacity=GPU), False),
        (an_overlay("a", capacity=GPU), an_overlay("b", capacity=GPU), True),
        (an_overlay("a", capacity=GPU), an_overlay("b", capacity={"example.com/gpu": 2}), True),
        (an_overlay("a", capacity=GPU), an_overlay("b", capacity=FPGA), False),
        (an_overlay("a", capacity=GPU), an_overlay("b", capacity={**GPU, **FPGA}), True),
        (an_overlay("a", SMALL, capacity=GPU), an_overlay("b", LARGE, capacity=GPU), False),
        (an_overlay("a", ZONE_A, capacity=GPU), an_overlay("b", ZONE_B, capacity=GPU), True),
        (an_overlay("a", price="1"), an_overlay("b"), False),
        (an_overlay("a"), an_overlay("b"), False),
    ],
)
def test_conflicts(left: NodeOverlay, right: NodeOverlay, conflict: bool) -> None:
    """Two of one weight must not set the same price or resource; a resource is the whole type's."""
    for pair in ((left, right), (right, left)):
        evaluation = judged(*pair)
        assert ("a" in evaluation.rejected) is conflict
        assert "b" in in_force(evaluation)
    assert all(each.reason == "Conflict" for each in evaluation.rejected.values())


def test_three_of_one_weight() -> None:
    """The third conflicts with the first even when the second, in between, speaks of something else."""
    for overlays in permutations(
        [
            an_overlay("a", capacity=GPU),
            an_overlay("b", capacity=FPGA),
            an_overlay("c", capacity={**GPU, "example.com/nic": 1}),
        ]
    ):
        evaluation = judged(*overlays)
        assert in_force(evaluation) == ["c", "b"]
        assert "c, of the same weight (0), also sets example.com/gpu" in evaluation.rejected["a"].message


def test_the_rejected_do_not_reject() -> None:
    """An overlay that is not in force is in nobody's way."""
    evaluation = judged(
        an_overlay("a", SMALL, price="1"), an_overlay("b", price="2"), an_overlay("c", LARGE, price="3")
    )
    assert in_force(evaluation) == ["c", "a"]
    assert list(evaluation.rejected) == ["b"]


def test_other_weights_in_between_do_not_hide_a_conflict() -> None:
    """Equals conflict though a heavier one decides anyway."""
    overlays = [
        an_overlay("a", price="1"),
        an_overlay("b", price="2"),
        an_overlay("top", price="3", weight=2),
    ]
    evaluation = judged(*overlays)
    assert in_force(evaluation) == ["top", "b"]


def test_the_message() -> None:
    """It names the other overlay, the pool, the type and what of it is in conflict, and says what to do."""
    rejected = judged(an_overlay("a", SPOT, price="1"), an_overlay("b", price="2")).rejected
    assert rejected["a"].message == (
        "conflict with another overlay: b, of the same weight (0), also sets the price of general-2 (spot in "
        "zone-a) in nodepool default (and 7 more). Give one of them another weight, or requirements that do "
        "not overlap"
    )


@pytest.mark.parametrize("where", [requirement(POOL, "In", "blue"), requirement("team", "In", "blue")])
def test_pools_apart(where: Raw) -> None:
    """Overlays for different pools, by name or by template label, never meet."""
    pools = [
        PoolTypes(pool_labels(a_nodepool(name, labels={"team": name})), TYPES) for name in ("red", "blue")
    ]
    red = {**where, "values": ["red"]}
    overlays = [an_overlay("a", where, price="1"), an_overlay("b", red, price="2")]
    assert not judged(*overlays, pools=pools).rejected
    both = judged(*overlays, an_overlay("c", price="3"), pools=pools)
    assert sorted(both.rejected) == ["a", "b"]


def test_a_conflict_in_one_pool_rejects_everywhere() -> None:
    """No overlay is in force by halves."""
    pools = [PoolTypes(pool_labels(a_nodepool(name)), TYPES) for name in ("red", "blue")]
    overlays = [an_overlay("a", price="1"), an_overlay("b", requirement(POOL, "In", "red"), price="2")]
    assert in_force(judged(*overlays, pools=pools)) == ["b"]


def test_only_what_a_pool_can_buy_counts() -> None:
    """Overlays that meet only in offerings no pool may buy do not conflict."""
    pool = a_nodepool(requirements=[(CAPACITY_TYPE, "In", ["on-demand"])])
    pools = [PoolTypes(pool_labels(pool), TYPES)]
    overlays = [an_overlay("a", ZONE_A, SPOT, price="1"), an_overlay("b", SPOT, price="2")]
    assert not judged(*overlays, pools=pools).rejected
    assert judged(*overlays).rejected


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        (an_overlay("bad", requirement("a", "NotIn")), "NotIn needs at least one value"),
        (an_overlay("bad", requirement("a", "Gt", "x")), "exactly one whole number"),
        (an_overlay("bad", requirement("a", "Like", "x")), "not an operator"),
        (an_overlay("bad", capacity={"memory": "1Gi"}), "measured by the cloud provider"),
        (an_overlay("bad", capacity={"example.com/gpu": "-1"}), "negative"),
        (an_overlay("bad", capacity={"example.com/gpu": "many"}), "not a quantity"),
        (an_overlay("bad", price="cheap"), "no price"),
        (an_overlay("bad", priceAdjustment="10%"), "no price"),
    ],
)
def test_invalid_overlays(overlay: NodeOverlay, words: str) -> None:
    """An overlay that makes no sense is out, with the reason, and the others are not touched by it."""
    evaluation = judged(overlay, an_overlay("good", price="1"))
    assert in_force(evaluation) == ["good"]
    assert evaluation.rejected["bad"].reason == "RuntimeValidation"
    assert words in evaluation.rejected["bad"].message


def settings_of(overlay: NodeOverlay) -> set[tuple[str, ...]]:
    """Return what an overlay sets in one pool that may buy everything, by the definition, one by one."""
    found: set[tuple[str, ...]] = set()
    for kind in TYPES:
        for number, offering in enumerate(kind.offerings):
            labels = {TYPE: kind.name, ZONE: offering.zone, CAPACITY_TYPE: offering.capacity_type}
            if all(labels[r.key] in r.values for r in overlay.spec.requirements):
                if overlay.spec.price is not None:
                    found.add((kind.name, str(number)))
                found |= {(kind.name, resource) for resource in overlay.spec.capacity}
    return found


drawn = st.builds(
    lambda rules, weight, price, resources: {
        "requirements": rules,
        "weight": weight,
        "capacity": dict.fromkeys(resources, 1),
        **({"price": "1"} if price else {}),
    },
    st.lists(st.sampled_from([SPOT, ON_DEMAND, SMALL, LARGE, ZONE_A, ZONE_B]), max_size=2),
    st.integers(1, 2),
    st.booleans(),
    st.sets(st.sampled_from(["example.com/gpu", "example.com/fpga"])),
)


@given(st.lists(drawn, min_size=2, max_size=7), st.randoms(use_true_random=False))
def test_what_is_in_force_never_meets_and_nothing_is_rejected_in_vain(
    specs: list[Raw], random: Random
) -> None:
    """No two in force set one thing with one weight; each rejected one meets one of a later name in force."""
    overlays = [
        msgspec.convert({"metadata": {"name": f"o{i}"}, "spec": s}, NodeOverlay) for i, s in enumerate(specs)
    ]
    random.shuffle(overlays)
    evaluation = judged(*overlays)
    sets = {o.name: settings_of(o) for o in overlays}
    weights = {o.name: o.spec.weight for o in overlays}
    names = in_force(evaluation)
    assert sorted([*names, *evaluation.rejected]) == sorted(sets)
    for name in sets:
        rivals = [n for n in names if n > name and weights[n] == weights[name] and sets[n] & sets[name]]
        assert bool(rivals) == (name in evaluation.rejected)
        if rivals:
            assert all(rival in evaluation.rejected[name].message for rival in rivals)
