"""What is open to the cost search: every offering of every pool as a row, and who may use it."""

from collections.abc import Sequence

import numpy as np

from karpenter.model.problem import SolveOptions
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.bins import Bin
from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search import NodePattern, PackingProblem
from karpenter.scheduling.space import PoolSpace, conflicting
from karpenter.scheduling.topology import Rule

_NO_BOUND = 2**40
_MOST_COUNTED = 8
"""How many rules are counted like resources: each makes the search a little slower."""


class Menu:
    """The rows of one search: (pool, offering), and the asks that choose among them."""

    def __init__(self, spaces: Sequence[PoolSpace], asks: Sequence[Ask], weights: Sequence[int]) -> None:
        """Lay out what `spaces` sell for `asks`; `weights` are those of the pools each ask is served by."""
        self.spaces = spaces
        self.asks = asks
        self._served_by = weights
        pools, types, prices, positions, charges = [], [], [], [], []
        for number, space in enumerate(spaces):
            of_type, price, usd = space.catalogue.open_offerings(space.offer.interruption_cost)
            rows = np.flatnonzero(
                space.catalogue.offerings_for(space.unlimited, space.well_known)
                & space.usable[of_type]
                & (price > 0)
            )
            pools.append(np.full(len(rows), number, dtype=np.int64))
            types.append(of_type[rows])
            prices.append(price[rows])
            positions.append(rows)
            charges.append(space.purse.charges(usd[rows] if space.purse.limited else usd[rows] * 0))
        self.pool: Amounts = np.concatenate(pools)
        self.type: Amounts = np.concatenate(types)
        self.price = np.concatenate(prices)
        self._charges: Amounts = np.concatenate(charges)
        self._positions = positions
        self._first = np.concatenate([[0], np.cumsum([len(p) for p in positions])]).astype(np.int64)
        self._weights = [space.weight for space in spaces]

    def problem(self, counts: Amounts, rules: Sequence[Rule], options: SolveOptions) -> PackingProblem:
        """Return what is asked of the search; `counts` are the pods of each ask to place."""
        room = np.concatenate([s.room[self.type[self.pool == i]] for i, s in enumerate(self.spaces)])
        usage, remaining = self._limits()
        allowed = self._allowed()
        counted = counted_rules(self.asks, counts, allowed)
        tally, most = tallies(self.asks, rules, counted)
        room = np.concatenate([room, np.broadcast_to(most, (len(room), len(counted)))], axis=1)
        return PackingProblem(
            wanted=np.concatenate([np.array([a.wanted for a in self.asks]), tally], axis=1),
            count=counts,
            most=np.array([min(a.most, _NO_BOUND) for a in self.asks]),
            room=room,
            price=self.price,
            allowed=allowed,
            apart=_apart(self.asks, rules, allowed, counted),
            usage=usage,
            remaining=remaining,
            fee=options.node_fee,
            concentration=options.concentration_penalty,
        )

    def row_of(self, planned: Bin) -> int | None:
        """Return the row that a planned node is bought by; None when it is none of these."""
        space = self.spaces[planned.pool]
        low, high = self._first[planned.pool], self._first[planned.pool + 1]
        usable = self._mask(
            planned.pool, space.catalogue.offerings_for(planned.pattern.requirements, space.well_known)
        )
        rows = np.flatnonzero(usable & (self.type[low:high] == planned.pattern.chosen))
        if not len(rows):
            return None
        return int(low + rows[self.price[low:high][rows].argmin()])

    def _mask(self, pool: int, offerings: Mask) -> Mask:
        found: Mask = offerings[self._positions[pool]]
        return found

    def _allowed(self) -> Mask:
        """Return, by ask and row, whether a pod of the ask may be on a node of it.

        Pools of one weight compete by price; pools of different weights don't.
        """
        allowed = np.zeros((len(self.asks), len(self.pool)), dtype=np.bool_)
        known: dict[tuple[int, object], Mask | None] = {}
        for i, ask in enumerate(self.asks):
            for number, space in enumerate(self.spaces):
                if self._weights[number] != self._served_by[i]:
                    continue
                for option in ask.options():
                    key = (number, ask.variants[option])
                    if key not in known:
                        merged = space.admit(space.unlimited, ask.variants[option])
                        known[key] = (
                            None
                            if isinstance(merged, str)
                            else self._mask(number, space.catalogue.offerings_for(merged, space.well_known))
                        )
                    mask = known[key]
                    if mask is None:
                        continue
                    low, high = self._first[number], self._first[number + 1]
                    fits = space.fits(ask.wanted)
                    if ask.ports:
                        fits = fits & space.free_ports(ask.ports)
                    allowed[i, low:high] |= mask & fits[self.type[low:high]]
        return allowed

    def _limits(self) -> tuple[Amounts, Amounts]:
        columns: list[Amounts] = []
        remaining: list[int] = []
        for number, space in enumerate(self.spaces):
            here = self.pool == number
            for column in range(len(space.limited)):
                amounts = np.zeros(len(self.pool), dtype=np.int64)
                amounts[here] = space.capacity[self.type[here], column]
                columns.append(amounts)
                remaining.append(int(space.remaining[column]))
            if space.nodes_remaining is not None:
                columns.append(here.astype(np.int64))
                remaining.append(space.nodes_remaining)
            if space.purse.own is not None:
                columns.append(np.where(here, self._charges, 0))
                remaining.append(space.purse.own)
        if self.spaces and (shared := self.spaces[0].purse.shared) is not None:
            columns.append(self._charges)
            remaining.append(shared)
        usage = np.stack(columns, axis=1) if columns else np.zeros((len(self.pool), 0), dtype=np.int64)
        return usage, np.array(remaining, dtype=np.int64)


def start_patterns(menu: Menu, bins: Sequence[Bin], position: dict[int, int]) -> list[NodePattern] | None:
    """Return `bins` as patterns over the menu's rows; None when one of them cannot be written so."""
    found: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    rows: dict[object, int | None] = {}
    for planned in bins:
        kind = (planned.pool, planned.pattern.requirements, planned.pattern.chosen)
        if kind not in rows:
            rows[kind] = menu.row_of(planned)
        row = rows[kind]
        if row is None:
            return None
        counts = tuple(sorted((position[i], len(keys)) for i, keys in planned.pods.items() if keys))
        found[row, counts] = found.get((row, counts), 0) + 1
    return [NodePattern(offer=row, counts=counts, copies=n) for (row, counts), n in sorted(found.items())]


def _apart(asks: Sequence[Ask], rules: Sequence[Rule], allowed: Mask, counted: Sequence[int]) -> Mask | None:
    """Return which asks can never share a node: by rules over host names, or by their host ports.

    Where a rule lets a few of another ask's pods stay, this is stricter than need be, except for the
    `counted` rules, whose owners are counted on every node instead.
    """
    apart = np.zeros((len(asks), len(asks)), dtype=np.bool_)
    for number in sorted({r for a in asks for r in a.profile.owned}):
        owners = [i for i, a in enumerate(asks) if number in a.profile.owned]
        selected = [i for i, a in enumerate(asks) if number in a.profile.selected]
        away = np.zeros_like(apart)
        away[np.ix_(owners, selected)] = True
        if number in counted:
            both = sorted(set(owners) & set(selected))
            away[np.ix_(both, both)] = False
        apart |= away
    ported = [(i, a.ports) for i, a in enumerate(asks) if a.ports]
    for i, ports in ported:
        for j, others in ported:
            if i != j and conflicting(ports, others):
                apart[i, j] = True
    if not apart.any():
        return None
    apart |= apart.T
    np.fill_diagonal(apart, False)
    # Whoever can never be on the same node anyway needs no rule.
    places = allowed.astype(np.float32)
    apart &= places @ places.T > 0
    return apart if apart.any() else None


def counted_rules(asks: Sequence[Ask], counts: Amounts, allowed: Mask) -> list[int]:
    """Return the rules whose owners are best counted on every node, like a resource, those that matter most.

    That is exact among pods that both have the rule and are selected by it, of several shapes.
    """
    members: dict[int, list[int]] = {}
    for i, ask in enumerate(asks):
        for number in ask.profile.owned:
            if number in ask.profile.selected:
                members.setdefault(number, []).append(i)
    found = []
    for number, group in members.items():
        if (allowed[group].sum(axis=0, dtype=np.int64) > 1).any():
            found.append((-int(counts[group].sum()), number))
    return sorted(number for _, number in sorted(found)[:_MOST_COUNTED])


def tallies(asks: Sequence[Ask], rules: Sequence[Rule], counted: Sequence[int]) -> tuple[Amounts, Amounts]:
    """Return what a pod of each ask [ask, rule] counts, and how much an empty node [rule] can take."""
    wanted = [[int(n in a.profile.owned and n in a.profile.selected) for n in counted] for a in asks]
    most = [1 if rules[n].kind == "anti" else rules[n].max_skew for n in counted]
    shape = (len(asks), len(counted))
    return np.array(wanted, dtype=np.int64).reshape(shape), np.array(most, dtype=np.int64)
