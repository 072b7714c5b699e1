"""Column generation: the linear program and the pricing moves in turn, a small step at a time."""

from collections.abc import Callable, Iterator

import numpy as np

from karpenter.base.draws import Draws
from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.search.bounds import least_worth
from karpenter.scheduling.search.master import Master
from karpenter.scheduling.search.pricing import (
    fill_by_density,
    fill_greedily,
    fill_pairs,
    ruin_and_refill,
)
from karpenter.scheduling.search.repair import penalties
from karpenter.scheduling.search.scales import Scales
from karpenter.scheduling.search.space import Matrix, Space

_CELLS = 60_000
"""Rows times asks that a pricing move works on at once: a few milliseconds."""
_SMOOTH = 0.5
_PER_OFFER = 2
_ENOUGH = 40
_CEILING = 3.0
_NEAR = 0.06
_VARIED = 3
_VARIATIONS = 72
_GAIN = 1e-4
"""How much more than its cost, relatively, a filling must be worth."""


class Generation:
    """Column generation on a space, resumable between steps."""

    def __init__(self, space: Space, rng: Draws, prices: Matrix | None = None) -> None:
        """Prepare; nothing is solved yet. `prices` [resource, offer] are where to begin (see `bounds`)."""
        self.space = space
        self.scales = Scales(space)
        self.master = Master(space, dear(space))
        self._rng = rng
        self._ceiling = self.master.worth
        self._stable: Matrix | None = None
        if prices is not None:
            self.scales.take(prices)
            self._stable = least_worth(space, prices)
            self._ceiling = np.minimum(self._ceiling, _CEILING * self._stable + 1e-9)
        self.dry = 0
        """Rounds in a row that found nothing."""
        self.rounds = 0

    def learn(self, offers: Amounts, counts: Matrix) -> int:
        """Give the program fillings; return how many it didn't have."""
        penalty = penalties(self.space, np.arange(counts.shape[1]), counts)
        return self.master.add(offers, counts, self.space.cost[offers] + penalty)

    def run(self, more: Callable[[], bool], rounds: int, dry: int) -> bool:
        """Solve and price until so many rounds altogether, or dry ones; return False when `more` ended it."""
        if not self.rounds and self._stable is not None:
            cost = self.space.cost * (1 - _NEAR)
            if self._price_offers(self._stable, cost, self._promising(self._stable, cost), more) is None:
                return False
            self.rounds += 1
        while self.rounds < rounds and self.dry < dry:
            while not self.master.solve():
                if not more():
                    return False
            if not more() or not self._price(more):
                return False
            self.rounds += 1
        return True

    def _price(self, more: Callable[[], bool]) -> bool:
        """Price at smoothed prices, at the program's own if that finds nothing; ruin and refill when dry."""
        worth = self.master.worth
        cost = self.master.effective_cost(self.master.limit_worth)
        added: int | None = 0
        if self.dry:
            for offers, counts in self._variations(worth, cost):
                added = (added or 0) + self._take(offers, counts, cost)
                if not more():
                    return False
        elif self._stable is not None:
            self._stable = _SMOOTH * self._stable + (1 - _SMOOTH) * np.minimum(worth, self._ceiling)
            added = self._price_offers(self._stable, cost, self._promising(self._stable, cost), more)
        if added == 0:
            self._stable = worth
            added = self._price_offers(worth, cost, self._promising(worth, cost), more)
        if added is None:
            return False
        self.dry = 0 if added else self.dry + 1
        return True

    def _price_offers(
        self, worth: Matrix, cost: Matrix, offers: Amounts, more: Callable[[], bool]
    ) -> int | None:
        """Price `offers` in chunks until enough is found; return how much, None when `more` ended it."""
        added = 0
        size = max(8, _CELLS // max(len(self.space.demand), 1) // 4)
        for first in range(0, len(offers), size):
            chunk = offers[first : first + size]
            bound = self.scales.refine(worth, chunk, self._rng, 4)
            if not more():
                return None
            chunk = chunk[bound > cost[chunk] * (1 + _GAIN)]
            for found, counts in self._moves(chunk, worth) if len(chunk) else ():
                added += self._take(found, counts, cost)
                if not more():
                    return None
            if added >= _ENOUGH + len(self.space.demand):
                break
        return added

    def _promising(self, worth: Matrix, cost: Matrix) -> Amounts:
        """Return the offers of which a node may be worth more than `cost` [offer], most promising first."""
        ratio = self.scales.most(worth, np.arange(len(cost)), self.scales.weight) / cost
        order = np.argsort(-ratio, kind="stable")
        found: Amounts = order[ratio[order] > 1 + _GAIN]
        return found

    def _variations(self, worth: Matrix, cost: Matrix) -> Iterator[tuple[Amounts, Matrix]]:
        """Ruin and refill the fillings nearest to paying, a few of each offer, in batches."""
        master = self.master
        value = master.counts @ worth / cost[master.offer]
        order = np.lexsort((-value, master.offer))
        place = np.arange(len(order)) - np.searchsorted(master.offer[order], master.offer[order])
        order = order[place < _VARIED]
        order = order[np.argsort(-value[order], kind="stable")][:_VARIATIONS]
        rows = max(8, _CELLS // max(len(self.space.demand), 1))
        picked = np.tile(order, -(-rows // max(len(order), 1)))[:rows]
        for _ in range(3):
            offers = master.offer[picked]
            yield (
                offers,
                ruin_and_refill(self.space, self.scales, offers, master.counts[picked], worth, self._rng),
            )

    def _moves(self, offers: Amounts, worth: Matrix) -> Iterator[tuple[Amounts, Matrix]]:
        space, scales = self.space, self.scales
        yield offers, fill_by_density(space, scales, offers, worth)
        yield offers, fill_greedily(space, offers, worth)
        yield fill_pairs(space, scales, offers, worth, 4)

    def _take(self, offers: Amounts, counts: Matrix, cost: Matrix) -> int:
        """Give the best fillings to the program; return how many it didn't have."""
        if not len(offers):
            return 0
        value = counts @ self.master.worth
        gain = value / cost[offers] - 1
        order = np.lexsort((-gain, offers))
        order = order[gain[order] > _GAIN]
        place = np.arange(len(order)) - np.searchsorted(offers[order], offers[order])
        order = order[place < _PER_OFFER]
        if not len(order):
            return 0
        return self.learn(offers[order], counts[order])


def dear(space: Space) -> Matrix:
    """Return [ask] a price for leaving a pod out that no sensible plan pays: twenty nodes for it alone."""
    cost = np.where(space.cap > 0, space.cost[:, None], np.inf)
    alone = cost.min(axis=0, initial=np.inf)
    return np.where(np.isfinite(alone), 20 * alone, 0.0)
