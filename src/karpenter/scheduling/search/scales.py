"""How scarce each resource is on each offer: the fractional knapsack's dual, followed as prices change.

For an offer, weigh its resources by shares that sum to one. Whatever the weights, no node of it can be worth
more than the largest worth of any ask per weighted share of the room. The weights that make this least say
what is scarce: they order asks for filling and tell which offers cannot pay.
"""

import numpy as np

from karpenter.base.draws import Draws
from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.search.fills import densities
from karpenter.scheduling.search.space import Matrix, Space

_LEAST = 1e-3


class Scales:
    """The weights of all offers. Start from even ones; `refine` after every change of prices."""

    def __init__(self, space: Space) -> None:
        """Weigh all resources alike."""
        resources, offers = space.room.shape
        self._space = space
        self._plain = np.full((resources, offers), 1.0 / resources)
        self.weight: Matrix = self._plain.copy()

    def take(self, prices: Matrix) -> None:
        """Begin with the weights that `prices` [resource, offer] give a node's resources."""
        value = prices * self._space.room
        total = value.sum(axis=0)
        share = np.where(total > 0, value / np.maximum(total, 1e-300), self._plain)
        share = np.maximum(share, _LEAST)
        self.weight = share / share.sum(axis=0)

    def most(self, worth: Matrix, offers: Amounts, weight: Matrix) -> Matrix:
        """Return for each of `offers` what a node can be worth at most by `weight` [resource, row]."""
        space = self._space
        found: Matrix = densities(space.wanted, space.room[:, offers], space.cap[offers], worth, weight).max(
            axis=1, initial=0.0
        )
        return found

    def refine(self, worth: Matrix, offers: Amounts, rng: Draws, tries: int) -> Matrix:
        """Try to lessen the bound of each of `offers`; return it in USD per hour."""
        best = self.weight[:, offers]
        bound = self.most(worth, offers, best)
        for attempt in range(tries):
            if attempt % 4 == 3:
                other = rng.exponential(size=best.shape) ** 2 + _LEAST
            else:
                other = best * np.exp(rng.normal(scale=(1.0, 0.3, 0.1)[attempt % 4], size=best.shape))
            other = np.maximum(other / other.sum(axis=0), _LEAST)
            other /= other.sum(axis=0)
            found = self.most(worth, offers, other)
            better = found < bound
            best[:, better] = other[:, better]
            bound[better] = found[better]
        self.weight[:, offers] = best
        return bound
