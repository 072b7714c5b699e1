"""What pools say about money, as the solver wants to hear it. Pure."""

from collections.abc import Callable, Mapping

from karpenter.apis.annotations import capacity_type_mix, interruption_cost, price_limit
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import Resources
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import PoolOffer
from karpenter.scheduling.purse import PRICE

Spending = Callable[[], Mapping[str, int]]
"""Tells what each pool costs, micro-USD per hour; asked only when somebody limits it."""


def offer_of(
    pool: NodePool,
    types: tuple[InstanceType, ...],
    remaining: Resources,
    spending: Spending,
    version: int = 0,
    *,
    doubted: bool = False,
) -> PoolOffer | None:
    """Return what `pool` can buy now, its limits on money included; None when its annotations make no sense.

    `remaining` is what is left of `spec.limits`. A pool with a mistake in an annotation is not ready; this is
    for the moment before it is found out.
    """
    try:
        limit, cost, mix = price_limit(pool), interruption_cost(pool), capacity_type_mix(pool)
    except ValueError:
        return None
    if limit is not None:
        remaining = {**remaining, PRICE: max(0, limit - spending().get(pool.name, 0))}
    return PoolOffer(
        pool=pool,
        instance_types=types,
        remaining=remaining,
        interruption_cost=cost,
        capacity_type_mix=dict(mix),
        doubted=doubted,
        catalogue_version=version,
    )


def left_for_all(limit: int | None, spending: Spending) -> int | None:
    """Return what is left of a limit on all pools together, micro-USD per hour; None: there is none."""
    return None if limit is None else max(0, limit - sum(spending().values()))
