"""What any plan for the same pods must cost, whatever it does about the rules that only restrict.

The relaxed problem knows requests, selectors, taints, what can be bought, limits and stock. It lets pods be
of any variant, buys from pools of any weight, takes all nodes there are as one, and forgets who may be
together, except that pods which keep away from each other are counted on every node.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from karpenter.model.problem import LimitPrice
from karpenter.scheduling.catalogue import Amounts, Mask, Prices
from karpenter.scheduling.classes import PodClass
from karpenter.scheduling.nodes import NodeTable
from karpenter.scheduling.purse import PRICE
from karpenter.scheduling.search import PackingProblem, Proof, prove, worths
from karpenter.scheduling.space import Axis, PoolSpace
from karpenter.scheduling.stock import NO_LOT
from karpenter.scheduling.topology import Rule

_COUNTED = 4
_MOST_VARIANTS = 256
"""Classes with so many variants may have more that were left out."""
_ENOUGH = 2**40
_UNITS = {"cpu": ("1", 1000), "memory": ("1Gi", 2**30), "ephemeral-storage": ("1Gi", 2**30)}
_EVERYTHING = "cluster"


class Relaxation:
    """The relaxed problem of classes of pods, of which `counts` are to be placed."""

    def __init__(
        self,
        spaces: Sequence[PoolSpace],
        nodes: NodeTable,
        free: Amounts,
        axis: Axis,
        rules: Sequence[Rule],
        classes: Sequence[PodClass],
        counts: Sequence[int],
        spoken_for: Mapping[str, int],
    ) -> None:
        """Lay it out; `free` is what all `nodes` together had before anything was placed.

        `spoken_for` are machines, by type, whose share of what there is only so much of is free as well.
        """
        self._spoken_for = spoken_for
        self._spaces, self._nodes, self._axis, self._rules = spaces, nodes, axis, rules
        kept = [i for i, c in enumerate(classes) if counts[i] and c.refusal is None]
        self._number, self._kept = len(classes), kept
        self._classes = [classes[i] for i in kept]
        self._counts = np.array([counts[i] for i in kept], dtype=np.int64)
        self._free = np.maximum(free, 0)
        self._rows = [_on_sale(space) for space in spaces]
        self._pool = np.concatenate(
            [np.full(len(rows), number) for number, rows in enumerate(self._rows)] or [np.zeros(0)]
        ).astype(np.int64)
        self._usage: list[Amounts] = []
        self._remaining: list[int] = []
        self._limits: list[tuple[str, str]] = []

    def prove(self, more: Callable[[], bool]) -> tuple[float, tuple[LimitPrice, ...]]:
        """Return USD per hour that no plan can beat, and what the limits cost by the same prices."""
        if not self._classes or not len(self._pool):
            return 0.0, ()
        proof = prove(self.problem(), more)
        return max(proof.usd, 0.0), self._limit_prices(proof)

    def worths(self, more: Callable[[], bool]) -> Prices:
        """Return, by class, what a pod costs at least by the prices that prove the bound, USD per hour.

        Nothing for classes that no machine on sale can take.
        """
        found = np.zeros(self._number)
        if self._classes and len(self._pool):
            found[self._kept] = worths(self.problem(), more)
        return found

    def problem(self) -> PackingProblem:
        """Return it as arrays: limits first among the limits, then lots, then the nodes there are."""
        types, usd, lots = [], [], []
        for space, rows in zip(self._spaces, self._rows, strict=True):
            of_type, _, paid = space.catalogue.open_offerings(0.0)
            types.append(of_type[rows])
            usd.append(paid[rows])
            known = space.catalogue.offering_lots() if space.catalogue.lots else []
            lots += [known[row] for row in rows.tolist()] if known else [NO_LOT] * len(rows)
        self._add_limits(types, usd)
        names = [
            s.catalogue.types[t].name
            for s, of_type in zip(self._spaces, types, strict=True)
            for t in of_type.tolist()
        ]
        self._add_lots(lots, names)
        room = np.concatenate([s.room[t] for s, t in zip(self._spaces, types, strict=True)])
        tally, most, together = self._tallies()
        room = np.concatenate([room, np.tile(most, (len(room), 1))], axis=1)
        price, allowed = np.concatenate(usd), self._allowed()
        if self._nodes.nodes:
            room = np.concatenate([room, [np.concatenate([self._free, together])]])
            price = np.append(price, 0.0)
            there = [[any(map(self._nodes.admits, c.variants)) for c in self._classes]]
            allowed = np.concatenate([allowed, np.array(there).T], axis=1)
            self._usage = [np.append(column, 0) for column in self._usage]
            self._usage.append(np.append(np.zeros(len(price) - 1, dtype=np.int64), 1))
            self._remaining.append(1)
        wanted = np.array([self._axis.vector(c.requests) for c in self._classes])
        return PackingProblem(
            wanted=np.concatenate([wanted, tally], axis=1),
            count=self._counts,
            most=np.full(len(wanted), _ENOUGH),
            room=room,
            price=price,
            allowed=allowed,
            usage=np.stack(self._usage, axis=1) if self._usage else np.zeros((len(price), 0), dtype=np.int64),
            remaining=np.array(self._remaining, dtype=np.int64),
            fee=0.0,
        )

    def _allowed(self) -> Mask:
        """Return, by class and row, whether one of the class's variants admits a node of it."""
        known: dict[object, Mask] = {}
        allowed = np.zeros((len(self._classes), len(self._pool)), dtype=np.bool_)
        for i, pod_class in enumerate(self._classes):
            mask = known.get(pod_class.variants)
            if mask is None:
                mask = known[pod_class.variants] = self._admitting(pod_class)
            allowed[i] = mask
        return allowed

    def _admitting(self, pod_class: PodClass) -> Mask:
        if len(pod_class.variants) >= _MOST_VARIANTS:
            return np.ones(len(self._pool), dtype=np.bool_)
        found = []
        for space, rows in zip(self._spaces, self._rows, strict=True):
            here = np.zeros(len(rows), dtype=np.bool_)
            for variant in pod_class.variants:
                merged = space.admit(space.requirements, variant)
                if not isinstance(merged, str):
                    here |= space.catalogue.offerings_for(merged, space.well_known)[rows]
            found.append(here)
        return np.concatenate(found)

    def _tallies(self) -> tuple[Amounts, Amounts, Amounts]:
        """Return [class, rule] what pods count, [rule] what a new node, and all nodes there are, can take."""
        pods: dict[int, int] = {}
        for pod_class, count in zip(self._classes, self._counts.tolist(), strict=True):
            for number in pod_class.profile.owned:
                if number in pod_class.profile.selected:
                    pods[number] = pods.get(number, 0) + count
        most = {n: 1 if self._rules[n].kind == "anti" else self._rules[n].max_skew for n in pods}
        order = sorted(pods, key=lambda n: (-pods[n] / most[n], n))[:_COUNTED]
        wanted = [
            [int(n in c.profile.owned and n in c.profile.selected) for n in order] for c in self._classes
        ]
        # A spread over nodes that are there goes by the emptiest of them: nobody knows how many they take.
        number = len(self._nodes.nodes)
        together = [number if self._rules[n].kind == "anti" else _ENOUGH for n in order]
        return (
            np.array(wanted, dtype=np.int64).reshape(len(self._classes), len(order)),
            np.array([most[n] for n in order], dtype=np.int64),
            np.array(together, dtype=np.int64),
        )

    def _add_limits(self, types: Sequence[Amounts], usd: Sequence[Prices]) -> None:
        """Add a row for each limit, as they were before anything was planned."""
        prices = np.concatenate(usd)
        for number, (space, of_type) in enumerate(zip(self._spaces, types, strict=True)):
            here = self._pool == number
            for name, left in sorted(space.offer.remaining.items()):
                amounts = np.zeros(len(here), dtype=np.int64)
                if name == "nodes":
                    amounts[here] = 1
                elif name == PRICE:
                    amounts[here] = space.purse.charges(usd[number])
                else:
                    amounts[here] = space.capacity[of_type, space.limited.index(name)]
                self._add((space.place, name), amounts, left)
        shared = self._spaces[0].ledger.price_offered
        if shared is not None:
            self._add((_EVERYTHING, PRICE), self._spaces[0].purse.charges(prices), shared)

    def _add_lots(self, lots: Sequence[str], names: Sequence[str]) -> None:
        """Add a row for each lot: no more nodes than it is good for."""
        members: dict[str, list[int]] = {}
        for row, lot in enumerate(lots):
            if lot != NO_LOT:
                members.setdefault(lot, []).append(row)
        for lot, rows in sorted(members.items()):
            amounts = np.zeros(len(lots), dtype=np.int64)
            amounts[rows] = 1
            used = sum(self._spoken_for.get(name, 0) for name in {names[row] for row in rows})
            self._add(None, amounts, self._spaces[0].ledger.offered.get(lot, 0) + used)

    def _add(self, limit: tuple[str, str] | None, amounts: Amounts, left: int) -> None:
        self._usage.append(amounts)
        self._remaining.append(max(left, 0))
        if limit is not None:
            self._limits.append(limit)

    def _limit_prices(self, proof: Proof) -> tuple[LimitPrice, ...]:
        """Return what binding limits cost; limits come first among the rows."""
        found = []
        for (place, resource), toll in zip(self._limits, proof.tolls.tolist(), strict=False):
            amount, units = ("1", 1_000_000) if resource == PRICE else _UNITS.get(resource, ("1", 1))
            if toll * units > 1e-6:
                found.append(LimitPrice(place=place, resource=resource, amount=amount, usd=toll * units))
        return tuple(found)


def _on_sale(space: PoolSpace) -> Amounts:
    """Return the rows of the pool's available offerings that it can buy."""
    of_type, _, _ = space.catalogue.open_offerings(0.0)
    offered = space.catalogue.offerings_for(space.requirements, space.well_known)
    found: Amounts = np.flatnonzero(offered & space.usable[of_type])
    return found
