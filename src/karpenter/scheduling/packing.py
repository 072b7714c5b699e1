"""What one new node should hold: which type, and how many pods of which class.

Upstream grows its first node until only the largest types fit. Here every type that could take the pod at
hand is filled in thought with the pods that remain; the one that holds the most worth for its price wins.
A class's worth is the least its pods can cost anywhere: what their scarcest resource costs on the best type.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from karpenter.model.requirements import Requirements
from karpenter.scheduling.catalogue import Amounts, Mask, Prices
from karpenter.scheduling.classes import PodClass, Port, Variant
from karpenter.scheduling.space import PoolSpace, conflicting, how_many

NODE_FEE = 0.02
"""USD per hour put on every node when types are compared: many tiny nodes are no bargain."""
_EPSILON = 1e-9
_LOOKAHEAD = 400
"""How many classes are tried on the types in thought; the winner is filled from all of them."""


class Ask(msgspec.Struct):
    """A class on its way: what is left of it, and under which variant and in which pool it wants a node."""

    index: int
    pod_class: PodClass
    wanted: Amounts
    remaining: int
    variant: int = 0
    home: int | None = None
    """The first pool that can buy a node for it."""
    worth: float = 0.0

    @property
    def demands(self) -> Variant:
        return self.pod_class.variants[self.variant]


class Pattern(msgspec.Struct):
    """One node, as it will be bought one or more times."""

    chosen: int
    price: float
    requirements: Requirements
    counts: dict[int, int]
    """Pods by ask index."""
    used: Amounts
    ports: frozenset[Port]


def choose(space: PoolSpace, start: Requirements, prices: Prices, seed: Ask, others: Sequence[Ask]) -> int:
    """Return the type, among those with a finite price, that is best opened for `seed` and `others`."""
    candidates = _frontier(prices, space.room)
    cost = prices[candidates] + NODE_FEE
    room = space.room[candidates].copy()
    value = np.zeros(len(candidates))
    requirements = start
    seed_limit = 1 if seed.pod_class.ports else seed.remaining
    queue = [seed, *others[:_LOOKAHEAD]]
    matrix = np.array([ask.wanted for ask in queue])
    for position in _fitting(matrix, room):
        ask = queue[position]
        counts = np.minimum(how_many(room, ask.wanted), 1 if ask.pod_class.ports else ask.remaining)
        if ask is seed:
            counts = np.minimum(counts, seed_limit)
        else:
            merged = space.admit(requirements, ask.demands)
            if isinstance(merged, str):
                continue
            if merged is not requirements:
                same = space.evaluate(merged).price[candidates] <= prices[candidates] + _EPSILON
                counts = np.where(same, counts, 0)
                if not counts.any():
                    continue
                requirements = merged
        room -= counts[:, None] * ask.wanted
        value += counts * ask.worth
    best = np.lexsort((candidates, prices[candidates], -np.round(value / cost, 9)))[0]
    return int(candidates[best])


def fill(
    space: PoolSpace,
    chosen: int,
    start: Requirements,
    allowed: Mask,
    seed: Ask,
    others: Sequence[Ask],
) -> Pattern:
    """Return a node of type `chosen`, opened for `seed` and filled with `others` in order.

    Others join only where they don't make the node dearer. `allowed` are the types that may be listed; with
    minValues, enough of them have to hold the whole content.
    """
    price = float(space.evaluate(start).price[chosen])
    pattern = Pattern(chosen, price, start, {}, np.zeros_like(seed.wanted), frozenset())
    queue = [seed, *others]
    matrix = np.array([ask.wanted for ask in queue])
    room = space.room[chosen : chosen + 1].copy()
    for position in _fitting(matrix, room):
        ask = queue[position]
        count = min(int(how_many(room, ask.wanted)[0]), ask.remaining)
        joined = join(space, pattern, ask, count, allowed)
        if joined:
            pattern.counts[ask.index] = joined
            room -= joined * ask.wanted
    return pattern


def join(space: PoolSpace, pattern: Pattern, ask: Ask, count: int, allowed: Mask) -> int:
    """Add up to `count` pods of `ask` to `pattern`, at the price it has; return how many could be added."""
    merged = space.admit(pattern.requirements, ask.demands)
    if isinstance(merged, str) or count <= 0:
        return 0
    evaluation = space.evaluate(merged)
    if evaluation.price[pattern.chosen] > pattern.price + _EPSILON:
        return 0
    ports = ask.pod_class.ports
    if ports:
        count = 1
        if conflicting(pattern.ports, ports) or not space.free_ports(ports)[pattern.chosen]:
            return 0
    if merged.has_min_values:
        options = np.isfinite(evaluation.price) & allowed & space.free_ports(pattern.ports | ports)
        count = _within_min_values(space, merged, options, pattern.used, ask, count)
        if count <= 0:
            return 0
    pattern.requirements = merged
    pattern.used = pattern.used + ask.wanted * count
    pattern.ports |= ports
    return count


def _within_min_values(
    space: PoolSpace, requirements: Requirements, options: Mask, used: Amounts, ask: Ask, count: int
) -> int:
    """Return how many pods can join, at most `count`, so that enough types still hold everything."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        fitting = options & space.fits(used + ask.wanted * middle)
        if space.achieved(requirements, fitting):
            high = middle - 1
        else:
            low = middle
    return low


def _fitting(matrix: Amounts, room: Amounts) -> Iterator[int]:
    """Yield the rows of `matrix`, in order, that fit some row of `room`, which the caller shrinks."""
    position = 0
    while position < len(matrix):
        most = room.max(axis=0)
        if (matrix[position] <= most).all():
            yield position
            position += 1
            continue
        ahead = (matrix[position:] <= most).all(axis=1)
        step = int(ahead.argmax())
        if not ahead[step]:
            return
        position += step


def _frontier(prices: Prices, room: Amounts) -> Amounts:
    """Return the types with a price that no other beats in price and every resource, cheapest first."""
    usable = np.flatnonzero(np.isfinite(prices))
    order = usable[np.lexsort((usable, -room[usable].sum(axis=1, dtype=np.float64), prices[usable]))]
    kept: list[int] = []
    rows = np.empty((0, room.shape[1]), dtype=np.int64)
    for candidate in order.tolist():
        if len(kept) and (rows >= room[candidate]).all(axis=1).any():
            continue
        kept.append(candidate)
        rows = room[kept]
    return np.array(kept, dtype=np.int64)
