"""Random packing problems small enough to check by hand, and an independent judge of their plans."""

import itertools
from collections.abc import Sequence

import numpy as np

from karpenter.base.draws import Draws
from karpenter.scheduling.search import NodePattern, PackingProblem

FREE = 1 << 40
"""For `most`: no bound."""


def a_packing_problem(
    rng: Draws,
    *,
    asks: int = 4,
    offers: int = 4,
    pods: int = 6,
    resources: int = 2,
    limits: int = 0,
    restricted: bool = True,
    apart: bool = False,
    fee: float = 0.0,
    concentration: float = 0.0,
) -> PackingProblem:
    """Return a random problem; every ask fits on some offer unless `restricted` takes that offer away."""
    room = rng.integers(3, 30, size=(offers, resources))
    wanted = np.minimum(rng.integers(0, 12, size=(asks, resources)), room.max(axis=0))
    wanted[:, 0] = np.maximum(wanted[:, 0], 1)
    price = (room.sum(axis=1) * rng.uniform(0.7, 1.3, size=offers)).round(3)
    count = np.maximum(rng.multinomial(max(pods - asks, 0), [1 / asks] * asks) + 1, 1)
    usage = rng.integers(0, 4, size=(offers, limits))
    conflicts = np.triu(rng.random((asks, asks)) < 0.2, 1)
    return PackingProblem(
        wanted=wanted,
        count=count,
        most=np.where(rng.random(asks) < 0.3, rng.integers(1, 3, size=asks), FREE),
        room=room,
        price=price,
        allowed=rng.random((asks, offers)) < 0.8 if restricted else np.ones((asks, offers), dtype=np.bool_),
        apart=conflicts | conflicts.T if apart else None,
        usage=usage,
        remaining=rng.integers(3, 5 * max(pods, 1), size=limits),
        fee=fee,
        concentration=concentration,
    )


def faults(problem: PackingProblem, patterns: Sequence[NodePattern]) -> list[str]:
    """Return what is wrong with a plan, pod by pod and node by node; nothing is taken from the search."""
    found = []
    left = [int(n) for n in problem.count]
    taken = [0] * len(problem.remaining)
    for pattern in patterns:
        name = f"node {pattern}"
        if pattern.copies < 1 or not pattern.counts:
            found.append(f"{name}: empty")
        if [a for a, _ in pattern.counts] != sorted({a for a, _ in pattern.counts}):
            found.append(f"{name}: asks out of order or twice")
        for resource in range(problem.room.shape[1]):
            used = sum(int(problem.wanted[a, resource]) * n for a, n in pattern.counts)
            if used > int(problem.room[pattern.offer, resource]):
                found.append(f"{name}: resource {resource} over by {used}")
        for ask, pods in pattern.counts:
            left[ask] -= pods * pattern.copies
            if pods < 1 or pods > int(problem.most[ask]):
                found.append(f"{name}: {pods} pods of ask {ask}")
            if not problem.allowed[ask, pattern.offer]:
                found.append(f"{name}: ask {ask} is not allowed")
        for (one, _), (two, _) in itertools.combinations(pattern.counts, 2):
            if problem.apart is not None and problem.apart[one, two]:
                found.append(f"{name}: asks {one} and {two} together")
        for limit in range(len(taken)):
            taken[limit] += int(problem.usage[pattern.offer, limit]) * pattern.copies
    found += [f"ask {a}: {-n} pods too many" for a, n in enumerate(left) if n < 0]
    for limit, amount in enumerate(taken):
        if amount > max(int(problem.remaining[limit]), 0):
            found.append(f"limit {limit}: {amount} taken of {problem.remaining[limit]}")
    return found


def one_pod_per_node(problem: PackingProblem) -> list[NodePattern]:
    """Return a plain feasible plan: each pod on a node of its own, the cheapest, as far as limits allow."""
    left = problem.remaining.copy()
    found: dict[tuple[int, int], int] = {}
    for ask in range(len(problem.count)):
        fits = (problem.room >= problem.wanted[ask]).all(axis=1) & problem.allowed[ask]
        for _ in range(int(problem.count[ask])):
            possible = np.flatnonzero(fits & (problem.usage <= left).all(axis=1))
            if len(possible):
                offer = int(possible[problem.price[possible].argmin()])
                left = left - problem.usage[offer]
                found[offer, ask] = found.get((offer, ask), 0) + 1
    return [NodePattern(offer, ((ask, 1),), n) for (offer, ask), n in found.items()]


def cheapest(problem: PackingProblem) -> float | None:
    """Return the least cost of placing all pods, without fees, by trying every plan; None when none exists.

    Exponential: at most about seven pods. Limits are not considered.
    """
    price: dict[tuple[int, ...], float] = {}
    for content in itertools.product(*(range(int(n) + 1) for n in problem.count)):
        best = float("inf")
        for offer in range(len(problem.price)):
            pattern = NodePattern(offer, tuple((a, n) for a, n in enumerate(content) if n), 1)
            if any(content) and not _wrong_content(problem, pattern):
                best = min(best, float(problem.price[offer]))
        price[content] = best
    cost = {tuple([0] * len(problem.count)): 0.0}
    for content in itertools.product(*(range(int(n) + 1) for n in problem.count)):
        if any(content):
            cost[content] = min(
                cost[tuple(c - n for c, n in zip(content, node, strict=True))] + price[node]
                for node in itertools.product(*(range(n + 1) for n in content))
                if any(node)
            )
    best = cost[tuple(int(n) for n in problem.count)]
    return None if best == float("inf") else best


def _wrong_content(problem: PackingProblem, pattern: NodePattern) -> bool:
    used = sum((problem.wanted[a] * n for a, n in pattern.counts), np.zeros(problem.room.shape[1], dtype=int))
    apart = problem.apart is not None and any(
        problem.apart[a, b] for (a, _), (b, _) in itertools.combinations(pattern.counts, 2)
    )
    return bool(
        apart
        or (used > problem.room[pattern.offer]).any()
        or any(n > problem.most[a] or not problem.allowed[a, pattern.offer] for a, n in pattern.counts)
    )
