"""A price below which no plan can go, for a problem that nobody means to search."""

from collections.abc import Callable

import msgspec
import numpy as np

from karpenter.scheduling.catalogue import Prices
from karpenter.scheduling.search.bounds import ResourcePrices, even_prices, least_worth, total
from karpenter.scheduling.search.coarse import coarse
from karpenter.scheduling.search.problem import PackingProblem
from karpenter.scheduling.search.space import Space, space_of

_MANY = 160
_CLUSTERS = 120


class Proof(msgspec.Struct, frozen=True):
    """What any plan costs at least, and what its limits are worth by the same prices."""

    usd: float
    """USD per hour."""
    tolls: Prices
    """[limit] USD per hour that one more unit would save; 0 where it would not."""


def prove(problem: PackingProblem, more: Callable[[], bool]) -> Proof:
    """Return the best bound found while `more` says go on.

    Unlike a search's, the offers of `problem` may cost nothing. Rules that only restrict may be left out of
    it: the bound is the lower for it, and valid still.
    """
    space = space_of(problem)
    if not len(space.demand) or not len(space.price):
        return Proof(0.0, np.zeros(len(problem.remaining)))
    prices = ResourcePrices(clustered(space))
    prices.run(more)
    return proof_of(space, prices)


def worths(problem: PackingProblem, more: Callable[[], bool]) -> Prices:
    """Return, by ask, what one of its pods costs at least by the prices of the best bound, USD per hour."""
    found = np.zeros(len(problem.count))
    space = space_of(problem)
    if not len(space.demand) or not len(space.price):
        return found
    prices = ResourcePrices(clustered(space))
    prices.run(more)
    worth = least_worth(space, prices.prices)
    for place, members in enumerate(space.members):
        found[members] = worth[place]
    return found


def clustered(space: Space) -> Space:
    """Return `space` itself, or with its asks in clusters where these are many."""
    if len(space.demand) <= _MANY:
        return space
    return coarse(space, least_worth(space, even_prices(space)), _CLUSTERS)


def proof_of(space: Space, prices: ResourcePrices) -> Proof:
    """Return what `prices`, found for clusters of the asks of `space` perhaps, prove about it."""
    usd = total(space, prices.prices) - float(prices.toll @ space.remaining)
    plain = total(space, even_prices(space))
    if usd >= plain:
        return Proof(usd, prices.toll)
    return Proof(plain, np.zeros(len(space.remaining)))
