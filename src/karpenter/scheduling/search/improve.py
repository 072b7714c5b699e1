"""The search: from a first plan to a cheaper one, for as long as the caller lets it."""

from collections.abc import Callable, Sequence

import numpy as np

from karpenter.base.draws import Draws, seeded_draws
from karpenter.scheduling.catalogue import Amounts, Prices
from karpenter.scheduling.search.bounds import ResourcePrices, least_worth
from karpenter.scheduling.search.coarse import realised
from karpenter.scheduling.search.generation import Generation
from karpenter.scheduling.search.memory import Memory
from karpenter.scheduling.search.neighbourhood import rearranged
from karpenter.scheduling.search.plan import Plan
from karpenter.scheduling.search.problem import NodePattern, Packing, PackingProblem, checked, penalty
from karpenter.scheduling.search.proof import clustered, proof_of
from karpenter.scheduling.search.rounding import rounded
from karpenter.scheduling.search.space import Space, gather, space_of, spread

_FIRST_ROUNDING = 6
_UPS = (0.5, 0.7, 0.3, 1.0)
_PROGRESS = 5e-4
_REARRANGEMENTS = 24
_EARLY = 60
"""How often is rearranged before the program where hardly two pods are alike: there it is slow to answer."""
_DIVERSE = 5
"""Up to how many pods an ask has in such a problem, on average."""
_DRY = 12
_EQUAL = 1e-6
_SLOW = 0.002
"""A large program goes on while `_ROUNDS` rounds gain this much."""
_ROUNDS = 6


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
    pace = _Pace(more)
    space = space_of(problem)
    first = _fitted(problem, space, start)
    search = _Search(space, first, seeded_draws(seed), pace)
    if len(space.demand) and len(space.cost):
        # Matrix kernels may raise floating-point flags for lanes that are not part of the result.
        with np.errstate(invalid="ignore"):
            search.run()
    patterns = spread(search.best.patterns, space.members, problem.count, space.offers)
    found = _patterns_or(problem, patterns, start)
    duals = np.zeros(len(problem.count))
    for group, worth in zip(space.members, search.worth(), strict=True):
        duals[group] = worth
    return Packing(
        patterns=found,
        cost=float(sum(problem.price[p.offer] * p.copies for p in found)),
        lower_bound=search.bound,
        duals=duals,
        limit_duals=search.limit_worth(),
        unplaced=unplaced(problem, found),
        steps=pace.steps,
    )


class _Pace:
    """Counts steps, and remembers that the caller has said stop."""

    def __init__(self, more: Callable[[], bool]) -> None:
        self.steps = 0
        self.over = False
        self._more = more

    def __call__(self) -> bool:
        if not self.over:
            self.steps += 1
            self.over = not self._more()
        return not self.over


class _Search:
    """One search on one space; on clusters of its asks where these are many."""

    def __init__(self, space: Space, first: Plan, rng: Draws, more: Callable[[], bool]) -> None:
        self.space = space
        self.best = first
        self.bound = 0.0
        self._floor = first.placed
        self._rng = rng
        self._more = more
        self._few = space
        self._generation: Generation | None = None
        self._base: Prices = np.zeros(0)
        self._hurry = False
        """The program is large: its last per mille are not worth what they take."""

    def run(self) -> None:
        """Bound, generate and round, then rearrange and go on generating in turn, until told to stop."""
        if not self._more():
            return
        self._few = clustered(self.space)
        self._hurry = self._few is not self.space
        if self._hurry and not self._more():
            return
        bounds = ResourcePrices(self._few)
        finished = bounds.run(self._more)
        self.bound = proof_of(self.space, bounds).usd
        self._base = least_worth(self.space, bounds.prices)
        if not finished:
            return
        self._generation = Generation(self._few, self._rng, bounds.prices)
        self._learn(self.best)
        diverse = self.space.demand.sum() < _DIVERSE * len(self.space.demand)
        if self._hurry and diverse and not self._rearrange(_EARLY):
            return
        if not self._generate():
            return
        while not self._settled() and self._more():
            if not self._rearrange(_REARRANGEMENTS):
                return
            before = self._generation.master.objective
            if not self._generation.run(self._more, self._generation.rounds + 4, _DRY):
                return
            if self._generation.master.objective < before * (1 - _PROGRESS) and not self._round(4):
                return

    def _settled(self) -> bool:
        """Tell whether the best plan costs what fractions of nodes would, and no better ones are found."""
        generation = self._generation
        if generation is None or not generation.dry or self.best.missing or self._few is not self.space:
            return False
        return self.best.objective <= generation.master.objective * (1 + _EQUAL)

    def _learn(self, plan: Plan) -> None:
        """Show the program the nodes of a plan, as many as it has asks at most."""
        assert self._generation is not None
        patterns = sorted(plan.patterns, key=lambda p: -p.copies)[: len(self._few.demand)]
        cluster = np.zeros(len(self.space.demand), dtype=np.int64)
        for number, asks in enumerate(self._few.members if self._few is not self.space else ()):
            cluster[asks] = number
        if self._few is self.space:
            cluster = np.arange(len(self.space.demand))
        counts = np.zeros((len(patterns), len(self._few.demand)))
        for row, pattern in enumerate(patterns):
            for ask, pods in pattern.counts:
                counts[row, cluster[ask]] += pods
        offers = np.array([p.offer for p in patterns], dtype=np.int64)
        # Clusters are as large as their mean: what holds small ones need not hold those.
        fits = (counts <= self._few.cap[offers]).all(axis=1)
        fits &= (self._few.wanted @ counts.T <= self._few.room[:, offers]).all(axis=0)
        self._generation.learn(offers[fits], counts[fits])

    def _generate(self) -> bool:
        """Generate columns while that pays, rounding now and then; return False when told to stop."""
        assert self._generation is not None
        milestone = _FIRST_ROUNDING
        pays = True
        while self._generation.dry < 1 and pays:
            while pays and self._generation.dry < 1 and self._generation.rounds < milestone:
                before = self._generation.master.objective
                rounds = min(milestone, self._generation.rounds + _ROUNDS)
                if not self._generation.run(self._more, rounds, 1):
                    return False
                pays = not self._hurry or self._generation.master.objective < before * (1 - _SLOW)
            milestone *= 2
            if self._generation.dry < 1 and not self._round(1):
                return False
        # Rearranging gains more than other ways of rounding where clusters stand for asks.
        return True if self._hurry else self._round(4)

    def _round(self, ways: int) -> bool:
        """Round the program's solution and keep the plan if it is the best."""
        assert self._generation is not None
        for up in _UPS if ways > 1 else _UPS[:1]:
            found = rounded(self._generation, self._rng, up, ways, self._more)
            if found is not None and self._few is not self.space:
                scales, worth = self._generation.scales, self.worth()
                found = realised(
                    self.space, self._few.members, found.patterns, scales, worth, self._rng, self._more
                )
            if found is None:
                return False
            if found.better_than(self.best) and (found.placed >= self._floor).all():
                self.best = found
        return True

    def _rearrange(self, times: int) -> bool:
        assert self._generation is not None
        for _ in range(times):
            found = rearranged(self.best, self._generation.scales, self.worth(), self._rng, self._more)
            if found is not None and (found.placed >= self._floor).all():
                self.best = found
            if not self._more():
                return False
        return True

    def worth(self) -> Prices:
        """Return [ask] USD per hour that a pod is worth."""
        if self._generation is None or not np.isfinite(self._generation.master.objective):
            return self._base if len(self._base) else np.zeros(len(self.space.demand))
        found = self._generation.master.worth
        if self._few is self.space:
            return found
        worth = self._base.copy()
        for cluster, asks in enumerate(self._few.members):
            mean = (worth[asks] @ self.space.demand[asks]) / max(int(self.space.demand[asks].sum()), 1)
            worth[asks] *= found[cluster] / mean if mean > 0 else 0.0
        return worth

    def limit_worth(self) -> Prices:
        """Return [limit] USD per hour that a unit is worth."""
        if self._generation is None or not np.isfinite(self._generation.master.objective):
            return np.zeros(len(self.space.remaining))
        return self._generation.master.limit_worth


def unplaced(problem: PackingProblem, patterns: Sequence[NodePattern]) -> Amounts:
    """Return [ask] the pods that `patterns` leave out."""
    left = problem.count.copy()
    for pattern in patterns:
        for ask, pods in pattern.counts:
            left[ask] -= pods * pattern.copies
    return left


def _fitted(problem: PackingProblem, space: Space, start: Sequence[NodePattern]) -> Plan:
    """Return `start` on the space's offers, each node on the cheapest that holds it within its limits."""
    every = np.arange(len(problem.price))
    found = []
    for pattern in gather(start, space.members, every):
        asks = np.array([a for a, _ in pattern.counts], dtype=np.int64)
        pods = np.array([n for _, n in pattern.counts], dtype=np.float64)
        fits = (space.cap[:, asks] >= pods).all(axis=1)
        fits &= (space.room >= (space.wanted[:, asks] @ pods)[:, None]).all(axis=0)
        fits &= (space.usage <= problem.usage[pattern.offer]).all(axis=1)
        if fits.any():
            offer = int(np.where(fits, space.cost, np.inf).argmin())
            found.append(NodePattern(offer, pattern.counts, pattern.copies))
        else:
            return Plan(space, ())
    return Plan(space, found)


def _patterns_or(
    problem: PackingProblem, found: Sequence[NodePattern], start: Sequence[NodePattern]
) -> tuple[NodePattern, ...]:
    """Return the better of two plans, in order."""
    key = [(int(unplaced(problem, p).sum()), objective(problem, p)) for p in (found, start)]
    better = found if key[0] <= key[1] else start
    merged: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    for p in better:
        merged[p.offer, p.counts] = merged.get((p.offer, p.counts), 0) + p.copies
    return tuple(NodePattern(offer, counts, n) for (offer, counts), n in sorted(merged.items()))


def objective(problem: PackingProblem, patterns: Sequence[NodePattern]) -> float:
    """Return cost, fees and penalties of `patterns`, USD per hour."""
    total = 0.0
    for p in patterns:
        total += (float(problem.price[p.offer]) + problem.fee) * p.copies
        if problem.concentration > 0:
            counts = np.zeros((1, len(problem.count)), dtype=np.int64)
            for ask, pods in p.counts:
                counts[0, ask] = pods
            total += float(penalty(problem, counts)[0]) * p.copies
    return total
