"""The problem as it is searched: alike asks merged, useless offers gone, arrays in the kernels' layout."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search.dominance import kept_offers, usable_room
from karpenter.scheduling.search.problem import NodePattern, PackingProblem

Matrix = npt.NDArray[np.float64]

NOTHING = 1e-300
"""Stands for a request of zero, so that dividing by it says that any number of pods fits."""


class Space(NamedTuple):
    """Asks and offers as the search sees them. Asks here are groups of the caller's asks (`members`)."""

    wanted: Matrix
    """[resource, ask] A pod's requests, `NOTHING` for zero."""
    room: Matrix
    """[resource, offer] What fits on a node, plus one half: whole numbers divide without rounding errors."""
    cap: Matrix
    """[offer, ask] Most pods of the ask on one node of the offer; 0 where it may not be."""
    demand: Amounts
    """[ask] Pods to place; 0 for pods that fit nowhere."""
    price: Matrix
    """[offer] USD per hour."""
    cost: Matrix
    """[offer] USD per hour, fee included."""
    apart: Mask | None
    """[ask, ask] Never together; the diagonal is False."""
    usage: Amounts
    """[offer, limit]"""
    remaining: Amounts
    """[limit]"""
    penalty: float
    """USD per hour for a node that holds all pods of an ask (see PackingProblem.concentration)."""
    whole: Amounts
    """[ask] Pods of the ask altogether, by which shares are judged."""
    kind: Amounts
    """[ask] A number that is the same for asks that may be on the same offers, if only they fit."""
    offers: Amounts
    """[offer] The caller's row of the offer."""
    members: tuple[Amounts, ...]
    """By ask: the rows, in the space or problem that this one was made from, of the asks merged into it."""


def space_of(problem: PackingProblem) -> Space:
    """Return `problem` with identical asks merged and replaceable offers left out."""
    room = usable_room(problem)
    offers = kept_offers(problem, room)
    members = _identical(problem)
    first = np.array([m[0] for m in members], dtype=np.int64)
    several = np.array([len(m) for m in members]) > 1
    demand = np.array([problem.count[m].sum() for m in members], dtype=np.int64)
    unit = np.maximum(np.gcd.reduce(problem.wanted, axis=0), 1)
    wanted = np.where(problem.wanted > 0, problem.wanted // unit, NOTHING)[first].T.copy()
    inside = (room[offers] // unit).T + 0.5
    most = np.where(several, demand, np.minimum(problem.most[first], demand))
    allowed = problem.allowed[np.ix_(first, offers)].T
    cap = np.where(allowed, most, 0).astype(np.float64)
    for row, amounts in zip(wanted, inside, strict=True):
        np.minimum(cap, np.floor(amounts[:, None] / row[None, :]), out=cap)
    apart = None
    if problem.apart is not None and problem.apart.any():
        apart = problem.apart[np.ix_(first, first)] & ~np.eye(len(first), dtype=np.bool_)
    return Space(
        wanted=wanted,
        room=inside,
        cap=np.maximum(cap, 0.0),
        demand=np.where((cap > 0).any(axis=0), demand, 0),
        price=problem.price[offers],
        cost=problem.price[offers] + problem.fee,
        apart=apart,
        usage=problem.usage[offers],
        remaining=np.maximum(problem.remaining, 0),
        penalty=problem.concentration,
        whole=demand,
        kind=_kinds(problem)[first],
        offers=offers,
        members=members,
    )


def _kinds(problem: PackingProblem) -> Amounts:
    seen: dict[bytes, int] = {}
    few = (problem.most < problem.count)[:, None]
    rows = np.packbits(np.concatenate([few, problem.allowed], axis=1), axis=1)
    return np.array([seen.setdefault(row.tobytes(), len(seen)) for row in rows], dtype=np.int64)


def _identical(problem: PackingProblem) -> tuple[Amounts, ...]:
    """Return asks grouped so that those of a group are interchangeable, by first member."""
    alone = problem.most < problem.count
    if problem.concentration > 0:
        alone |= problem.count > 1
    if problem.apart is not None:
        alone = alone | problem.apart.any(axis=1)
    allowed = np.packbits(problem.allowed, axis=1)
    groups: dict[tuple[object, ...], list[int]] = {}
    for ask, single in enumerate(alone.tolist()):
        key = (ask,) if single else (problem.wanted[ask].tobytes(), allowed[ask].tobytes())
        groups.setdefault(key, []).append(ask)
    return tuple(np.array(group, dtype=np.int64) for group in groups.values())


def gather(patterns: Sequence[NodePattern], members: Sequence[Amounts], offers: Amounts) -> list[NodePattern]:
    """Return `patterns` over what `members` and `offers` were made from as patterns over groups.

    Patterns with an offer that was left out are left out.
    """
    group = {int(ask): place for place, asks in enumerate(members) for ask in asks}
    inside = {int(offer): place for place, offer in enumerate(offers)}
    found = []
    for pattern in patterns:
        counts: dict[int, int] = {}
        for ask, pods in pattern.counts:
            counts[group[ask]] = counts.get(group[ask], 0) + pods
        if pattern.offer in inside:
            found.append(NodePattern(inside[pattern.offer], tuple(sorted(counts.items())), pattern.copies))
    return found


def spread(
    patterns: Sequence[NodePattern], members: Sequence[Amounts], count: Amounts, offers: Amounts
) -> list[NodePattern]:
    """Return `patterns` over groups as patterns over what `members` and `offers` were made from.

    `count` [ask] says how many pods the asks outside have; the members of a group are used up in order.
    """
    left = [[int(count[ask]) for ask in group] for group in members]
    at = [0] * len(members)
    found: list[NodePattern] = []
    for pattern in patterns:
        copies = pattern.copies
        while copies:
            run = min((left[a][at[a]] // n for a, n in pattern.counts), default=copies)
            run = max(1, min(run, copies))
            counts: list[tuple[int, int]] = []
            for ask, pods in pattern.counts:
                counts += _taken(members[ask], left[ask], at, ask, pods, run)
            found.append(NodePattern(int(offers[pattern.offer]), tuple(sorted(counts)), run))
            copies -= run
    return found


def _taken(
    group: Amounts, left: list[int], at: list[int], ask: int, pods: int, run: int
) -> list[tuple[int, int]]:
    """Take `pods` pods for each of `run` nodes from a group's members; return (member, pods per node)."""
    if left[at[ask]] >= pods * run:
        left[at[ask]] -= pods * run
        taken = [(int(group[at[ask]]), pods)]
    else:  # the node that empties one member and goes on with the next
        taken = []
        while pods:
            part = min(pods, left[at[ask]])
            if part:
                taken.append((int(group[at[ask]]), part))
            left[at[ask]] -= part
            pods -= part
            if pods:
                at[ask] += 1
    while at[ask] + 1 < len(left) and not left[at[ask]]:
        at[ask] += 1
    return taken
