"""What a node costs is the price of the offering that it was bought by."""

import math

import pytest

from karpenter.apis import labels
from karpenter.model.prices import price_of
from karpenter.testing.builders import an_instance_type, an_offering

RESERVATION = "example.com/reservation"
ON_DEMAND, SPOT, RESERVED = labels.CAPACITY_ON_DEMAND, labels.CAPACITY_SPOT, labels.CAPACITY_RESERVED
KIND = an_instance_type(
    offerings=[
        an_offering("a", ON_DEMAND, 1.0),
        an_offering("a", SPOT, 0.3, available=False),
        an_offering("b", ON_DEMAND, 1.2),
        an_offering("b", ON_DEMAND, 1.1),
        an_offering("b", SPOT, math.nan),
        an_offering("a", RESERVED, 0.5, labels={RESERVATION: "r1"}),
        an_offering("a", RESERVED, 0.4, labels={RESERVATION: "r2"}),
    ]
)


@pytest.mark.parametrize(
    ("zone", "capacity_type", "reservation", "price"),
    [
        ("a", ON_DEMAND, "", 1.0),
        ("a", SPOT, "", 0.3),
        ("b", ON_DEMAND, "", 1.1),
        ("b", SPOT, "", None),
        ("c", ON_DEMAND, "", None),
        ("a", RESERVED, "r1", 0.5),
        ("a", RESERVED, "r2", 0.4),
        ("a", RESERVED, "r3", None),
        ("a", RESERVED, "", None),
    ],
)
def test_the_price_is_that_of_zone_capacity_type_and_reservation(
    zone: str, capacity_type: str, reservation: str, price: float | None
) -> None:
    """Whether or not more can be had; the cheapest of those that no label tells apart; None: not known."""
    node = {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type}
    if reservation:
        node[RESERVATION] = reservation
    assert price_of(KIND, node, RESERVATION) == price
    assert price_of(None, node, RESERVATION) is None


def test_without_reservations_zone_and_capacity_type_say_it_all() -> None:
    """A cloud that knows no reservations: the cheapest offering of the place."""
    node = {labels.ZONE: "a", labels.CAPACITY_TYPE: RESERVED, RESERVATION: "r1"}
    assert price_of(KIND, node) == 0.4
