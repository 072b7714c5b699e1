"""Planned nodes, as a table: what is still free on each, and who may still join at no extra price."""

from collections.abc import Sequence
from itertools import islice

import msgspec
import numpy as np

from karpenter.model.requirements import Requirements
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.classes import Variant
from karpenter.scheduling.packing import Pattern, join
from karpenter.scheduling.space import PoolSpace, how_many
from karpenter.scheduling.topology import Topology

_EPSILON = 1e-9


class Bin(msgspec.Struct):
    """One planned node."""

    pool: int
    pattern: Pattern
    """Its own copy: it goes on growing while there is room at no extra price."""
    allowed: Mask
    """Types that the limits let it list."""
    relaxed: bool
    """minValues were lowered for it."""
    pods: dict[int, list[str]]
    """Keys, by ask index."""
    charged: Amounts
    """What it counts against its pool's limits."""


class BinTable:
    """The planned nodes of one pass, in the order in which they were bought."""

    def __init__(self, spaces: Sequence[PoolSpace], topology: Topology, resources: int) -> None:
        """Start without nodes; `resources` is how many columns the axis has."""
        self._spaces = spaces
        self.bins: list[Bin] = []
        self._room: Amounts = np.zeros((16, resources), dtype=np.int64)
        self._codes: Amounts = np.zeros(16, dtype=np.int64)
        """By bin: the number of what decides who may join."""
        self._kinds: dict[tuple[int, Requirements, int, float], int] = {}
        self._admits: dict[Variant, list[bool]] = {}
        """By kind: whether pods of the variant may join."""
        self._crowd = topology.table()

    def __len__(self) -> int:
        return len(self.bins)

    def add(self, template: Bin, contents: Sequence[dict[int, list[str]]]) -> None:
        """Add one node like `template` for each of `contents`: its pods, by ask."""
        pool, pattern = template.pool, template.pattern
        first, last = len(self.bins), len(self.bins) + len(contents)
        while len(self._room) < last:
            self._room = np.concatenate([self._room, np.zeros_like(self._room)])
            self._codes = np.concatenate([self._codes, np.zeros_like(self._codes)])
        for pods in contents:
            own = msgspec.structs.replace(pattern, counts=dict(pattern.counts), held=pattern.held.copy())
            self.bins.append(msgspec.structs.replace(template, pattern=own, pods=pods))
        self._room[first:last] = self._spaces[pool].room[pattern.chosen] - pattern.used
        self._codes[first:last] = self._kind(pool, pattern)
        self._crowd.append(pattern.held, last - first)

    def place(self, ask: Ask, *, wishes: Sequence[int] = ()) -> None:
        """Put pods of `ask` on nodes that take them at no extra price, first come first served.

        `wishes`: preferences about the other pods of a node, to be kept.
        """
        size = len(self.bins)
        if not size:
            return
        counts = how_many(self._room[:size], ask.wanted)
        if not ask.profile.alone:
            counts = np.minimum(counts, self._crowd.allowance(ask.profile, wishes=wishes))
        counts *= self._admitting(ask.demands)[self._codes[:size]]
        for row in np.flatnonzero(counts).tolist():
            self._join(row, ask, min(int(counts[row]), ask.remaining))
            if not ask.remaining:
                return

    def grow(self, ask: Ask) -> bool:
        """Enlarge one node where the others there allow it, and put pods on it; tell whether it did."""
        allowance = np.minimum(self._crowd.allowance(ask.profile), ask.remaining)
        for row in np.flatnonzero(allowance).tolist():
            planned = self.bins[row]
            space, pattern = self._spaces[planned.pool], planned.pattern
            present = (pattern.chosen, pattern.price, planned.allowed, planned.charged)
            merged = space.admit(pattern.requirements, ask.demands)
            if isinstance(merged, str):
                continue
            space.take(planned.charged, -1)
            within = space.within_limits() & space.affords(merged)
            ports = pattern.ports | ask.ports
            options = np.isfinite(space.evaluate(merged).price) & within & space.free_ports(ports)
            count = _most(space, options, pattern.used, ask.wanted, int(allowance[row]))
            if count:
                prices = np.where(
                    options & space.fits(pattern.used + ask.wanted * count),
                    space.evaluate(merged).price,
                    np.inf,
                )
                pattern.chosen = int(prices.argmin())
                pattern.price = float(prices[pattern.chosen])
                planned.allowed = space.listable(merged, pattern.chosen)
                planned.charged = space.charge(pattern.chosen, planned.allowed & options, merged)
                count = join(space, pattern, ask, count, planned.allowed)
            if not count:
                pattern.chosen, pattern.price, planned.allowed, planned.charged = present
            space.take(planned.charged, 1)
            if count:
                self.settle(row, ask, count)
                self._codes[row] = self._kind(planned.pool, pattern)
                return True
        return False

    def holds(self, rule: int) -> bool:
        """Tell whether some planned node holds a pod that `rule` of the topology selects."""
        return self._crowd.anywhere(rule)

    def _join(self, row: int, ask: Ask, count: int) -> None:
        planned = self.bins[row]
        pattern = planned.pattern
        before = pattern.requirements
        joined = join(self._spaces[planned.pool], pattern, ask, count, planned.allowed)
        if not joined:
            return
        self.settle(row, ask, joined)
        if pattern.requirements is not before:
            self._codes[row] = self._kind(planned.pool, pattern)

    def settle(self, row: int, ask: Ask, count: int) -> None:
        """Count `count` pods of `ask` that the pattern of a bin has just taken in."""
        planned = self.bins[row]
        pattern = planned.pattern
        pattern.counts[ask.index] = pattern.counts.get(ask.index, 0) + count
        planned.pods.setdefault(ask.index, []).extend(ask.take(count))
        self._room[row] = self._spaces[planned.pool].room[pattern.chosen] - pattern.used
        if not ask.profile.alone:
            self._crowd.add(row, ask.profile, count)

    def _kind(self, pool: int, pattern: Pattern) -> int:
        key = (pool, pattern.requirements, pattern.chosen, pattern.price)
        return self._kinds.setdefault(key, len(self._kinds))

    def _admitting(self, variant: Variant) -> Mask:
        """Return, by kind, whether pods of `variant` may join without making the node dearer."""
        known = self._admits.setdefault(variant, [])
        for pool, requirements, chosen, price in islice(self._kinds, len(known), None):
            space = self._spaces[pool]
            merged = space.admit(requirements, variant)
            known.append(
                not isinstance(merged, str) and bool(space.evaluate(merged).price[chosen] <= price + _EPSILON)
            )
        return np.array(known, dtype=np.bool_)


def _most(space: PoolSpace, options: Mask, used: Amounts, wanted: Amounts, count: int) -> int:
    """Return how many pods, at most `count`, the largest of `options` can take beside what is used."""
    options = options & space.fits(used)
    if not options.any():
        return 0
    return min(count, int(how_many(space.room[options] - used, wanted).max()))
