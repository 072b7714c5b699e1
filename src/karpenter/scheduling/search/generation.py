"""Column generation: the linear program and the pricing moves in turn, a small step at a time."""

from collections.abc import Callable, Iterator

import numpy as np

from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.search.master import Master
from karpenter.scheduling.search.pricing import (
    fill_by_density,
    fill_greedily,
    fill_pairs,
    ruin_and_refill,
)
from karpenter.scheduling.search.scales import Scales
from karpenter.scheduling.search.space import Matrix, Space

_CELLS = 60_000
"""Rows times asks that a pricing move works on at once: a few milliseconds."""
_SMOOTH = 0.5
_PER_OFFER = 3
_VARIED = 3
_VARIATIONS = 72
_GAIN = 1e-4
"""How much more than its cost, relatively, a filling must be worth."""


class Generation:
    """Column generation on a space, resumable between steps."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        """Prepare; nothing is solved yet."""
        self.space = space
        self.scales = Scales(space)
        self.master = Master(space, dear(space))
        self._rng = rng
        self._stable: Matrix | None = None
        self._best: dict[int, Matrix] = {}
        self.dry = 0
        """Rounds in a row that found nothing."""
        self.rounds = 0

    def run(self, more: Callable[[], bool], rounds: int, dry: int) -> bool:
        """Solve and price until so many rounds altogether, or dry ones; return False when `more` ended it."""
        while self.rounds < rounds and self.dry < dry:
            while not self.master.solve():
                if not more():
                    return False
            if not more():
                return False
            self._stable = (
                self.master.worth
                if self._stable is None or self.dry
                else _SMOOTH * self._stable + (1 - _SMOOTH) * self.master.worth
            )
            if not self._price(self._stable, more):
                return False
            self.rounds += 1
        return True

    def _price(self, worth: Matrix, more: Callable[[], bool]) -> bool:
        """Price all offers in chunks, or, after a dry round, ruin and refill what is there."""
        added = 0
        cost = self.master.effective_cost(self.master.limit_worth)
        if self.dry:
            for offers, counts in self._variations(worth, cost):
                added += self._take(offers, counts, cost)
                if not more():
                    return False
        for chunk in self._chunks() if not added else ():
            bound = self.scales.refine(worth, chunk, self._rng, 4)
            if not more():
                return False
            promising = chunk[bound > cost[chunk] * (1 + _GAIN)]
            if not len(promising):
                continue
            for offers, counts in self._moves(promising, worth):
                added += self._take(offers, counts, cost)
                if not more():
                    return False
        self.dry = 0 if added else self.dry + 1
        return True

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

    def _chunks(self) -> list[Amounts]:
        offers = np.arange(len(self.space.cost))
        size = max(8, _CELLS // max(len(self.space.demand), 1) // 4)
        return [offers[i : i + size] for i in range(0, len(offers), size)]

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
        return self.master.add(offers[order], counts[order], self.space.cost[offers[order]])


def dear(space: Space) -> Matrix:
    """Return [ask] a price for leaving a pod out that no sensible plan pays: twenty nodes for it alone."""
    cost = np.where(space.cap > 0, space.cost[:, None], np.inf)
    alone = cost.min(axis=0, initial=np.inf)
    return np.where(np.isfinite(alone), 20 * alone, 0.0)
