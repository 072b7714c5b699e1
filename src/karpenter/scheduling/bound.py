"""A price below which no plan for the same pods can go."""

from collections.abc import Sequence

import numpy as np

from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.space import PoolSpace


def lower_bound(spaces: Sequence[PoolSpace], demand: Amounts, free: Amounts) -> float:
    """Return the USD per hour that `demand`, less all that is `free` on existing nodes, costs at least.

    For each resource: the cheapest price of one unit of it, over every type that any pool can buy, times what
    is needed of it. Any placement buys at least that much of each resource, so the largest of these holds.
    """
    bound = 0.0
    needed = np.maximum(demand - np.maximum(free, 0), 0)
    cheapest = np.full(len(demand), np.inf)
    for space in spaces:
        prices = space.evaluate(space.requirements).price
        usable = space.usable & np.isfinite(prices)
        if not usable.any():
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            per_unit = np.where(
                space.room[usable] > 0, prices[usable, None] / space.room[usable], np.inf
            ).min(axis=0)
        cheapest = np.minimum(cheapest, per_unit)
    for amount, price in zip(needed.tolist(), cheapest.tolist(), strict=True):
        if amount and np.isfinite(price):
            bound = max(bound, amount * price)
    return bound
