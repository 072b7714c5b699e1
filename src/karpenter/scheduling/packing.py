"""What one new node should hold: which type, and how many pods of which class.

Upstream grows its first node until only the largest types fit. Here every type that could take the pod at
hand is filled in thought with the pods that remain; the one that holds the most worth for its price wins.
A class's worth is the least its pods can cost anywhere: what their scarcest resource costs on the best type.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from karpenter.model.problem import SolveOptions
from karpenter.model.requirements import Requirements
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.catalogue import Amounts, Mask, Prices
from karpenter.scheduling.classes import Port, Variant
from karpenter.scheduling.space import PoolSpace, conflicting
from karpenter.scheduling.topology import Occupancy, Topology
from karpenter.scheduling.waiting import Queue

NODE_FEE = 0.02
"""USD per hour that keeps very cheap types apart on the scale on which types are picked for comparison."""
_EPSILON = 1e-9
_MOST_TYPES = 64
"""How many types are compared."""
_LOOKAHEAD = 150
"""How many classes are tried on the types in thought; the winner is filled from all of them."""
_FEW = 120
"""Up to how many classes the costlier fill by worth is tried too."""
_PROMISING = 10
"""On how many types that is done."""
_STRETCH = 8
"""After how many classes it is looked again which of the others may still join."""
_STEP = 0.25
"""How much of the room one step of it may give to one class."""


class Pattern(msgspec.Struct):
    """One node, as it will be bought one or more times."""

    chosen: int
    price: float
    requirements: Requirements
    counts: dict[int, int]
    """Pods by ask index."""
    used: Amounts
    ports: frozenset[Port]
    held: Occupancy
    founding: bool = False
    """Its first pods need not be near others of their group: there are none yet."""


class Choice(msgspec.Struct, frozen=True):
    """The type to open, what to put on it first, and what it promises."""

    chosen: int
    counts: dict[int, int]
    """Pods by position in the queue; empty: as many as fit, in order."""
    ratio: float = 0.0
    """The worth of the pods on it for its price."""


def choose(space: PoolSpace, start: Requirements, prices: Prices, waiting: Queue) -> Choice:
    """Return the type, among those with a finite price, that is best opened for the first of `waiting`.

    All types are filled with the queue in order; the most promising are filled again, each step with what is
    worth most for the room it takes, which finds complements that an order by size does not.
    """
    candidates = _candidates(space, start, prices)
    cost = prices[candidates] + space.options.node_fee
    queue = waiting.front(_LOOKAHEAD)
    wanted = waiting.wanted(slice(len(queue))).astype(np.float64)
    room = space.room[candidates][:, waiting.waiting.columns].T.astype(np.float64)
    limits = np.array([min(ask.most, ask.remaining) for ask in queue], dtype=np.int64)
    worth = np.array([ask.worth for ask in queue])
    joins = _joinable(space, start, prices, candidates, queue)
    in_order = _fill_in_order(room, wanted, limits, joins, queue)
    ranking = np.lexsort((candidates, prices[candidates], -np.round(in_order / cost, 9)))
    best, counts = int(ranking[0]), {}
    ratio = float(in_order[best] / cost[best])
    if len(queue) <= _FEW:
        few = ranking[:_PROMISING]
        filled = np.zeros((len(few), len(queue)), dtype=np.int64)
        able = np.flatnonzero(joins[:, few].any(axis=1))
        if len(able) and not able[0]:
            filled[:, able] = _fill_by_worth(
                room[:, few], wanted[:, able], limits[able], joins[able][:, few], worth[able]
            )
        ratios = np.round(filled @ worth / (cost[few] + crowding(space.options, queue, filled)), 9)
        winner = int(ratios.argmax())
        plain = 0.0 if space.options.concentration_penalty > 0 else in_order[best] / cost[best]
        if ratios[winner] > np.round(plain, 9):
            best, ratio = int(few[winner]), float(ratios[winner])
            counts = {i: count for i, count in enumerate(filled[winner].tolist()) if count}
    return Choice(int(candidates[best]), counts, ratio)


def crowding(options: SolveOptions, asks: Sequence[Ask], counts: Amounts) -> Prices:
    """Return, by node, what `counts` [node, ask] adds for holding much of one workload, USD per hour."""
    if options.concentration_penalty <= 0:
        return np.zeros(len(counts))
    whole = np.array([len(a.pods) for a in asks])
    share = np.where(whole > 1, counts / np.maximum(whole, 1), 0.0)
    found: Prices = options.concentration_penalty * ((np.maximum(share - 0.5, 0.0) * 2) ** 2).sum(axis=1)
    return found


def _joinable(
    space: PoolSpace, start: Requirements, prices: Prices, candidates: Amounts, queue: Sequence[Ask]
) -> Mask:
    """Return, by class and type, whether the class can join those before without making it dearer."""
    joins = np.zeros((len(queue), len(candidates)), dtype=np.bool_)
    requirements = start
    met: dict[Variant, bool] = {}
    """Who asks for nothing but what the node is by now, or cannot join."""
    for position, ask in enumerate(queue):
        known = met.get(ask.demands)
        if known is None:
            merged = space.admit(requirements, ask.demands)
            known = met[ask.demands] = merged is requirements
            if not known and not isinstance(merged, str):
                same = space.evaluate(merged).price[candidates] <= prices[candidates] + _EPSILON
                if same.any():
                    joins[position] = same
                    requirements = merged
                    met.clear()
                continue
        if known:
            joins[position] = joins[0] if position else True
    return joins


def _fill_in_order(
    room: Prices, wanted: Prices, limits: Amounts, joins: Mask, queue: Sequence[Ask]
) -> Prices:
    """Return, by type, the worth of what fits when each class in turn takes all it can.

    `room` is by resource and type, `wanted` by resource and class.
    """
    free, gained = room.copy(), np.zeros(room.shape[1])
    wants = np.ascontiguousarray(wanted.T)[:, :, None]
    most = [0, *np.cumsum(limits).tolist()]
    with np.errstate(divide="ignore", invalid="ignore"):
        for first, last in _runs(queue, joins):
            # What is not wanted of nothing is no number, and no hindrance.
            fit = np.floor(np.fmin.reduce(free / wants[first]))
            fit = np.minimum(fit, most[last] - most[first]) * joins[first]
            free -= fit * wants[first]
            gained += fit * queue[first].worth
    return gained


def _runs(queue: Sequence[Ask], joins: Mask) -> Iterator[tuple[int, int]]:
    """Yield where neighbours begin and end that take the same on the same types."""
    alike = [False, *np.logical_and.reduce(joins[1:] == joins[:-1], axis=1).tolist()]
    joining = np.logical_or.reduce(joins, axis=1).tolist()
    first = 0
    for last in range(1, len(queue) + 1):
        before, after = queue[first], queue[last] if last < len(queue) else None
        if after and alike[last] and after.needs == before.needs and after.worth == before.worth:
            continue
        if joining[first]:
            yield first, last
        first = last


def _fill_by_worth(room: Prices, wanted: Prices, limits: Amounts, joins: Mask, worth: Prices) -> Amounts:
    """Return, by type and class, how many pods fit when the class worth most for its room goes next.

    The first class is the one the node is opened for, so one pod of it is always there. `room` is by resource
    and type, `wanted` by resource and class.
    """
    free = room - wanted[:, :1]
    rows = np.arange(room.shape[1])
    counts = np.zeros((room.shape[1], wanted.shape[1]), dtype=np.int64)
    counts[:, 0] = 1
    able = joins.T & (counts < limits)
    with np.errstate(divide="ignore", invalid="ignore"):
        while True:
            share = wanted[0] / free[0, :, None]
            for resource in range(1, len(free)):
                # What is not wanted of nothing is no number, and no hindrance.
                np.fmax(share, wanted[resource] / free[resource, :, None], out=share)
            sound = free.min(axis=0) >= 0
            fits = (share <= 1) & able & sound[:, None]
            if not fits.any():
                return counts
            pick = np.where(fits, worth / share, -1.0).argmax(axis=1)
            most = np.floor(1 / share[rows, pick] + _EPSILON)
            step = np.minimum(np.ceil(most * _STEP), (limits[pick] - counts[rows, pick]))
            step = np.where(fits[rows, pick], step, 0).astype(np.int64)
            counts[rows, pick] += step
            able[rows, pick] &= counts[rows, pick] < limits[pick]
            free -= step * wanted[:, pick]


def fill(
    space: PoolSpace,
    topology: Topology,
    choice: Choice,
    start: Requirements,
    allowed: Mask,
    queue: Queue,
    *,
    founding: bool = False,
) -> Pattern:
    """Return a node for the first of `queue`, filled with the others: first as chosen, then in order.

    Others join only where they don't make the node dearer. `allowed` are the types that may be listed; with
    minValues, enough of them have to hold the whole content.
    """
    chosen = choice.chosen
    price = float(space.evaluate(start).price[chosen])
    pattern = Pattern(
        chosen, price, start, {}, np.zeros_like(space.room[chosen]), frozenset(), Occupancy.empty(), founding
    )
    room: list[int] = space.room[chosen].tolist()
    admitted = queue.waiting.admitted(space, start, chosen).copy()
    inside = admitted if founding else admitted & queue.waiting.welcomed(pattern.held)

    def add(position: int, most: int) -> None:
        nonlocal inside
        ask, kind = queue[position], queue.kind[position]
        placed = pattern.counts.get(ask.index, 0)
        count = min(ask.remaining - placed, most)
        for column, amount in ask.needs:
            fit = room[column] // amount
            if fit <= 0:
                return
            if fit < count:
                count = fit
        alone = ask.profile.alone
        if not alone:
            count = min(count, topology.allowance(ask.profile, pattern.held))
            if not (pattern.founding or topology.welcome(ask.profile, pattern.held)):
                return
        if count <= 0:
            return
        joined = join(space, pattern, ask, count, allowed)
        if not joined:
            # What a node is only ever narrows: who cannot join now never will.
            admitted[kind] = inside[kind] = pattern.requirements.has_min_values
            return
        pattern.held.add(ask.profile, joined)
        pattern.counts[ask.index] = placed + joined
        for column, amount in ask.needs:
            room[column] -= joined * amount
        if pattern.founding or not alone:
            pattern.founding = False
            inside = admitted & queue.waiting.welcomed(pattern.held)

    for position, count in choice.counts.items():
        add(position, count)
    able = np.flatnonzero(admitted[queue.kind])
    wanted, kind, columns = queue.wanted(able), queue.kind[able], queue.waiting.columns.tolist()
    first = 0
    while first < len(able):
        fits = fitting_in(wanted[:, first:], [room[column] for column in columns])
        ahead = first + np.flatnonzero(fits & inside[kind[first:]])
        for at in able[ahead[:_STRETCH]].tolist():
            if inside[queue.kind[at]]:
                add(at, queue[at].remaining)
        first = int(ahead[_STRETCH]) if len(ahead) > _STRETCH else len(able)
    return pattern


def join(space: PoolSpace, pattern: Pattern, ask: Ask, count: int, allowed: Mask) -> int:
    """Add up to `count` pods (at least one) of `ask` to `pattern`, at its price; return how many it took.

    What the other pods of the node have to say about it is for the caller to ask.
    """
    merged = space.admit(pattern.requirements, ask.demands)
    if isinstance(merged, str):
        return 0
    price = space.evaluate(merged).price
    if merged is not pattern.requirements and price[pattern.chosen] > pattern.price + _EPSILON:
        return 0
    ports = ask.ports
    if ports:
        count = 1
        if conflicting(pattern.ports, ports) or not space.free_ports(ports)[pattern.chosen]:
            return 0
    if merged.has_min_values:
        options = np.isfinite(price) & allowed & space.free_ports(pattern.ports | ports)
        count = _within_min_values(space, merged, options, pattern.used, ask, count)
        if not count:
            return 0
    pattern.requirements = merged
    pattern.used = pattern.used + ask.wanted * count
    pattern.ports |= ports
    return count


def _within_min_values(
    space: PoolSpace, requirements: Requirements, options: Mask, used: Amounts, ask: Ask, count: int
) -> int:
    """Return how many pods can join, at most `count`, so that enough types still hold everything."""

    def too_many(joining: int) -> bool:
        return bool(space.achieved(requirements, options & space.fits(used + ask.wanted * joining)))

    return bisect_left(range(1, count + 1), True, key=too_many)


def fitting_in(wanted: Amounts, room: Sequence[int]) -> Mask:
    """Return which asks fit `room`; `wanted` is by resource and ask."""
    fits: Mask = wanted[0] <= room[0]
    for amounts, free in zip(wanted[1:], room[1:], strict=True):
        fits &= amounts <= free
    return fits


def _candidates(space: PoolSpace, start: Requirements, prices: Prices) -> Amounts:
    """Return the types with a price that are worth comparing, cheapest first.

    Whatever a type can hold, another that beats it can hold, too: who beats whom is found out only once. Of
    very many types, those are returned whose prices are about evenly spread.
    """
    key = (start, space.limits_version)
    known = space.frontiers.get(key)
    if known is None:
        open_to_all = np.where(space.within_limits(), space.evaluate(start).price, np.inf)
        known = space.frontiers[key] = frontier(open_to_all, space.room)
    found: Amounts = known[np.isfinite(prices[known])]
    if not len(found):
        found = frontier(prices, space.room)
    if len(found) > _MOST_TYPES:
        scale = prices[found] + NODE_FEE
        steps = scale[0] * (scale[-1] / scale[0]) ** np.linspace(0.0, 1.0, _MOST_TYPES)
        spots = np.minimum(np.searchsorted(scale, steps - _EPSILON), len(found) - 1)
        found = found[sorted(set(spots.tolist()))]
    return found


def frontier(prices: Prices, room: Amounts) -> Amounts:
    """Return the types with a price that no other beats in price and every resource, cheapest first."""
    usable = np.flatnonzero(np.isfinite(prices))
    order = usable[np.lexsort((usable, -room[usable].sum(axis=1, dtype=np.float64), prices[usable]))]
    columns = np.flatnonzero(room[order].any(axis=0))
    kept = np.ones(len(order), dtype=np.bool_)
    sizes = np.asfortranarray(room[order][:, columns])
    for i in range(len(order)):
        if kept[i]:
            # Whoever comes later costs as much or more.
            kept[i + 1 :] &= (sizes[i + 1 :] > sizes[i]).any(axis=1)
    return order[kept]
