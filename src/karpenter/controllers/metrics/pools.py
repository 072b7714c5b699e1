"""What pools may have and what they have."""

from karpenter.base.quantity import to_units
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.series import Series
from karpenter.runtime import Result, Singleton

_PERIOD_SECONDS = 10.0


class PoolMetrics:
    """Rebuilt every ten seconds."""

    def __init__(self, context: Context) -> None:
        self._context = context
        names = ["resource_type", "nodepool"]
        self._limit = Series(context.metrics, "karpenter_nodepools_limit", "spec.limits.", names)
        self._usage = Series(context.metrics, "karpenter_nodepools_usage", "status.resources.", names)
        self.controller = Singleton(
            "metrics.nodepool", self._refresh, clock=context.clock, rng=context.rng, metrics=context.metrics
        )

    async def _refresh(self) -> Result:
        limits: dict[tuple[str, ...], float] = {}
        usage: dict[tuple[str, ...], float] = {}
        for pool in self._context.cluster.managed_pools():
            for amounts, target in ((pool.spec.limits, limits), (pool.status.resources, usage)):
                for resource, quantity in amounts.items():
                    units = to_units(resource, str(quantity))
                    target[(resource, pool.name)] = units / 1000.0 if resource == "cpu" else float(units)
        self._limit.replace(limits)
        self._usage.replace(usage)
        return Result(requeue_after=_PERIOD_SECONDS)
