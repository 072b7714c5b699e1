"""The plan that the search changes: patterns, what they lose, what they take of limits."""

from collections.abc import Iterable, Sequence

import numpy as np

from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.search.problem import NodePattern
from karpenter.scheduling.search.repair import Repaired, penalties
from karpenter.scheduling.search.space import Matrix, Space


class Plan:
    """Patterns over a space's asks and offers."""

    def __init__(self, space: Space, patterns: Iterable[NodePattern]) -> None:
        """Hold `patterns`, equal ones together."""
        self.space = space
        copies: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        for pattern in patterns:
            key = (pattern.offer, pattern.counts)
            if pattern.counts and pattern.copies:
                copies[key] = copies.get(key, 0) + pattern.copies
        self.patterns = [NodePattern(o, c, n) for (o, c), n in sorted(copies.items())]
        self.placed: Amounts = np.zeros(len(space.demand), dtype=np.int64)
        for p in self.patterns:
            for ask, pods in p.counts:
                self.placed[ask] += pods * p.copies
        self.missing = int((space.demand - self.placed).sum())
        self.each = np.array([self.cost_of(p) for p in self.patterns])
        self.objective = float(sum(c * p.copies for c, p in zip(self.each, self.patterns, strict=True)))

    def cost_of(self, pattern: NodePattern) -> float:
        """Return what one node of `pattern` adds to the objective, USD per hour."""
        cost = float(self.space.cost[pattern.offer])
        if self.space.penalty > 0:
            asks = np.array([a for a, _ in pattern.counts])
            cost += float(penalties(self.space, asks, np.array([[n for _, n in pattern.counts]]))[0])
        return cost

    def limits_left(self, without: Sequence[NodePattern] = ()) -> Amounts:
        """Return [limit] what is left of the limits, were the nodes of `without` not there."""
        left = self.space.remaining.copy()
        if len(left):
            for p in self.patterns:
                left -= self.space.usage[p.offer] * p.copies
            for p in without:
                left += self.space.usage[p.offer] * p.copies
        return left

    def losses(self, worth: Matrix) -> Matrix:
        """Return [pattern] USD per hour that a node costs above what its pods are worth."""
        values = [sum(worth[a] * n for a, n in p.counts) for p in self.patterns]
        found: Matrix = self.each - np.array(values)
        return found

    def better_than(self, other: "Plan") -> bool:
        """Return whether the plan leaves out fewer pods, or as many for less."""
        return (self.missing, self.objective) < (other.missing, other.objective - 1e-9)

    def replaced(self, taken: Sequence[NodePattern], new: Iterable[NodePattern]) -> "Plan":
        """Return the plan without the nodes of `taken`, which it has, and with those of `new`."""
        away = [NodePattern(p.offer, p.counts, -p.copies) for p in taken]
        return Plan(self.space, [*self.patterns, *away, *new])


def patterns_of(repaired: Repaired, asks: Amounts) -> list[NodePattern]:
    """Return the nodes of a repair; `asks` are the asks of its columns."""
    found = []
    for offer, counts, copies in zip(repaired.offers, repaired.counts, repaired.copies, strict=True):
        used = np.flatnonzero(counts)
        pods = tuple((int(asks[a]), int(counts[a])) for a in used)
        found.append(NodePattern(int(offer), pods, int(copies)))
    return found
