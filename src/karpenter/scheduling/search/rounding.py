"""From fractions of nodes to nodes."""

from collections.abc import Callable

import numpy as np

from karpenter.base.draws import Draws
from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.search.generation import Generation
from karpenter.scheduling.search.plan import Plan, patterns_of
from karpenter.scheduling.search.problem import NodePattern
from karpenter.scheduling.search.repair import menu_of, repair
from karpenter.scheduling.search.scales import Scales
from karpenter.scheduling.search.space import Matrix, Space

_ROUNDING = 1e-6
_OFFERS = 40


def rounded(
    generation: Generation, rng: Draws, up: float, ways: int, more: Callable[[], bool]
) -> Plan | None:
    """Return a plan near the linear program's solution, None when `more` ended it.

    Whole nodes are taken as they are, then one more of each filling with a fraction of at least `up`, as far
    as its pods are still to be placed and pay for it; a repair places the rest.
    """
    space, master = generation.space, generation.master
    need = space.demand.astype(np.float64)
    limits = space.remaining.copy()
    amount = master.amount
    patterns: list[NodePattern] = []
    used = np.flatnonzero(amount > _ROUNDING)
    whole = np.floor(amount[used] + _ROUNDING)
    fraction = amount[used] - whole
    for column in used[np.argsort(-whole, kind="stable")]:
        copies = int(amount[column] + _ROUNDING)
        _take(space, int(master.offer[column]), master.counts[column], copies, need, limits, patterns)
    for place in np.argsort(-fraction, kind="stable"):
        column = used[place]
        if fraction[place] < up:
            break
        counts = np.minimum(master.counts[column], need)
        if counts @ master.worth >= (1 - 0.02) * master.cost[column]:
            _take(space, int(master.offer[column]), counts, 1, need, limits, patterns)
    asks = np.flatnonzero(need)
    if len(asks):
        known = np.unique(master.offer[used])
        offers = menu_offers(space, generation.scales, master.worth, asks, known, _OFFERS)
        menu = menu_of(space, generation.scales, master.worth, asks, offers)
        found = repair(space, menu, need[asks].astype(np.int64), limits, rng, ways, more)
        if found is None:
            return None
        patterns += patterns_of(found, asks)
    return Plan(space, patterns)


def _take(
    space: Space,
    offer: int,
    counts: Matrix,
    copies: int,
    need: Matrix,
    limits: Amounts,
    patterns: list[NodePattern],
) -> None:
    """Add up to `copies` nodes; where pods run out, the last one has fewer of them."""
    usage = space.usage[offer]
    taken = usage > 0
    if taken.any():
        copies = min(copies, int((limits[taken] // usage[taken]).min()))
    while copies > 0:
        wanted = np.minimum(counts, need)
        asks = np.flatnonzero(wanted)
        if not len(asks):
            return
        run = max(1, min(copies, int((need[asks] // wanted[asks]).min())))
        patterns.append(NodePattern(offer, tuple((int(a), int(wanted[a])) for a in asks), run))
        need -= wanted * run
        limits -= usage * run
        copies -= run


def menu_offers(
    space: Space, scales: Scales, worth: Matrix, asks: Amounts, known: Amounts, number: int
) -> Amounts:
    """Return `known` offers and others that may pay when filled with `asks`, about `number`, sorted."""
    cap = space.cap[:, asks]
    share = (scales.weight / space.room).T @ space.wanted[:, asks]
    most = np.where(cap > 0, worth[asks] / np.maximum(share, 1e-30), 0.0).max(axis=1) / space.cost
    best = np.argsort(-most, kind="stable")[:number]
    cheap = np.flatnonzero((cap > 0).any(axis=1))[:4]
    chosen = np.unique(np.concatenate([known, best[most[best] > 0], cheap]))
    found: Amounts = chosen[(cap[chosen] > 0).any(axis=1)]
    return found
