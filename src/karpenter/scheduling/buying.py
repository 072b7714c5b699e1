"""Buying nodes: which pool can, which type it should be, what goes on it, how many of them."""

from collections.abc import Sequence

import msgspec
import numpy as np

from karpenter.model.problem import SolveOptions
from karpenter.model.requirements import Requirements
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.bins import Bin, BinTable
from karpenter.scheduling.catalogue import Mask, Prices
from karpenter.scheduling.cells import openable
from karpenter.scheduling.packing import Choice, Pattern, choose, crowding, fill
from karpenter.scheduling.space import PoolSpace, how_many, relax_min_values
from karpenter.scheduling.topology import Topology
from karpenter.scheduling.waiting import Queue, Waiting

_AS_GOOD = 0.98
"""The type that was best a moment ago is taken again while it gives this much of what it gave then."""
_HOMELESS: tuple[int | None, float, int] = (None, 0.0, 0)


class Buyer:
    """Buys nodes from the pools of one pass; they are in `bins`."""

    def __init__(
        self,
        spaces: Sequence[PoolSpace],
        topology: Topology,
        options: SolveOptions,
        asks: Sequence[Ask],
        bins: BinTable,
    ) -> None:
        """Buy for `asks`, to which more may be added meanwhile."""
        self.spaces = spaces
        self.topology = topology
        self.options = options
        self.asks = asks
        self.bins = bins
        self._homes: dict[object, tuple[int | None, float, int]] = {}
        self._recent: dict[tuple[int, Requirements], Choice] = {}
        """The type that was the best to open a moment ago."""

    def can_open(self, ask: Ask, space: PoolSpace) -> bool:
        merged = space.admit(space.requirements, ask.demands)
        return not isinstance(merged, str) and bool(openable(space, merged, ask).any())

    def find_home(self, ask: Ask, tried: frozenset[int] = frozenset()) -> None:
        """Find the pool to buy a node from for one pod of the ask; those in `tried` could not.

        The heaviest that can; among those of one weight the one where the pod costs least, then the first.
        """
        versions = tuple([s.limits_version for s in self.spaces])
        key = (ask.demands, ask.wanted.tobytes(), ask.ports, tried, versions)
        known = self._homes.get(key)
        if known is None:
            known = self._homes[key] = self._home(ask, tried)
        ask.home, ask.worth, ask.choices = known

    def most_together(self, ask: Ask) -> int:
        """Return how many pods of the ask the largest node that can be bought for one would hold."""
        most = 0
        for space in self.spaces:
            for variant in ask.variants:
                merged = space.admit(space.requirements, variant)
                if not isinstance(merged, str):
                    usable = openable(space, merged, ask)
                    most = max(most, int(how_many(space.room[usable], ask.wanted).max(initial=0)))
        return min(most, ask.most)

    def _home(self, ask: Ask, tried: frozenset[int]) -> tuple[int | None, float, int]:
        best = _HOMELESS
        for i, space in enumerate(self.spaces):
            if best[0] is not None and space.weight < self.spaces[best[0]].weight:
                break
            merged = space.admit(space.requirements, ask.demands)
            if isinstance(merged, str):
                continue
            usable = openable(space, merged, ask)
            if i not in tried and usable.any():
                own = space.evaluate(merged).price
                everyone = space.evaluate(space.requirements).price
                worth = float((own[usable] * space.scarcest_share(ask.wanted)[usable]).min())
                if best[0] is None or worth < best[1]:
                    best = i, worth, int((np.isfinite(own) & (own <= everyone)).sum())
            elif self.options.reserved_strict and space.awaits(merged, space.fits(ask.wanted)):
                break
        return best

    def open(self, ask: Ask, waiting: Waiting, *, founding: bool) -> bool:
        """Buy nodes for the ask at hand and what goes well with it; tell whether any could be bought."""
        assert ask.home is not None
        space = self.spaces[ask.home]
        merged = space.admit(space.requirements, ask.demands)
        if isinstance(merged, str):
            return False
        usable = openable(space, merged, ask)
        if not usable.any():
            return False
        merged = space.steered(merged, usable)
        usable = usable & np.isfinite(space.evaluate(merged).price)
        start = self._with_min_values(space, merged, usable)
        if start is None:
            return False
        prices = np.where(usable, space.evaluate(start).price, np.inf)
        queue = waiting.behind(ask)
        if founding:
            prices = self._roomy(space, prices, ask, queue)
        known = None if founding else self._recent.get((ask.home, start))
        filled = None
        if known is not None and np.isfinite(prices[known.chosen]):
            filled = pattern, allowed = self._filled(space, known, start, queue, founding=False)
            if self._ratio(pattern) >= known.ratio * _AS_GOOD and pattern.counts.get(ask.index):
                return self._bought(ask.home, pattern, allowed, waiting, relaxed=start is not merged)
        choice = choose(space, start, prices, queue)
        if filled is None or known is None or choice.counts or choice.chosen != known.chosen:
            filled = self._filled(space, choice, start, queue, founding=founding)
        pattern, allowed = filled
        if not pattern.counts.get(ask.index):
            return False
        if not founding:
            best = msgspec.structs.replace(choice, counts={}, ratio=self._ratio(pattern))
            self._recent[ask.home, start] = best
        copies = 1 if founding else None
        return self._bought(ask.home, pattern, allowed, waiting, relaxed=start is not merged, copies=copies)

    def _bought(
        self,
        pool: int,
        pattern: Pattern,
        allowed: Mask,
        waiting: Waiting,
        *,
        relaxed: bool,
        copies: int | None = None,
    ) -> bool:
        """Buy, and tell those who wait."""
        bought = self.buy(pool, pattern, allowed, relaxed=relaxed, copies=copies)
        for i in pattern.counts:
            waiting.update(self.asks[i])
        return bought

    def _filled(
        self, space: PoolSpace, choice: Choice, start: Requirements, queue: Queue, *, founding: bool
    ) -> tuple[Pattern, Mask]:
        """Return a node of the chosen type, filled, and the types it may list."""
        allowed = space.listable(start, choice.chosen)
        start = space.drawing(start, choice.chosen, allowed)
        return fill(space, self.topology, choice, start, allowed, queue, founding=founding), allowed

    def _ratio(self, pattern: Pattern) -> float:
        """Return the worth of the pods on a node for its price."""
        worth = sum([self.asks[i].worth * count for i, count in pattern.counts.items()])
        cost = pattern.price + self.options.node_fee
        if self.options.concentration_penalty > 0:
            held = [self.asks[i] for i in pattern.counts]
            cost += float(crowding(self.options, held, np.array([list(pattern.counts.values())]))[0])
        return worth / cost

    @staticmethod
    def _roomy(space: PoolSpace, prices: Prices, ask: Ask, queue: Queue) -> Prices:
        """Return the prices of those types only that hold all pods that must be together, or the most."""
        together = [a for a in queue.front(len(queue)) if a.profile.near == ask.profile.near]
        everybody = np.sum([a.wanted * a.remaining for a in together], axis=0)
        enough = space.fits(everybody) & np.isfinite(prices)
        if enough.any():
            return np.where(enough, prices, np.inf)
        most = np.minimum(how_many(space.room, ask.wanted), ask.remaining) * np.isfinite(prices)
        return np.where(most == most.max(), prices, np.inf)

    def _with_min_values(self, space: PoolSpace, merged: Requirements, usable: Mask) -> Requirements | None:
        """Return the requirements a new node starts with, minValues lowered where that is the policy."""
        missing = space.achieved(merged, usable)
        if not missing:
            return merged
        if self.options.min_values_strict:
            return None
        return relax_min_values(merged, missing)

    def buy(
        self, pool: int, pattern: Pattern, allowed: Mask, *, relaxed: bool, copies: int | None = None
    ) -> bool:
        """Buy as many nodes of a pattern as there are pods for it, at most `copies`; tell whether any was.

        Limits and stock may allow fewer than that.
        """
        space = self.spaces[pool]
        asks = {i: self.asks[i] for i in pattern.counts}
        possible = min(asks[i].remaining // n for i, n in pattern.counts.items())
        copies = possible if copies is None else min(copies, possible)
        options = allowed & space.fits(pattern.used)
        bought = options & np.isfinite(space.evaluate(pattern.requirements).price)
        charge = space.charge(pattern.chosen, bought, pattern.requirements)
        for most in (space.affordable(charge), space.in_stock(pattern.requirements, pattern.chosen)):
            if most is not None:
                copies = min(copies, most)
        if not copies:
            return False
        space.take(charge, copies)
        space.draw(pattern.requirements, pattern.chosen, copies)
        contents: list[dict[int, list[str]]] = [{} for _ in range(copies)]
        for i, count in pattern.counts.items():
            keys = asks[i].take(count * copies)
            for number, own in enumerate(contents):
                own[i] = keys[number * count : (number + 1) * count]
        self.bins.add(Bin(pool, pattern, allowed, relaxed, {}, charge), contents)
        return True
