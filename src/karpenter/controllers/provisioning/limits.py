"""The last look at limits, before claims are written down: plans were made some time ago.

A claim lists several offerings, of which the cloud takes the cheapest that it still has. Where money is
limited, a claim counts as the dearest it may become; when that is more than there is, it is pinned to
offerings that cost no more than the one it was planned for. So no launch ever passes a limit on money.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.annotations import micro_usd, price_limit
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.quantity import Resources, add, resources_of
from karpenter.controllers.context import Context
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import PlannedClaim
from karpenter.model.requirements import Requirement
from karpenter.scheduling.purse import PRICE
from karpenter.scheduling.stock import sources
from karpenter.state.rows import PlannedSize

CLUSTER_PRICE = "cluster price"


class Choice(NamedTuple):
    """One thing that a claim may become; ordered by price."""

    price: float
    name: str
    zone: str
    capacity_type: str
    available: bool


class Limits:
    """What pools are committed to, claim after claim of one batch."""

    def __init__(self, context: Context, wishes: Sequence[PlannedClaim]) -> None:
        """Start from what there is in `context`; `wishes` are all that will be asked about."""
        self._cluster = context.cluster
        self._reservation_label = context.provider.reservation_label
        self._most = context.settings.cluster_price_limit
        self._committed: dict[str, Resources] = {}
        self._added = 0
        self._dearest: dict[object, float] = {}
        self._pinned: dict[object, PlannedClaim] = {}
        self._roomy = self._with_room_for_all(wishes)

    @cached_property
    def _spending(self) -> dict[str, int]:
        return self._cluster.price_commitments()

    def safe(self, pool: NodePool, wish: PlannedClaim) -> PlannedClaim:
        """Return `wish` so that its price is the most that it can come to cost, where money is limited."""
        if self._most is None and not _price_limit(pool):
            return wish
        if pool.name in self._roomy:
            return msgspec.structs.replace(wish, price=self._dearest_of(pool, wish))
        key = (pool.name, wish.requirements, wish.instance_types, wish.price, wish.lot)
        if key not in self._pinned:
            self._pinned[key] = pinned(wish, self._choices(pool, wish))
        best = self._pinned[key]
        return msgspec.structs.replace(
            wish, requirements=best.requirements, instance_types=best.instance_types, price=best.price
        )

    def passed(self, pool: NodePool, draft: NodeClaim, price: float) -> list[str]:
        """Return the limits that `draft`, which costs `price` USD per hour, would pass; count it if none."""
        limits, micro = {**resources_of(pool.spec.limits), **_price_limit(pool)}, micro_usd(price)
        found: list[str] = []
        if self._most is not None and sum(self._spending.values()) + self._added + micro > self._most:
            found.append(CLUSTER_PRICE)
        after: Resources = {}
        if limits:
            size = PlannedSize(draft, self._cluster.catalogue(pool.name)).most
            after = add(self._before(pool.name, limits), {**size, PRICE: micro})
            found += sorted(name for name, limit in limits.items() if after.get(name, 0) > limit)
        if not found:
            self._added += micro
            if limits:
                self._committed[pool.name] = after
        return found

    def _before(self, pool: str, limits: Resources) -> Resources:
        if pool not in self._committed:
            spent = self._spending.get(pool, 0) if PRICE in limits else 0
            self._committed[pool] = {**self._cluster.pool_commitment(pool), PRICE: spent}
        return self._committed[pool]

    def _with_room_for_all(self, wishes: Sequence[PlannedClaim]) -> set[str]:
        """Return the pools that can pay for all their wishes, were each to become the dearest it may."""
        pools = {wish.pool.name: self._cluster.pool(wish.pool.name) or wish.pool for wish in wishes}
        limits = {name: _price_limit(pool).get(PRICE) for name, pool in pools.items()}
        if self._most is None and all(limit is None for limit in limits.values()):
            return set(pools)
        needs = dict.fromkeys(pools, 0)
        for wish in wishes:
            needs[wish.pool.name] += micro_usd(self._dearest_of(pools[wish.pool.name], wish))
        if self._most is not None and sum(self._spending.values()) + sum(needs.values()) > self._most:
            return set()
        return {
            name
            for name, limit in limits.items()
            if limit is None or self._spending.get(name, 0) + needs[name] <= limit
        }

    def _dearest_of(self, pool: NodePool, wish: PlannedClaim) -> float:
        key = (pool.name, wish.requirements, wish.instance_types, wish.lot)
        if key not in self._dearest:
            self._dearest[key] = max((c.price for c in self._choices(pool, wish)), default=wish.price)
        return self._dearest[key]

    def _choices(self, pool: NodePool, wish: PlannedClaim) -> list[Choice]:
        return list(choices(wish, self._cluster.catalogue(pool.name), self._reservation_label))


def choices(wish: PlannedClaim, types: Sequence[InstanceType], reservation_label: str) -> Iterator[Choice]:
    """Yield what a claim may become, also what is sold out at present."""
    listed = wish.requirements.get(known.INSTANCE_TYPE)
    for kind in types:
        if not listed.has(kind.name) or wish.requirements.intersects(kind.requirements):
            continue
        for offering in kind.offerings:
            if not wish.requirements.intersects(offering.requirements):
                agreed = [s.price for s in sources(kind, offering, reservation_label) if s.lot == wish.lot]
                price = agreed[0] if agreed else offering.price
                yield Choice(price, kind.name, offering.zone, offering.capacity_type, offering.available)


def pinned(wish: PlannedClaim, found: Sequence[Choice]) -> PlannedClaim:
    """Return `wish` without what costs more than it was planned for, or than the cheapest if it was not.

    It keeps one capacity type and as many types and zones as cost no more in any combination. Where minValues
    need more than that it stays as it is, at the price of the dearest it may become.
    """
    best = min((choice for choice in found if choice.available), default=None)
    if best is None:
        return wish
    if wish.requirements.has_min_values:
        return msgspec.structs.replace(wish, price=max(found).price)
    price = wish.price or best.price
    prices: dict[tuple[str, str], float] = {}
    for choice in found:
        if choice.capacity_type == best.capacity_type:
            place = (choice.name, choice.zone)
            prices[place] = max(choice.price, prices.get(place, 0.0))
    names = sorted(name for (name, zone), most in prices.items() if zone == best.zone and most <= price)
    zones = [
        zone
        for zone in sorted({zone for _, zone in prices})
        if all(prices.get((name, zone), 0.0) <= price for name in names)
    ]
    requirements = wish.requirements.add(
        Requirement.of(known.INSTANCE_TYPE, "In", names),
        Requirement.of(known.CAPACITY_TYPE, "In", [best.capacity_type]),
        *([Requirement.of(known.ZONE, "In", zones)] if best.zone else []),
    )
    kept = tuple(name for name in wish.instance_types if name in set(names))
    return msgspec.structs.replace(wish, requirements=requirements, instance_types=kept, price=price)


def _price_limit(pool: NodePool) -> Resources:
    try:
        limit = price_limit(pool)
    except ValueError:
        return {}  # the pool's condition says so
    return {} if limit is None else {PRICE: limit}
