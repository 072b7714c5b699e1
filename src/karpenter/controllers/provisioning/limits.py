"""The last look at limits, before claims are written down: plans were made some time ago."""

from functools import cached_property

from karpenter.apis.annotations import micro_usd, price_limit
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.quantity import Resources, add, resources_of
from karpenter.controllers.context import Context
from karpenter.scheduling.purse import PRICE
from karpenter.state.rows import PlannedSize

CLUSTER_PRICE = "cluster price"


class Limits:
    """What pools are committed to, claim after claim of one batch."""

    def __init__(self, context: Context) -> None:
        """Start from what there is in `context`."""
        self._cluster = context.cluster
        self._most = context.settings.cluster_price_limit
        self._committed: dict[str, Resources] = {}
        self._added = 0

    @cached_property
    def _spending(self) -> dict[str, int]:
        return self._cluster.price_commitments()

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


def _price_limit(pool: NodePool) -> Resources:
    try:
        limit = price_limit(pool)
    except ValueError:
        return {}  # the pool's condition says so
    return {} if limit is None else {PRICE: limit}
