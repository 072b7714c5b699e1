"""A complete plan made cheaper: its planned nodes are searched anew, then rebuilt and compared.

What the search returns is only a proposal: nodes are rebuilt pod by pod through the same door as in the first
pass, whatever does not fit is placed as usual, and the cheaper of the two plans is kept.
"""

from collections.abc import Callable, Sequence

import numpy as np

from karpenter.scheduling.asks import Ask
from karpenter.scheduling.bins import Bin, BinTable
from karpenter.scheduling.menu import Menu, start_patterns
from karpenter.scheduling.packing import Pattern, crowding, join
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.search import Memory, NodePattern, improve, objective
from karpenter.scheduling.stock import lot_of
from karpenter.scheduling.topology import Occupancy

_EPSILON = 1e-9


def improved(current: Pass, more: Callable[[], bool], *, memory: Memory | None = None) -> float:
    """Replace the nodes of `current` by cheaper ones if the search finds any.

    Returns:
        USD per hour below which no plan for these pods can go, as far as the search knows; 0 when it does
        not, because it was asked for something more particular (see `same_as_relaxed`).
    """
    weights = _weights(current)
    free, held = _parts(current, weights)
    if not free:
        return 0.0
    pods: dict[int, list[str]] = {}
    for planned in free:
        for i, keys in planned.pods.items():
            pods.setdefault(i, []).extend(keys)
    asks = [current.asks[i] for i in sorted(pods)]
    position = {ask.index: at for at, ask in enumerate(asks)}
    for planned in free:
        current.spaces[planned.pool].take(planned.charged, -1)
    menu = Menu(current.spaces, asks, [min(weights[a.index]) for a in asks])
    start = start_patterns(menu, free, position)
    if start is None:
        _take_back(current, free)
        return 0.0
    counts = np.array([len(pods[a.index]) for a in asks], dtype=np.int64)
    problem = menu.problem(counts, current.topology.rules, current.problem.options)
    packing = improve(problem, start, more, memory=memory)
    before = total_cost(current, free)
    if objective(problem, packing.patterns) < before - _EPSILON:
        _rebuild(current, menu, packing.patterns, asks, pods, held, free, before)
    else:
        _take_back(current, free)
    return packing.lower_bound if not held and same_as_relaxed(current) else 0.0


def same_as_relaxed(current: Pass) -> bool:
    """Tell whether the search is asked just what any plan for the same pods has to meet.

    Then its own bound is as good as that of the relaxed problem (`relaxation`).
    """
    spaces = current.spaces
    return not (
        current.nodes.nodes
        or len({space.weight for space in spaces}) > 1
        or any(s.catalogue.lots or s.offer.interruption_cost or s.offer.remaining for s in spaces)
        or current.problem.options.price_remaining is not None
        or any(a.celled or a.profile.owned or len(a.options()) < len(a.variants) for a in current.asks)
    )


def _weights(current: Pass) -> dict[int, set[int]]:
    """Return, by ask, the weights of the pools whose planned nodes hold its pods."""
    weights: dict[int, set[int]] = {}
    for planned in current.bins.bins:
        weight = current.spaces[planned.pool].weight
        for i in planned.pods:
            weights.setdefault(i, set()).add(weight)
    return weights


def _parts(current: Pass, weights: dict[int, set[int]]) -> tuple[list[Bin], list[Bin]]:
    """Return the nodes that may be searched anew, and those that stay as they are.

    Nodes stay whose pods must be together, that hold pods placed under different preferences or from pools of
    different weights, those with minValues, those that draw on what can run out, and those of a pool that
    wants a mix of capacity types.
    """
    stuck = {
        i
        for i, found in weights.items()
        if len(found) > 1 or current.asks[i].mixed or current.asks[i].profile.near
    }
    free: list[Bin] = []
    held: list[Bin] = []
    for planned in current.bins.bins:
        pattern = planned.pattern
        keep = bool(stuck & planned.pods.keys()) or pattern.requirements.has_min_values or planned.relaxed
        keep = keep or bool(lot_of(pattern.requirements))
        keep = keep or bool(current.spaces[planned.pool].offer.capacity_type_mix)
        (held if keep else free).append(planned)
    return free, held


def _take_back(current: Pass, bins: Sequence[Bin]) -> None:
    for planned in bins:
        current.spaces[planned.pool].take(planned.charged, 1)


def total_cost(current: Pass, bins: Sequence[Bin]) -> float:
    """Return cost, fees and penalties of `bins`, USD per hour."""
    options, crowd = current.problem.options, 0.0
    for planned in bins if options.concentration_penalty > 0 else ():
        held = [current.asks[i] for i in planned.pods]
        counts = np.array([[len(keys) for keys in planned.pods.values()]])
        crowd += float(crowding(options, held, counts)[0])
    return sum(b.pattern.price + options.node_fee for b in bins) + crowd


def _rebuild(
    current: Pass,
    menu: Menu,
    patterns: Sequence[NodePattern],
    asks: Sequence[Ask],
    pods: dict[int, list[str]],
    held: Sequence[Bin],
    free: Sequence[Bin],
    before: float,
) -> None:
    """Put the pods of `free` on nodes as `patterns` say; go back to `free` if that is not cheaper."""
    table_before, refused_before = current.bins, dict(current.refused)
    kept = {a.index: (a.pods, a.remaining) for a in asks}
    table = current.buyer.bins = BinTable(current.spaces, current.topology, len(current.axis.names))
    for planned in held:
        table.add(planned, [planned.pods])
    for ask in asks:
        ask.pods, ask.remaining = pods[ask.index], len(pods[ask.index])
    for pattern in patterns:
        _buy(current, menu, pattern, asks)
    current.open_all([a for a in asks if a.remaining])
    bought = table.bins[len(held) :]
    stranded = any(a.remaining for a in asks)
    if stranded or total_cost(current, bought) >= before - _EPSILON:
        for planned in bought:
            current.spaces[planned.pool].take(planned.charged, -1)
            current.spaces[planned.pool].draw(planned.pattern.requirements, planned.pattern.chosen, -1)
        _take_back(current, free)
        current.buyer.bins, current.refused = table_before, refused_before
    for ask in asks:
        placed_before, remaining = kept[ask.index]
        ask.pods, ask.remaining = placed_before, remaining


def _buy(current: Pass, menu: Menu, wanted: NodePattern, asks: Sequence[Ask]) -> None:
    """Buy the nodes of one pattern, as far as limits and the node's own rules let it."""
    pool, chosen = int(menu.pool[wanted.offer]), int(menu.type[wanted.offer])
    space = current.spaces[pool]
    allowed = space.listable(space.unlimited, chosen)
    if not allowed[chosen]:
        return
    pattern = Pattern(
        chosen=chosen,
        price=float(menu.price[wanted.offer]),
        requirements=space.unlimited,
        counts={},
        used=np.zeros_like(asks[0].wanted),
        ports=frozenset(),
        held=Occupancy.empty(),
    )
    for at, count in wanted.counts:
        ask = asks[at]
        if not ask.profile.alone:
            count = min(count, current.topology.allowance(ask.profile, pattern.held))
        joined = 0
        for option in ask.options():
            ask.variant = option
            joined = joined or join(space, pattern, ask, min(count, ask.remaining), allowed)
        if joined:
            pattern.held.add(ask.profile, joined)
            pattern.counts[ask.index] = joined
    if not pattern.counts or not (space.room[chosen] >= pattern.used).all():
        return
    pattern.price = float(space.evaluate(pattern.requirements).price[chosen])
    copies = min([wanted.copies, *(current.asks[i].remaining // n for i, n in pattern.counts.items())])
    current.buyer.buy(pool, pattern, allowed, relaxed=False, copies=copies)
