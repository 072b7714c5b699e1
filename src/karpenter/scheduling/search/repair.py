"""Placing a set of pods on new nodes, several ways at once: what rounding and neighbourhoods end with."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search.fills import fill_in_order
from karpenter.scheduling.search.scales import Scales
from karpenter.scheduling.search.space import Matrix, Space

_LONGEST = 48


class Repaired(NamedTuple):
    """Nodes for a set of pods, in the space's asks and offers."""

    offers: Amounts
    """[node]"""
    counts: Amounts
    """[node, ask] over the asks that were given."""
    copies: Amounts
    """[node]"""
    missing: int
    """Pods on no node."""
    objective: float
    """USD per hour with fees and penalties."""


class _Ways(NamedTuple):
    """The state of all ways at once."""

    need: Matrix
    """[way, ask]"""
    limits: Amounts
    """[way, limit] What is left."""
    nodes: list[tuple[Amounts, Amounts, Matrix, Amounts]]
    """By round: way, offer, counts, copies of the nodes that were opened."""


class Menu(NamedTuple):
    """The part of a space that a repair looks at."""

    asks: Amounts
    offers: Amounts
    wanted: Matrix
    room: Matrix
    cap: Matrix
    share: Matrix
    """[offer, ask] Weighted share of the node that a pod takes."""
    cost: Matrix
    usage: Amounts
    apart: Mask | None
    worth: Matrix


def menu_of(space: Space, scales: Scales, worth: Matrix, asks: Amounts, offers: Amounts) -> Menu:
    """Return the part of `space` for placing `asks` on `offers` when pods are worth `worth` [ask]."""
    wanted, room = space.wanted[:, asks], space.room[:, offers]
    return Menu(
        asks=asks,
        offers=offers,
        wanted=wanted,
        room=room,
        cap=space.cap[np.ix_(offers, asks)],
        share=np.maximum((scales.weight[:, offers] / room).T @ wanted, 1e-30),
        cost=space.cost[offers],
        usage=space.usage[offers],
        apart=None if space.apart is None else space.apart[np.ix_(asks, asks)],
        worth=np.maximum(worth[asks], 1e-9),
    )


def repair(
    space: Space,
    menu: Menu,
    need: Amounts,
    limits: Amounts,
    rng: np.random.Generator,
    ways: int,
    more: Callable[[], bool],
) -> Repaired | None:
    """Place `need` [ask of the menu] on new nodes within `limits`, in several ways; return the best.

    Each way opens, again and again, the node whose pods are worth most per price by densities that are off by
    chance (not in the first way). None when `more` ended it.
    """
    state = _Ways(np.tile(need.astype(np.float64), (ways, 1)), np.tile(limits, (ways, 1)), [])
    alive = np.arange(ways)
    noise = np.exp(rng.normal(size=(ways, len(need))) * 0.15)
    noise[0] = 1.0
    while len(alive):
        alive = _open_nodes(menu, state, alive, noise, rng)
        if not more():
            return None
    return _best(space, menu, state, ways)


def _open_nodes(menu: Menu, state: _Ways, alive: Amounts, noise: Matrix, rng: np.random.Generator) -> Amounts:
    """Open the best node of each way that is alive, as often as it can be filled; return who still is."""
    offers, asks = menu.cap.shape
    needs = state.need[alive]
    cap = np.minimum(menu.cap[None, :, :], needs[:, None, :])
    if state.limits.shape[1]:
        cap[(menu.usage[None, :, :] > state.limits[alive][:, None, :]).any(axis=2)] = 0.0
    density = np.where(cap > 0, (menu.worth * noise[alive])[:, None, :] / menu.share[None, :, :], 0.0)
    density, cap = density.reshape(-1, asks), cap.reshape(-1, asks)
    last = min(int((density > 0).sum(axis=1).max(initial=0)), _LONGEST)
    order = np.argsort(-density, axis=1, kind="stable")[:, :last].T
    counts = fill_in_order(menu.wanted, np.tile(menu.room, len(alive)), cap, order, menu.apart)
    counts = counts.reshape(len(alive), offers, asks)
    gain = (counts @ menu.worth) / menu.cost
    wild = np.exp(rng.normal(size=gain.shape) * 0.02)
    wild[alive == 0] = 1.0
    choice = (gain * wild).argmax(axis=1)
    rows = np.arange(len(alive))
    good = gain[rows, choice] > 0
    alive, choice, rows = alive[good], choice[good], rows[good]
    chosen = counts[rows, choice]
    copies = _repeats(menu, state, alive, choice, chosen)
    state.nodes.append((alive, choice, chosen, copies))
    state.need[alive] -= chosen * copies[:, None]
    state.limits[alive] -= menu.usage[choice] * copies[:, None]
    still: Amounts = alive[state.need[alive].any(axis=1)]
    return still


def _repeats(menu: Menu, state: _Ways, alive: Amounts, choice: Amounts, chosen: Matrix) -> Amounts:
    """Return how often each node can be had again with the same pods within the limits, at least once."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(chosen > 0, state.need[alive] // chosen, np.inf).min(axis=1)
        if state.limits.shape[1]:
            usage = menu.usage[choice]
            within = np.where(usage > 0, state.limits[alive] // usage, np.inf).min(axis=1)
            times = np.minimum(times, within)
    found: Amounts = np.maximum(times, 1).astype(np.int64)
    return found


def _best(space: Space, menu: Menu, state: _Ways, ways: int) -> Repaired:
    """Return the way that leaves least pods out, then the cheapest."""
    missing = state.need.sum(axis=1).astype(np.int64)
    cost = np.zeros(ways)
    for way, choice, counts, copies in state.nodes:
        each = menu.cost[choice] + penalties(space, menu.asks, counts)
        np.add.at(cost, way, each * copies)
    best = int(np.lexsort((np.arange(ways), cost, missing))[0])
    offers: list[int] = []
    rows: list[Matrix] = []
    number: list[int] = []
    for way, choice, counts, copies in state.nodes:
        place = np.flatnonzero(way == best)
        if len(place):
            offers.append(int(menu.offers[choice[place[0]]]))
            rows.append(counts[place[0]])
            number.append(int(copies[place[0]]))
    return Repaired(
        np.array(offers, dtype=np.int64),
        np.array(rows).reshape(len(rows), len(menu.asks)).astype(np.int64),
        np.array(number, dtype=np.int64),
        int(missing[best]),
        float(cost[best]),
    )


def penalties(space: Space, asks: Amounts, counts: Matrix) -> Matrix:
    """Return [node] what the share of an ask's pods on one node adds to the objective, USD per hour."""
    if space.penalty <= 0:
        return np.zeros(len(counts))
    whole = space.whole[asks]
    share = np.where(whole > 1, counts / np.maximum(whole, 1), 0.0)
    found: Matrix = space.penalty * (np.maximum(share - 0.5, 0.0) ** 2).sum(axis=1) * 4
    return found
