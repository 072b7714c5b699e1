"""The nodes of a static pool go to the emptiest of the zones where they can be bought."""

import pytest

from karpenter.apis import labels as known
from karpenter.apis.karpenter import RequirementSpec
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirements
from karpenter.model.zones import in_zone, is_buyable, open_zones, pool_requirements, spread, zone_counts
from karpenter.testing.builders import a_nodeclaim, a_nodepool, an_instance_type, an_offering

SPOT, ON_DEMAND = known.CAPACITY_SPOT, known.CAPACITY_ON_DEMAND
ARM = {known.ARCH: "arm64"}
FAMILY = "example.com/family"


def market() -> list[InstanceType]:
    """Return two types for zone a, one of which zone b has, too (zone c is sold out), and one of ARM in d."""
    return [
        an_instance_type(
            "one",
            labels={FAMILY: "m"},
            offerings=[
                an_offering("a", ON_DEMAND),
                an_offering("b", SPOT),
                an_offering("c", available=False),
            ],
        ),
        an_instance_type("two", labels={FAMILY: "c"}, offerings=[an_offering("a", ON_DEMAND)]),
        an_instance_type("arm", arch="arm64", labels={FAMILY: "g"}, offerings=[an_offering("d", ON_DEMAND)]),
    ]


@pytest.mark.parametrize(
    ("wanted", "zones"),
    [
        ({known.ARCH: "amd64"}, ("a", "b")),
        ({}, ("a", "b", "d")),
        (ARM, ("d",)),
        ({known.CAPACITY_TYPE: SPOT}, ("b",)),
        ({known.ZONE: "c"}, ()),
        ({**ARM, known.CAPACITY_TYPE: SPOT}, ()),
    ],
)
def test_zones_are_open_where_something_can_be_bought(wanted: dict[str, str], zones: tuple[str, ...]) -> None:
    """Of a type that will do, by an offering that will do and is not sold out."""
    requirements = Requirements.from_labels(wanted)
    assert open_zones(requirements, market()) == zones
    assert is_buyable(requirements, market()) == bool(zones)


@pytest.mark.parametrize(
    ("requirement", "zones"),
    [
        (RequirementSpec(key=known.INSTANCE_TYPE, operator="Exists", min_values=2), ("a",)),
        (RequirementSpec(key=known.INSTANCE_TYPE, operator="Exists", min_values=1), ("a", "b", "d")),
        (RequirementSpec(key=known.INSTANCE_TYPE, operator="Exists", min_values=3), ()),
        (RequirementSpec(key=FAMILY, operator="In", values=["m", "g"], min_values=2), ()),
        (RequirementSpec(key=FAMILY, operator="In", values=["m", "g"], min_values=1), ("a", "b", "d")),
        (RequirementSpec(key=known.ZONE, operator="Exists", min_values=1), ("a", "b", "d")),
        (RequirementSpec(key=known.ZONE, operator="Exists", min_values=2), ()),
    ],
)
def test_zones_with_too_little_variety_are_left_out(
    requirement: RequirementSpec, zones: tuple[str, ...]
) -> None:
    """A node bound to one zone must still have as many values to choose from as minValues asks for."""
    wanted = Requirements.from_specs([requirement, RequirementSpec(key=known.ARCH, operator="Exists")])
    assert open_zones(wanted, market()) == zones


@pytest.mark.parametrize(
    ("there", "count", "chosen"),
    [
        ({}, 5, ["a", "b", "c", "a", "b"]),
        ({"a": 2, "b": 1}, 4, ["c", "b", "c", "a"]),
        ({"a": 1, "elsewhere": 0}, 1, ["b"]),
        ({"a": 9}, 0, []),
    ],
)
def test_the_emptiest_zone_is_filled_first(there: dict[str, int], count: int, chosen: list[str]) -> None:
    """Zones alike are taken by name; nodes elsewhere do not matter."""
    assert spread(["c", "a", "b"], there, count) == chosen
    assert spread([], there, count) == [""] * count


def test_nodes_count_where_they_are_or_will_be() -> None:
    """By their machine's zone, or the one that was asked for; those that may be anywhere are not counted."""
    there = a_nodeclaim("there", labels={known.ZONE: "a"}, requirements=[(known.ZONE, "In", ["a", "b"])])
    coming = a_nodeclaim("coming", requirements=[(known.ZONE, "In", ["b"])])
    anywhere = a_nodeclaim("anywhere", requirements=[(known.ZONE, "In", ["a", "b"])])
    assert zone_counts([there, coming, anywhere, a_nodeclaim("open")]) == {"a": 1, "b": 1}


def test_a_node_is_bound_to_its_zone_and_to_what_its_pool_says() -> None:
    """Template labels, pool and node class are requirements like those the user wrote; a zone is one more."""
    pool = a_nodepool("static", requirements=[(known.ARCH, "In", ["arm64"])], labels={"team": "blue"})
    wanted = pool_requirements(pool)
    reference = pool.spec.template.spec.node_class_ref
    for key, value in (
        (known.ARCH, "arm64"),
        ("team", "blue"),
        (known.NODEPOOL, "static"),
        (known.nodeclass_label(reference.group, reference.kind), reference.name),
    ):
        assert wanted.single_value(key) == value
    assert in_zone(wanted, "a") == wanted.merge(Requirements.from_labels({known.ZONE: "a"}))
    assert in_zone(wanted, "") == wanted
