"""Types whose offerings are not all of one size."""

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.base.quantity import resources_of
from karpenter.model.instancetype import Offering
from karpenter.model.sizes import by_size, cautious, sizes, smallest
from karpenter.testing.builders import an_instance_type, an_offering

GIB = 2**30


def larger(zone: str, cpu: str = "8") -> Offering:
    """Return an offering whose machines have so many cores."""
    return replace(an_offering(zone), capacity_override=resources_of({"cpu": cpu}))


def test_a_type_falls_into_its_sizes() -> None:
    """The type's own size first, then others as listed; equal sizes together; each keeps its name."""
    kind = an_instance_type(
        "t",
        cpu="4",
        offerings=[larger("zone-a"), an_offering("zone-b"), larger("zone-c"), larger("zone-d", "4")],
    )
    found = [(s.name, s.capacity["cpu"], [o.zone for o in s.offerings]) for s in sizes(kind)]
    assert found == [("t", 4000, ["zone-b", "zone-d"]), ("t", 8000, ["zone-a", "zone-c"])]


def test_a_type_whose_every_offering_overrides_has_no_other_size() -> None:
    """What no offering gives is no size."""
    (only,) = sizes(an_instance_type("t", cpu="4", offerings=[larger("zone-a")]))
    assert only.capacity["cpu"] == 8000


def test_without_overrides_nothing_is_made_anew() -> None:
    """The very same objects come back."""
    types = (an_instance_type("a"), an_instance_type("b"))
    assert sizes(types[0]) == (types[0],)
    assert by_size(types) is types
    assert smallest(types) == types


def test_overrides_replace_and_add() -> None:
    """Named resources are replaced or added, in capacity and in overhead; huge pages come out of memory."""
    kind = an_instance_type("t", cpu="4", memory="16Gi", overhead={"cpu": "100m", "memory": "1Gi"})
    offering = replace(
        an_offering(),
        capacity_override=resources_of({"cpu": "8", "hugepages-2Mi": "2Gi"}),
        overhead_override=resources_of({"cpu": "0"}),
    )
    machine = kind.bought_as(offering)
    assert machine.capacity == kind.capacity | {"cpu": 8000, "hugepages-2Mi": 2 * GIB}
    assert machine.allocatable["cpu"] == 8000
    assert machine.allocatable["memory"] == 13 * GIB


def test_what_can_be_relied_on_of_several_machines() -> None:
    """Pods can use what each of them has; limits count what the largest has."""
    kind = an_instance_type("t", cpu="4", memory="16Gi", overhead={"cpu": "1"})
    paged = replace(an_offering(), capacity_override=resources_of({"cpu": "8", "hugepages-2Mi": "2Gi"}))
    found = cautious([kind, kind.bought_as(paged)])
    assert found.capacity == kind.capacity | {"cpu": 8000, "hugepages-2Mi": 2 * GIB}
    assert found.allocatable == kind.allocatable | {"memory": 14 * GIB, "hugepages-2Mi": 0}


def test_offerings_that_requirements_cannot_tell_apart_have_one_size() -> None:
    """Two of one zone and capacity type are as small as the smaller; others keep theirs."""
    kind = an_instance_type(
        "t", cpu="4", offerings=[an_offering("zone-a"), larger("zone-a"), larger("zone-b")]
    )
    found = [(s.allocatable["cpu"], [o.zone for o in s.offerings]) for s in sizes(kind)]
    assert found == [(4000, ["zone-a", "zone-a"]), (8000, ["zone-b"])]


def test_an_offering_that_may_be_either_joins_all_that_it_overlaps() -> None:
    """One that is open for two zones cannot be told from those of either."""
    wide = replace(an_offering("zone-a"), requirements=an_offering().requirements.without(labels.ZONE))
    offerings = [an_offering("zone-a"), larger("zone-b"), wide, an_offering("zone-c", "spot")]
    found = [
        (s.allocatable["cpu"], len(s.offerings)) for s in sizes(an_instance_type("t", offerings=offerings))
    ]
    assert found == [(4000, 1), (4000, 3)]


def test_the_smallest_keeps_every_offering() -> None:
    """Where a type must not be divided it is as small as any of its offerings."""
    (found,) = smallest(
        (an_instance_type("t", cpu="4", offerings=[an_offering("zone-a"), larger("zone-b")]),)
    )
    assert (found.allocatable["cpu"], found.capacity["cpu"], len(found.offerings)) == (4000, 8000, 2)
