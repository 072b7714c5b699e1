"""What pools may have and what they have."""

from karpenter.apis.annotations import MICRO, price_limit
from karpenter.base.quantity import to_units
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.reading import OnRead
from karpenter.controllers.metrics.series import Series


class PoolMetrics:
    """Rebuilt when it is read."""

    def __init__(self, context: Context) -> None:
        self._context = context
        names = ["resource_type", "nodepool"]
        self._limit = Series(context.metrics, "karpenter_nodepools_limit", "What spec.limits allows.", names)
        self._usage = Series(
            context.metrics, "karpenter_nodepools_usage", "What is used, by status.resources.", names
        )
        money = "USD per hour that a pool's machines cost, those on their way included."
        self._price = Series(context.metrics, "karpenter_nodepools_price_usd_per_hour", money, ["nodepool"])
        self._price_limit = Series(
            context.metrics,
            "karpenter_nodepools_price_limit_usd_per_hour",
            "The pool's annotation price-limit-per-hour.",
            ["nodepool"],
        )
        self._all = Series(
            context.metrics,
            "karpenter_cluster_price_usd_per_hour",
            "What all machines cost, USD per hour.",
            [],
        )
        self._all_limit = Series(
            context.metrics, "karpenter_cluster_price_limit_usd_per_hour", "--cluster-price-limit.", []
        )
        self.controller = OnRead("metrics.nodepool", self._refresh, context)

    def _refresh_money(self) -> None:
        cluster = self._context.cluster
        spent = cluster.price_commitments()
        prices: dict[tuple[str, ...], float] = {}
        limits: dict[tuple[str, ...], float] = {}
        for pool in cluster.managed_pools():
            prices[(pool.name,)] = spent.get(pool.name, 0) / MICRO
            try:
                limit = price_limit(pool)
            except ValueError:
                continue  # the pool's condition says so
            if limit is not None:
                limits[(pool.name,)] = limit / MICRO
        self._price.replace(prices)
        self._price_limit.replace(limits)
        self._all.replace({(): sum(spent.values()) / MICRO})
        together = self._context.settings.cluster_price_limit
        self._all_limit.replace({} if together is None else {(): together / MICRO})

    def _refresh(self) -> None:
        limits: dict[tuple[str, ...], float] = {}
        usage: dict[tuple[str, ...], float] = {}
        for pool in self._context.cluster.managed_pools():
            for amounts, target in ((pool.spec.limits, limits), (pool.status.resources, usage)):
                for resource, quantity in amounts.items():
                    units = to_units(resource, str(quantity))
                    target[(resource, pool.name)] = units / 1000.0 if resource == "cpu" else float(units)
        self._limit.replace(limits)
        self._usage.replace(usage)
        self._refresh_money()
