"""What each pool could buy when it was last asked, and for how much."""

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim
from karpenter.model.instancetype import InstanceType

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

        Reservations share a place in the index with each other: the cheapest counts.
        """
        labels = claim.metadata.labels
        pool = labels.get(known.NODEPOOL, "")
        if pool not in self._prices:
            self._prices[pool] = _prices(self.of(pool))
        keys = (known.INSTANCE_TYPE, known.ZONE, known.CAPACITY_TYPE)
        place = (labels.get(keys[0], ""), labels.get(keys[1], ""), labels.get(keys[2], ""))
        return self._prices[pool].get(place)


def _prices(types: tuple[InstanceType, ...]) -> Prices:
    found: Prices = {}
    for instance_type in types:
        for offering in instance_type.offerings:
            place = (instance_type.name, offering.zone, offering.capacity_type)
            found[place] = min(offering.price, found.get(place, offering.price))
    return found
