"""Placing a set of pods on new nodes, several ways at once: what rounding and neighbourhoods end with."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from karpenter.base.draws import Draws
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


class _Ways:
    """The state of all ways at once."""

    def __init__(self, need: Amounts, limits: Amounts, ways: int) -> None:
        self.need: Matrix = np.tile(need.astype(np.float64), (ways, 1))
        """[way, ask]"""
        self.limits: Amounts = np.tile(limits, (ways, 1))
        """[way, limit] What is left."""
        self.spent: Matrix = np.zeros(ways)
        """[way] USD per hour."""
        self.nodes: list[tuple[Amounts, Amounts, Matrix, Amounts]] = []
        """By round: way, offer, counts, copies of the nodes that were opened."""
        self.finish: _Finish | None = None
        """The cheapest way to be done with one node more, in any round."""


class _Finish(NamedTuple):
    """One node that holds all that a way still has to place."""

    objective: float
    way: int
    rounds: int
    offer: int
    counts: Matrix


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
    rng: Draws,
    ways: int,
    more: Callable[[], bool],
) -> Repaired | None:
    """Place `need` [ask of the menu] on new nodes within `limits`, in several ways; return the best.

    Each way opens, again and again, the node whose pods are worth most per price by densities that are off by
    chance (not in the first way). None when `more` ended it.
    """
    state = _Ways(need, limits, ways)
    alive = np.arange(ways)
    noise = np.exp(rng.normal(size=(ways, len(need))) * 0.15)
    noise[0] = 1.0
    while len(alive):
        _finish(space, menu, state, alive)
        alive = _open_nodes(space, menu, state, alive, noise, rng)
        if not more():
            return None
    return _best(menu, state)


def _finish(space: Space, menu: Menu, state: _Ways, alive: Amounts) -> None:
    """Note the cheapest node that holds everything that a way of `alive` still needs."""
    need = state.need[alive]
    used = need @ menu.wanted.T
    fits: Mask = np.all(used[:, :, None] <= menu.room[None, :, :], axis=1)
    if not fits.any():
        return
    fits &= np.all(need[:, None, :] <= menu.cap[None, :, :], axis=2)
    if state.limits.shape[1]:
        fits &= np.all(menu.usage[None, :, :] <= state.limits[alive][:, None, :], axis=2)
    if menu.apart is not None:
        there = (need > 0).astype(np.float64)
        fits &= np.all(there * (there @ menu.apart) == 0, axis=1)[:, None]
    cost = np.where(fits, menu.cost, np.inf)
    offer = cost.argmin(axis=1)
    total = state.spent[alive] + cost[np.arange(len(alive)), offer] + penalties(space, menu.asks, need)
    best = int(total.argmin())
    if np.isfinite(total[best]) and (state.finish is None or total[best] < state.finish.objective):
        way, counts = int(alive[best]), need[best].copy()
        state.finish = _Finish(float(total[best]), way, len(state.nodes), int(offer[best]), counts)


def _open_nodes(space: Space, menu: Menu, state: _Ways, alive: Amounts, noise: Matrix, rng: Draws) -> Amounts:
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
    state.spent[alive] += (menu.cost[choice] + penalties(space, menu.asks, chosen)) * copies
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


def _best(menu: Menu, state: _Ways) -> Repaired:
    """Return the way that leaves least pods out, then the cheapest."""
    missing = state.need.sum(axis=1).astype(np.int64)
    best = int(np.lexsort((np.arange(len(missing)), state.spent, missing))[0])
    left_out, objective, rounds, finish = int(missing[best]), float(state.spent[best]), len(state.nodes), None
    if state.finish is not None and (left_out or state.finish.objective < objective):
        finish = state.finish
        left_out, objective, best, rounds = 0, finish.objective, finish.way, finish.rounds
    offers, rows, number = [], [], []
    for way, choice, counts, copies in state.nodes[:rounds]:
        place = np.flatnonzero(way == best)
        if len(place):
            offers.append(int(menu.offers[choice[place[0]]]))
            rows.append(counts[place[0]])
            number.append(int(copies[place[0]]))
    if finish is not None:
        offers.append(int(menu.offers[finish.offer]))
        rows.append(finish.counts)
        number.append(1)
    return Repaired(
        np.array(offers, dtype=np.int64),
        np.array(rows).reshape(len(rows), len(menu.asks)).astype(np.int64),
        np.array(number, dtype=np.int64),
        left_out,
        objective,
    )


def penalties(space: Space, asks: Amounts, counts: Matrix) -> Matrix:
    """Return [node] what the share of an ask's pods on one node adds to the objective, USD per hour."""
    if space.penalty <= 0:
        return np.zeros(len(counts))
    whole = space.whole[asks]
    share = np.where(whole > 1, counts / np.maximum(whole, 1), 0.0)
    found: Matrix = space.penalty * (np.maximum(share - 0.5, 0.0) ** 2).sum(axis=1) * 4
    return found
