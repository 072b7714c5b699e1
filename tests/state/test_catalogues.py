"""What machines cost, by what their pools could buy when they were last asked."""

from karpenter.apis import labels as known
from karpenter.state.catalogues import Catalogues
from karpenter.testing.builders import a_nodeclaim, an_instance_type, an_offering, some_instance_types

TYPES = tuple(some_instance_types())


def test_a_price_is_that_of_type_zone_and_capacity_type() -> None:
    """From the claim's own pool; unknown places have none; a new catalogue replaces the old."""
    catalogues = Catalogues()
    offering = TYPES[0].offerings[0]
    labels = {
        known.INSTANCE_TYPE: TYPES[0].name,
        known.ZONE: offering.zone,
        known.CAPACITY_TYPE: offering.capacity_type,
    }
    claim = a_nodeclaim("c", labels=labels)
    assert catalogues.price(claim) is None
    assert catalogues.note("default", TYPES)
    assert not catalogues.note("default", TYPES)
    assert catalogues.price(claim) == offering.price
    assert catalogues.price(a_nodeclaim("c", labels={**labels, known.ZONE: "nowhere"})) is None
    catalogues.forget("default")
    assert catalogues.price(claim) is None


def test_reservations_in_one_place_have_prices_of_their_own() -> None:
    """A machine costs what its own reservation does; another, or none, is another price."""
    label = "example.com/reservation"
    catalogues = Catalogues(label)
    offerings = tuple(
        an_offering(capacity_type="reserved", price=price, labels={label: name})
        for name, price in (("first", 0.5), ("second", 0.2))
    )
    catalogues.note("default", (an_instance_type("m", offerings=offerings),))
    place = {known.INSTANCE_TYPE: "m", known.ZONE: offerings[0].zone, known.CAPACITY_TYPE: "reserved"}
    prices = [
        catalogues.price(a_nodeclaim("c", labels={**place, label: name}))
        for name in ("first", "second", "third")
    ]
    assert prices == [0.5, 0.2, None]
