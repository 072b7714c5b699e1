"""Where a class could go: the combinations of domains in which a node for it exists or can be bought."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from karpenter.model.requirements import Requirement, Requirements
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.assign import Cell
from karpenter.scheduling.catalogue import Mask
from karpenter.scheduling.classes import Variant
from karpenter.scheduling.nodes import NodeTable
from karpenter.scheduling.space import PoolSpace
from karpenter.scheduling.topology import UNLIMITED

Values = tuple[str, ...]
_MAX_CELLS = 512


class CellFinder:
    """Finds the cells of classes; what can be bought is remembered until `forget` is called."""

    def __init__(self, spaces: Sequence[PoolSpace], nodes: NodeTable) -> None:
        """Look for cells in `spaces` and on `nodes`."""
        self._spaces = spaces
        self._nodes = nodes
        self._bought: dict[object, dict[Values, tuple[int, float]]] = {}
        self._cells: dict[object, list[Cell]] = {}
        self._narrowed: dict[tuple[tuple[Variant, ...], Values, Values], tuple[Variant, ...]] = {}

    def forget(self) -> None:
        """Look again at what can be bought: limits have changed."""
        self._bought.clear()
        self._cells.clear()

    def cells(
        self, ask: Ask, keys: Values, closed: dict[Values, int], optional: frozenset[str]
    ) -> list[Cell]:
        """Return the cells, by `keys`, that can take at least one pod of `ask`, sorted.

        `closed` has cells that turned out to take only so many pods. Nodes without the `optional` keys are
        cells, too: their value is empty.
        """
        if not closed and not self._nodes.within_reach(ask.variants):
            key = (ask.variants, ask.wanted.tobytes(), ask.ports, keys, optional)
            known = self._cells.get(key)
            if known is None:
                known = self._cells[key] = self._found(ask, keys, closed, optional)
            return known
        return self._found(ask, keys, closed, optional)

    def _found(
        self, ask: Ask, keys: Values, closed: dict[Values, int], optional: frozenset[str]
    ) -> list[Cell]:
        bought = self.buyable(ask, keys, optional)
        free: dict[Values, tuple[int, int]] = {}
        founding = self._nodes.may_found(ask.profile)
        for variant in ask.variants if self._nodes.within_reach(ask.variants) else ():
            counts = self._nodes.room_for(ask, variant, founding=founding)
            for values, count in self._nodes.by_domain(keys, counts, optional).items():
                free.setdefault(values, (variant.tier, count))
        found = []
        for values in sorted(bought.keys() | free.keys()):
            on_nodes, count = free.get(values, (0, 0))
            tier, price = bought.get(values, (on_nodes, 0.0))
            room = closed.get(values, UNLIMITED if values in bought else count)
            if room:
                best = min(on_nodes, tier) if count else tier
                found.append(Cell(values=values, tier=best, price=price, room=room, free=count))
        return found

    def buyable(self, ask: Ask, keys: Values, optional: frozenset[str]) -> dict[Values, tuple[int, float]]:
        """Return the cells where a node can be bought, with the best tier for it and a pod's share."""
        key = (ask.variants, ask.wanted.tobytes(), ask.ports, keys, optional)
        found = self._bought.get(key)
        if found is None:
            found = self._bought[key] = {}
            for variant in ask.variants:
                for space in self._spaces:
                    for values, price in self._in_pool(space, ask, variant, keys, optional):
                        known = found.get(values)
                        if known is None or (variant.tier, price) < known:
                            found[values] = (variant.tier, price)
        return found

    def _in_pool(
        self, space: PoolSpace, ask: Ask, variant: Variant, keys: Values, optional: frozenset[str]
    ) -> list[tuple[Values, float]]:
        merged = space.admit(space.requirements, variant)
        if isinstance(merged, str):
            return []
        usable = openable(space, merged, ask)
        if not usable.any():
            return []
        rows = np.flatnonzero(usable)
        share = space.scarcest_share(ask.wanted)[rows]
        options = [_values(space, merged, key, optional=key in optional) for key in keys]
        found = []
        for values in list(product(*options))[:_MAX_CELLS]:
            there = merged.merge(cell_requirements(keys, values))
            cost = float((space.evaluate(there).price[rows] * share).min())
            if cost < math.inf:
                found.append((values, cost))
        return found

    def narrowed(self, variants: tuple[Variant, ...], keys: Values, values: Values) -> tuple[Variant, ...]:
        """Return those of `variants` that can be met in a cell, each asking for that cell."""
        known = self._narrowed.get((variants, keys, values))
        if known is None:
            there = cell_requirements(keys, values)
            merged = [Variant(v.requirements.merge(there), v.tolerations, v.tier) for v in variants]
            possible = [v for v in merged if not v.requirements.impossible()]
            known = self._narrowed[variants, keys, values] = tuple(possible or merged[-1:])
        return known


def openable(space: PoolSpace, merged: Requirements, ask: Ask) -> Mask:
    """Return the types of which one more node, being `merged`, can be bought for one pod of `ask`.

    It is remembered: not to be changed.
    """
    return space.openable(merged, ask.wanted, ask.ports)


def cell_requirements(keys: Sequence[str], values: Sequence[str]) -> Requirements:
    """Return what a node in a cell is."""
    return Requirements.of(
        *(
            Requirement.of(k, "In", (v,)) if v else Requirement.of(k, "DoesNotExist")
            for k, v in zip(keys, values, strict=True)
        )
    )


def _values(space: PoolSpace, merged: Requirements, key: str, *, optional: bool) -> list[str]:
    """Return the values of `key` that a new node of the pool, being `merged`, may be given; sorted.

    Where nothing gives the node an `optional` label, the empty value says so.
    """
    requirement = merged.get(key)
    listed = requirement.permitted() or space.catalogue.values_of(key)
    if not listed and optional:
        return [""] if requirement.absent else [requirement.any()]
    return sorted(v for v in listed if requirement.has(v))
