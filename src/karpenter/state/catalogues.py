"""What each pool could buy when it was last asked, and for how much."""

from karpenter.apis import labels as known
from karpenter.apis.annotations import PLANNED_LOT, PLANNED_PRICE, micro_usd
from karpenter.apis.karpenter import NodeClaim
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirements
from karpenter.scheduling.stock import STEP

Prices = dict[tuple[str, str, str], float]
"""USD per hour by instance type, zone and capacity type."""


class Catalogues:
    """Instance types by pool, and an index of their prices that is made when first asked for."""

    def __init__(self) -> None:
        self._types: dict[str, tuple[InstanceType, ...]] = {}
        self._prices: dict[str, Prices] = {}

    def of(self, pool: str) -> tuple[InstanceType, ...]:
        """Return what a pool could buy; empty when it was never asked."""
        return self._types.get(pool, ())

    def note(self, pool: str, types: tuple[InstanceType, ...]) -> bool:
        """Take in what a pool can buy; tell whether that is another catalogue than before."""
        if self._types.get(pool) is types:
            return False
        self._types[pool] = types
        self._prices.pop(pool, None)
        return True

    def forget(self, pool: str) -> None:
        """Drop a pool that is gone."""
        self._types.pop(pool, None)
        self._prices.pop(pool, None)

    def price(self, claim: NodeClaim) -> float | None:
        """Return what a claim's machine costs, USD per hour; None when its offering is not in the catalogue.

        Reservations share a place in the index with each other: the cheapest counts. A machine bought at a
        step of its price keeps that.
        """
        if STEP in claim.metadata.annotations.get(PLANNED_LOT, ""):
            agreed = _planned_price(claim)
            if agreed is not None:
                return agreed
        labels = claim.metadata.labels
        pool = labels.get(known.NODEPOOL, "")
        if pool not in self._prices:
            self._prices[pool] = _prices(self.of(pool))
        keys = (known.INSTANCE_TYPE, known.ZONE, known.CAPACITY_TYPE)
        place = (labels.get(keys[0], ""), labels.get(keys[1], ""), labels.get(keys[2], ""))
        return self._prices[pool].get(place)

    def commitment(self, claim: NodeClaim) -> int:
        """Return what a claim counts against price limits, micro-USD per hour.

        A machine counts with its offering's price, or with the dearest of its type where the catalogue does
        not have that offering any more; a claim on its way with the price it was planned for, else the least
        that any of its offerings costs. What nothing is known of counts nothing.
        """
        price = self.price(claim)
        if price is None and not claim.status.provider_id:
            price = _planned_price(claim)
        if price is None:
            index = self._prices.get(claim.metadata.labels.get(known.NODEPOOL, ""), {})
            if claim.status.provider_id:
                kind = claim.metadata.labels.get(known.INSTANCE_TYPE, "")
                price = max((p for place, p in index.items() if place[0] == kind), default=0.0)
            else:
                price = _cheapest(claim, index)
        return micro_usd(price)


def _planned_price(claim: NodeClaim) -> float | None:
    try:
        price = float(claim.metadata.annotations.get(PLANNED_PRICE, "nan"))
    except ValueError:
        return None
    return price if 0 <= price < float("inf") else None


def _cheapest(claim: NodeClaim, index: Prices) -> float:
    wanted = Requirements.from_specs(claim.spec.requirements)
    asked = [wanted.get(key) for key in (known.INSTANCE_TYPE, known.ZONE, known.CAPACITY_TYPE)]
    fitting = (
        price
        for place, price in index.items()
        if all(requirement.has(value) for requirement, value in zip(asked, place, strict=True))
    )
    return min(fitting, default=0.0)


def _prices(types: tuple[InstanceType, ...]) -> Prices:
    found: Prices = {}
    for instance_type in types:
        for offering in instance_type.offerings:
            place = (instance_type.name, offering.zone, offering.capacity_type)
            found[place] = min(offering.price, found.get(place, offering.price))
    return found
