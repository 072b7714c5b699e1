"""Offers that no good plan needs."""

import numpy as np

from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search.problem import PackingProblem

_BLOCK = 256


def usable_room(problem: PackingProblem) -> Amounts:
    """Return [offer, resource] how much room pods can really use: never more than all pods want together.

    It is a multiple of what all requests are multiples of; a negative value means that not even an empty
    node exists. Smaller room makes more offers alike.
    """
    total = (np.minimum(problem.most, problem.count)[:, None] * problem.wanted).sum(axis=0)
    unit = np.maximum(np.gcd.reduce(problem.wanted, axis=0), 1)
    found: Amounts = np.minimum(problem.room, total) // unit * unit
    return found


def kept_offers(problem: PackingProblem, room: Amounts) -> Amounts:
    """Return the offers, by row and in order of price, that no other offer replaces in every plan.

    One offer replaces another when it costs no more, has as much room, takes as little of each limit and may
    hold the same asks. `room` is [offer, resource].
    """
    fits = _holds_something(problem, room)
    kinds = _column_kinds(problem.allowed)
    binding = _binding_limits(problem)
    usage = problem.usage[:, binding]
    order = np.lexsort((np.arange(len(problem.price)), problem.price))
    order = order[fits[order]]
    kept: list[Amounts] = []
    for kind in np.unique(kinds[order]).tolist():
        kept.append(_front(order[kinds[order] == kind], room, usage))  # noqa: PERF401
    chosen = np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.int64)
    return chosen[np.lexsort((chosen, problem.price[chosen]))]


def _front(order: Amounts, room: Amounts, usage: Amounts) -> Amounts:
    """Return those of `order`, offers by rising price, that none before them replaces."""
    kept = np.zeros(0, dtype=np.int64)
    for first in range(0, len(order), _BLOCK):
        block = order[first : first + _BLOCK]
        block = block[~_replaced(block, kept, room, usage)]
        inside = (room[block][None, :, :] >= room[block][:, None, :]).all(axis=2)
        inside &= (usage[block][None, :, :] <= usage[block][:, None, :]).all(axis=2)
        inside &= np.tri(len(block), k=-1, dtype=np.bool_)
        kept = np.concatenate([kept, block[~inside.any(axis=1)]])
    return kept


def _replaced(block: Amounts, kept: Amounts, room: Amounts, usage: Amounts) -> Mask:
    """Return which of `block` some cheaper offer of `kept` replaces."""
    if not len(kept):
        return np.zeros(len(block), dtype=np.bool_)
    better: Mask = np.ones((len(block), len(kept)), dtype=np.bool_)
    for column in range(room.shape[1]):
        better &= room[kept, column][None, :] >= room[block, column][:, None]
    for column in range(usage.shape[1]):
        better &= usage[kept, column][None, :] <= usage[block, column][:, None]
    found: Mask = better.any(axis=1).reshape(-1)
    return found


def _holds_something(problem: PackingProblem, room: Amounts) -> Mask:
    """Return the offers on which at least one pod can be, and of which at least one node can be bought."""
    within: Mask = np.all(problem.usage <= np.maximum(problem.remaining, 0), axis=1).reshape(-1)
    within &= np.all(room >= 0, axis=1).reshape(-1)
    within &= np.any(problem.allowed, axis=0).reshape(-1)
    return within


def _column_kinds(allowed: Mask) -> Amounts:
    """Return a number per offer; the same for those that may hold the same asks."""
    packed = np.packbits(allowed, axis=0).T
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row.tobytes(), len(seen)) for row in packed], dtype=np.int64)


def _binding_limits(problem: PackingProblem) -> Mask:
    """Return the limits that a plan with one node per pod could exceed."""
    if not len(problem.price):
        return np.zeros(len(problem.remaining), dtype=np.bool_)
    nodes = int(problem.count.sum())
    found: Mask = problem.usage.max(axis=0) > problem.remaining // max(nodes, 1)
    return found
