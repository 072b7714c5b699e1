"""Taking a few nodes away that lose most, and placing their pods anew."""

from collections.abc import Callable

import numpy as np

from karpenter.base.draws import Draws
from karpenter.scheduling.search.plan import Plan, patterns_of
from karpenter.scheduling.search.problem import NodePattern
from karpenter.scheduling.search.repair import menu_of, repair
from karpenter.scheduling.search.rounding import menu_offers
from karpenter.scheduling.search.scales import Scales
from karpenter.scheduling.search.space import Matrix

_OFFERS = 24
_WAYS = 8
_MOST_NODES = 7


def rearranged(
    plan: Plan, scales: Scales, worth: Matrix, rng: Draws, more: Callable[[], bool]
) -> Plan | None:
    """Return `plan` with a few nodes replaced, None when that gained nothing or `more` ended it."""
    space = plan.space
    taken = _losers(plan, worth, rng)
    need = np.maximum(space.demand - plan.placed, 0)
    offers = np.array(sorted({p.offer for p in taken}), dtype=np.int64)
    before = 0.0
    for pattern in taken:
        for ask, pods in pattern.counts:
            need[ask] += pods
        before += plan.cost_of(pattern)
    missing = plan.missing
    asks = np.flatnonzero(need)
    if not len(asks):
        return None
    menu = menu_of(space, scales, worth, asks, menu_offers(space, scales, worth, asks, offers, _OFFERS))
    found = repair(space, menu, need[asks], plan.limits_left(taken), rng, _WAYS, more)
    if found is None or (found.missing, found.objective) > (missing, before + 1e-9):
        return None
    return plan.replaced(taken, patterns_of(found, asks))


def _losers(plan: Plan, worth: Matrix, rng: Draws) -> list[NodePattern]:
    """Return a few nodes, by chance, those that lose much more often; each with its own copy."""
    if not plan.patterns:
        return []
    losses = np.maximum(plan.losses(worth), 0.0)
    copies = np.array([p.copies for p in plan.patterns], dtype=np.float64)
    weight = copies * (losses + 0.02 * plan.each + 1e-9)
    number = min(int(rng.integers(2, _MOST_NODES + 1)), int(copies.sum()))
    number = max(1, min(number, int(np.count_nonzero(weight))))
    chosen = rng.choice(len(weight), size=number, replace=False, p=weight / weight.sum())
    found = []
    for place in np.sort(chosen):
        pattern = plan.patterns[place]
        found.append(NodePattern(pattern.offer, pattern.counts, 1))
    return found
