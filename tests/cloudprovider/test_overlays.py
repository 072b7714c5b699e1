"""What one instance type looks like under NodeOverlays."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis.karpenter import NodeOverlay
from karpenter.cloudprovider.overlays import (
    PoolLabels,
    adjusted_price,
    by_precedence,
    matching_offerings,
    overlaid,
    overlay_of,
    pool_labels,
    scoped,
)
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.testing.builders import a_nodepool, an_instance_type, an_offering
from karpenter.testing.overlays import Raw, an_overlay, requirement


def under(kind: InstanceType, *overlays: NodeOverlay, pool: PoolLabels | None = None) -> InstanceType:
    """Return `kind` as `overlays` make it, in their order of precedence."""
    scopes = [scoped(overlay_of(o), pool or POOL) for o in by_precedence(overlays)]
    return overlaid(kind, [scope for scope in scopes if scope is not None])


def matching(overlay: NodeOverlay, pool: PoolLabels, kind: InstanceType) -> tuple[int, ...]:
    """Return which offerings of `kind` an overlay is for in `pool`."""
    scope = scoped(overlay_of(overlay), pool)
    return matching_offerings(scope, kind) if scope is not None else ()


POOL = pool_labels(a_nodepool("default", labels={"team": "blue"}))
KIND = an_instance_type(
    "general-4",
    labels={"size": "small"},
    offerings=[
        an_offering("zone-a", "on-demand", 1.0),
        an_offering("zone-a", "spot", 0.4),
        an_offering("zone-b", "spot", 0.5),
    ],
)


def prices(kind: InstanceType) -> list[float]:
    """Return the prices of all offerings, in order."""
    return [o.price for o in kind.offerings]


@pytest.mark.parametrize(
    ("price", "change", "result"),
    [
        (1.0, "", 1.0),
        (1.0, "0.25", 0.25),
        (1.0, "0", 0.0),
        (1.0, "+0.5", 1.5),
        (1.0, "-0.5", 0.5),
        (1.0, "-.5", 0.5),
        (1.0, "-3", 0.0),
        (2.0, "+10%", 2.2),
        (2.0, "-10%", 1.8),
        (2.0, "-100%", 0.0),
        (2.0, "+250.5%", 7.01),
    ],
)
def test_prices(price: float, change: str, result: float) -> None:
    """Without a sign it is the price; with one it is added, in percent or dollars; never below nothing."""
    assert adjusted_price(price, change) == pytest.approx(result)


@pytest.mark.parametrize("change", ["10%", "abc", "1e3", "++1", "- 1", "1.", "%"])
def test_prices_that_are_none(change: str) -> None:
    """What cannot be a price is named, with an example of one."""
    with pytest.raises(ValueError, match="is no price"):
        adjusted_price(1.0, change)


def test_precedence() -> None:
    """The heaviest comes first; among equals, and an unset weight is 0, the name that sorts last."""
    overlays = [
        an_overlay("a"),
        an_overlay("b", weight=5),
        an_overlay("c", weight=10),
        an_overlay("d", weight=5),
        an_overlay("e"),
    ]
    assert [o.name for o in by_precedence(overlays)] == ["c", "d", "b", "e", "a"]


@pytest.mark.parametrize(
    ("requirements", "offerings"),
    [
        ([], (0, 1, 2)),
        ([requirement("node.kubernetes.io/instance-type", "In", "general-4", "x")], (0, 1, 2)),
        ([requirement("node.kubernetes.io/instance-type", "NotIn", "general-4")], ()),
        ([requirement("topology.kubernetes.io/zone", "In", "zone-b")], (2,)),
        ([requirement("topology.kubernetes.io/zone", "NotIn", "zone-b")], (0, 1)),
        ([requirement("karpenter.sh/capacity-type", "In", "spot")], (1, 2)),
        (
            [
                requirement("karpenter.sh/capacity-type", "In", "on-demand"),
                requirement("topology.kubernetes.io/zone", "In", "zone-b"),
            ],
            (),
        ),
        ([requirement("size", "Exists")], (0, 1, 2)),
        ([requirement("size", "DoesNotExist")], ()),
        ([requirement("unknown", "Exists")], ()),
        ([requirement("unknown", "In", "a")], ()),
        ([requirement("unknown", "NotIn", "a")], (0, 1, 2)),
        ([requirement("unknown", "DoesNotExist")], (0, 1, 2)),
        ([requirement("karpenter.sh/nodepool", "In", "default")], (0, 1, 2)),
        ([requirement("karpenter.sh/nodepool", "In", "other")], ()),
        ([requirement("team", "In", "blue")], (0, 1, 2)),
        ([requirement("team", "In", "red")], ()),
        ([requirement("size", "In", "small"), requirement("size", "In", "large")], ()),
    ],
)
def test_matching(requirements: Sequence[Raw], offerings: tuple[int, ...]) -> None:
    """Types, pools and offerings must have the labels; a label nobody defines matches only its absence."""
    assert matching(an_overlay("o", *requirements), POOL, KIND) == offerings


def test_a_pools_requirement_that_leaves_no_choice_is_a_label() -> None:
    """A pool that requires `tier In [gold]` has nodes of that label; of two values it may be either."""
    wanted = an_overlay("o", requirement("tier", "In", "gold"))
    for values, matches in ((["gold"], True), (["gold", "iron"], False), (["iron"], False)):
        pool = pool_labels(a_nodepool(requirements=[("tier", "In", values)]))
        assert bool(matching(wanted, pool, KIND)) is matches


def test_a_price_for_some_offerings() -> None:
    """Only what the overlay is for changes; the rest are the same objects."""
    seen = under(KIND, an_overlay("o", requirement("karpenter.sh/capacity-type", "In", "spot"), price="0.1"))
    assert prices(seen) == [1.0, 0.1, 0.1]
    assert seen.offerings[0] is KIND.offerings[0]
    assert (seen.price_overlaid, seen.capacity_overlaid) == (True, False)
    assert prices(KIND) == [1.0, 0.4, 0.5]


def test_nothing_of_an_offering_is_lost() -> None:
    """Stock, hazard, availability and requirements stay what they were."""
    before = msgspec.structs.replace(KIND.offerings[1], available=False, hazard=0.25, stock=3)
    kind = msgspec.structs.replace(KIND, offerings=(before,))
    after = under(kind, an_overlay("o", price="0.1")).offerings[0]
    assert after == msgspec.structs.replace(before, price=0.1)


def test_an_extended_resource() -> None:
    """It is in the capacity and in what pods can use; labels do not change."""
    seen = under(KIND, an_overlay("o", requirement("size", "In", "small"), capacity={"example.com/gpu": 2}))
    assert seen.capacity == {**KIND.capacity, "example.com/gpu": 2}
    assert seen.allocatable == {**KIND.allocatable, "example.com/gpu": 2}
    assert seen.requirements is KIND.requirements
    assert seen.offerings is KIND.offerings
    assert (seen.price_overlaid, seen.capacity_overlaid) == (False, True)


def test_huge_pages_come_out_of_memory() -> None:
    """Overlaid huge pages are not there for ordinary memory."""
    seen = under(KIND, an_overlay("o", capacity={"hugepages-2Mi": "1Gi"}))
    assert seen.allocatable["memory"] == KIND.allocatable["memory"] - 2**30


def test_an_overlay_s_capacity_is_for_offerings_of_another_size_too() -> None:
    """What an offering overrides stays, but for the resources that the overlay names."""
    own = msgspec.structs.replace(an_offering(), capacity_override={"cpu": 8000, "example.com/gpu": 8})
    kind = an_instance_type("gpu", offerings=[own], extra={"example.com/gpu": "1"})
    seen = under(kind, an_overlay("o", capacity={"example.com/gpu": "4"}))
    machine = seen.bought_as(seen.offerings[0])
    assert (machine.capacity["cpu"], machine.capacity["example.com/gpu"]) == (8000, 4)
    priced = under(kind, an_overlay("o", price="0.1"))
    assert priced.offerings[0].capacity_override == own.capacity_override


def test_a_resource_the_cloud_knows_is_replaced() -> None:
    """An overlay corrects what the cloud says of a device."""
    kind = an_instance_type("gpu", extra={"example.com/gpu": "8"})
    assert under(kind, an_overlay("o", capacity={"example.com/gpu": "4"})).capacity["example.com/gpu"] == 4


def test_the_heaviest_decides_thing_by_thing() -> None:
    """Price per offering, capacity per resource: each from the first overlay that speaks of it."""
    seen = under(
        KIND,
        an_overlay("low", price="0.9", capacity={"example.com/a": 1, "example.com/b": 1}),
        an_overlay("mid", requirement("karpenter.sh/capacity-type", "In", "spot"), weight=5, price="0.2"),
        an_overlay(
            "top",
            requirement("topology.kubernetes.io/zone", "In", "zone-b"),
            weight=10,
            priceAdjustment="+50%",
            capacity={"example.com/a": 7},
        ),
    )
    assert prices(seen) == [0.9, 0.2, 0.75]
    assert {k: v for k, v in seen.capacity.items() if "/" in k} == {"example.com/a": 7, "example.com/b": 1}


def test_types_no_overlay_is_for_stay_the_same_object() -> None:
    """Identity tells that nothing changed."""
    assert under(KIND, an_overlay("o", requirement("size", "In", "large"), price="1")) is KIND
    assert under(KIND, an_overlay("idle")) is KIND
    assert under(KIND) is KIND


offers = st.builds(
    lambda zone, capacity_type, price, available: an_offering(
        zone, capacity_type, price, available=available
    ),
    st.sampled_from(["zone-a", "zone-b", "zone-c"]),
    st.sampled_from(["spot", "on-demand"]),
    st.floats(0.01, 10),
    st.booleans(),
)
changes = st.sampled_from(["0.5", "+1", "-1", "-10%", "+10%", ""])
rules = st.lists(
    st.one_of(
        st.sampled_from(["zone-a", "zone-b"]).map(
            lambda z: requirement("topology.kubernetes.io/zone", "In", z)
        ),
        st.sampled_from(["spot", "on-demand"]).map(
            lambda c: requirement("karpenter.sh/capacity-type", "NotIn", c)
        ),
    ),
    max_size=2,
)


@given(
    st.lists(offers, min_size=1, max_size=6),
    st.lists(st.tuples(rules, changes, st.integers(1, 3)), max_size=5),
)
def test_prices_follow_the_first_match(
    offerings: list[Offering], drawn: list[tuple[list[Raw], str, int]]
) -> None:
    """Each offering has the price of the first overlay in order that matches it; all else is as it was."""
    kind = an_instance_type("any", offerings=offerings)
    overlays = [
        an_overlay(f"o{i}", *rule, weight=weight, **({"priceAdjustment": change} if change else {}))
        for i, (rule, change, weight) in enumerate(drawn)
    ]
    seen = under(kind, *overlays)
    ordered = by_precedence(overlays)
    for number, offering in enumerate(offerings):
        changes = [o.spec.price_adjustment for o in ordered if number in matching(o, POOL, kind)]
        change = next(filter(None, changes), "")
        price = adjusted_price(offering.price, change)
        assert seen.offerings[number] == msgspec.structs.replace(offering, price=price)
    assert (seen is kind) == (not seen.price_overlaid)
