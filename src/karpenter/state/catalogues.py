"""What each pool could buy when it was last asked, and for how much."""

import math
from collections.abc import Iterable

from karpenter.apis import labels as known
from karpenter.apis.annotations import PLANNED_LOT, PLANNED_PRICE, micro_usd
from karpenter.apis.karpenter import NodeClaim
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.prices import price_of
from karpenter.model.requirements import Requirements
from karpenter.scheduling.stock import STEP


class Catalogues:
    """Instance types by pool, and by name when first asked for."""

    def __init__(self, reservation_label: str = "") -> None:
        """Begin with nothing; machines and offerings carry their reservation under `reservation_label`."""
        self._reservation_label = reservation_label
        self._types: dict[str, tuple[InstanceType, ...]] = {}
        self._named: dict[str, dict[str, InstanceType]] = {}

    def of(self, pool: str) -> tuple[InstanceType, ...]:
        """Return what a pool could buy; empty when it was never asked."""
        return self._types.get(pool, ())

    def note(self, pool: str, types: tuple[InstanceType, ...]) -> bool:
        """Take in what a pool can buy; tell whether that is another catalogue than before."""
        if self._types.get(pool) is types:
            return False
        self._types[pool] = types
        self._named.pop(pool, None)
        return True

    def forget(self, pool: str) -> None:
        """Drop a pool that is gone."""
        self._types.pop(pool, None)
        self._named.pop(pool, None)

    def price(self, claim: NodeClaim) -> float | None:
        """Return what a claim's machine costs, USD per hour; None when its offering is not in the catalogue.

        A machine bought at a step of its price keeps that.
        """
        if STEP in claim.metadata.annotations.get(PLANNED_LOT, ""):
            agreed = _planned_price(claim)
            if agreed is not None:
                return agreed
        return price_of(self._type_of(claim), claim.metadata.labels, self._reservation_label)

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
            if claim.status.provider_id:
                kind = self._type_of(claim)
                price = max(_known(kind.offerings if kind is not None else ()), default=0.0)
            else:
                price = _cheapest(claim, self.of(claim.metadata.labels.get(known.NODEPOOL, "")))
        return micro_usd(price)

    def _type_of(self, claim: NodeClaim) -> InstanceType | None:
        pool = claim.metadata.labels.get(known.NODEPOOL, "")
        if pool not in self._named:
            self._named[pool] = {kind.name: kind for kind in self.of(pool)}
        return self._named[pool].get(claim.metadata.labels.get(known.INSTANCE_TYPE, ""))


def _planned_price(claim: NodeClaim) -> float | None:
    try:
        price = float(claim.metadata.annotations.get(PLANNED_PRICE, "nan"))
    except ValueError:
        return None
    return price if 0 <= price < float("inf") else None


def _cheapest(claim: NodeClaim, types: Iterable[InstanceType]) -> float:
    wanted = Requirements.from_specs(claim.spec.requirements)
    kind, zone, capacity_type = (
        wanted.get(key) for key in (known.INSTANCE_TYPE, known.ZONE, known.CAPACITY_TYPE)
    )
    fitting = (
        offering
        for instance_type in types
        if kind.has(instance_type.name)
        for offering in instance_type.offerings
        if zone.has(offering.zone) and capacity_type.has(offering.capacity_type)
    )
    return min(_known(fitting), default=0.0)


def _known(offerings: Iterable[Offering]) -> Iterable[float]:
    return (offering.price for offering in offerings if not math.isnan(offering.price))
