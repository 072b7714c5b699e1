"""Planned nodes put in such an order, and so filled, that kube-scheduler binds pods where they are planned.

Nodes arrive one after the other. What is nominated to a node that is there, kube-scheduler counts as if it
were on it; so a pod whose own node is still to come can only be bound earlier where it fits into what the
pods of that node leave. In a plan in which no pod of a later node fits into what an earlier one leaves (as in
a first-fit packing), every pod is bound where it is planned, if nodes come in the order of the plan.

Nodes that leave little come first. Each in turn is filled with pods of later ones, where all that they demand
allows it and the node gets no dearer; that makes the last nodes smaller, and so at times cheaper.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from karpenter.scheduling.asks import Ask
from karpenter.scheduling.bins import Bin, BinTable
from karpenter.scheduling.catalogue import Amounts, Mask, Prices
from karpenter.scheduling.claims import launched
from karpenter.scheduling.packing import join
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.space import PoolSpace
from karpenter.scheduling.stock import lot_of

_COMPARED = 256
"""With how many shapes of pods, the smallest, it is found out which nodes leave little."""


def compact(current: Pass) -> None:
    """Reorder the planned nodes of `current`, and fill the earlier ones with pods of the later ones."""
    if len(current.bins) > 1:
        _Compaction(current).run()


class _Compaction:
    """The planned nodes while pods move between them."""

    def __init__(self, current: Pass) -> None:
        """Copy the nodes, so that nothing changes but what `run` does."""
        self._pass = current
        self._bins = [_copy(b) for b in current.bins.bins]
        asks = [current.asks[i] for i in sorted({i for b in self._bins for i in b.pods})]
        wanted = np.array([ask.wanted for ask in asks], dtype=np.int64)
        order = np.argsort(-_sizes(wanted, current.spaces), kind="stable")
        self._asks = [asks[i] for i in order.tolist()]
        """Those with pods on planned nodes, the largest first."""
        self._at = {ask.index: at for at, ask in enumerate(self._asks)}
        self._columns = np.flatnonzero(wanted.any(axis=0))
        self._wanted = np.asfortranarray(wanted[order][:, self._columns])
        self._mobile: Mask = np.array([_mobile(ask) for ask in self._asks], dtype=np.bool_)

    def run(self) -> None:
        """Order the nodes and fill them in turn; those without pods in the end are not bought."""
        for planned in self._bins:
            self._resize(planned)
        self._bins = self._in_order()
        self._later = np.zeros(len(self._asks), dtype=np.int64)
        """By ask: how many pods could be had from the nodes still to come."""
        self._holders: list[list[Bin]] = [[] for _ in self._asks]
        for planned in self._bins:
            if self._gives(planned):
                for i, keys in planned.pods.items():
                    self._later[self._at[i]] += len(keys)
                    self._holders[self._at[i]].append(planned)
        shrunk = set[int]()
        for planned in self._bins:
            self._fill(planned, shrunk)
        table = BinTable(self._pass.spaces, self._pass.topology, len(self._pass.axis.names))
        for planned in self._bins:
            if planned.pods:
                table.add(planned, [planned.pods])
            else:
                self._pass.spaces[planned.pool].take(planned.charged, -1)
        self._pass.buyer.bins = table

    def _in_order(self) -> list[Bin]:
        """Return the nodes: those for urgent pods, then with many demands, then with room for few others.

        Nodes for different places (zones) alternate, so that each has its share of what came by any time:
        kube-scheduler spreads pods over the places that it knows of as evenly as over all.
        """
        alike: dict[tuple[object, ...], list[Bin]] = {}
        ranks = sorted((self._rank(planned), at) for at, planned in enumerate(self._bins))
        for (urgency, demands, *_), at in ranks:
            planned = self._bins[at]
            alike.setdefault((urgency, demands, planned.pattern.requirements), []).append(planned)
        ranked: list[tuple[object, ...]] = []
        for (urgency, demands, _), bins in alike.items():
            whole, before = sum(b.pattern.price for b in bins), 0.0
            for planned in bins:
                share = (before + planned.pattern.price / 2) / whole if whole else 0.0
                ranked.append((urgency, demands, share, len(ranked), planned))
                before += planned.pattern.price
        ranked.sort(key=lambda entry: entry[:4])
        return [entry[4] for entry in ranked]

    def _rank(self, planned: Bin) -> tuple[int, int, int, float, str]:
        """Return what orders nodes, but for the places they are in."""
        left = self._left(planned)[self._columns]
        smallest = self._wanted[-_COMPARED:]
        fitting = int((smallest <= left).all(axis=1).sum())
        pattern = planned.pattern
        urgency = max(self._pass.asks[i].priority for i in planned.pods)
        first = min(keys[0] for keys in planned.pods.values())
        return -urgency, -len(pattern.requirements), fitting, -pattern.price, first

    def _gives(self, planned: Bin) -> bool:
        """Tell whether pods of the node may go elsewhere, and leave it smaller."""
        requirements = planned.pattern.requirements
        offer = self._pass.spaces[planned.pool].offer
        return not (
            planned.relaxed or requirements.has_min_values or lot_of(requirements) or offer.capacity_type_mix
        )

    def _left(self, planned: Bin) -> Amounts:
        left: Amounts = self._pass.spaces[planned.pool].room[planned.pattern.chosen] - planned.pattern.used
        return left

    def _resize(self, planned: Bin) -> None:
        """Let the node be of the type that its claim will be launched as."""
        space, pattern = self._pass.spaces[planned.pool], planned.pattern
        pattern.chosen = launched(space, planned)
        pattern.price = float(space.evaluate(pattern.requirements).price[pattern.chosen])

    def _fill(self, planned: Bin, shrunk: set[int]) -> None:
        """Fill one node with pods of those after it, the largest that fit first."""
        if self._gives(planned):
            for i, keys in planned.pods.items():
                self._later[self._at[i]] -= len(keys)
                self._holders[self._at[i]].remove(planned)
        if not planned.pods:
            return
        if id(planned) in shrunk:
            self._resize(planned)
        open_to: Mask = self._mobile & (self._later > 0)
        while True:
            left = self._left(planned)
            fitting = open_to & (self._wanted <= left[self._columns]).all(axis=1)
            at = int(fitting.argmax())
            if not fitting[at]:
                return
            moved = self._move(planned, at, left, shrunk)
            open_to[at] = False if not moved else self._later[at] > 0

    def _move(self, planned: Bin, at: int, left: Amounts, shrunk: set[int]) -> int:
        """Put as many pods of an ask on the node as fit there and may; return how many."""
        ask = self._asks[at]
        count = min([int(self._later[at]), *(int(left[column]) // amount for column, amount in ask.needs)])
        count = self._join(planned, ask, count)
        own, wanting = planned.pods.setdefault(ask.index, []) if count else [], count
        while wanting:
            giver = self._holders[at][-1]
            keys = giver.pods[ask.index]
            taken = min(wanting, len(keys))
            own.extend(keys[-taken:])
            del keys[-taken:]
            if not keys:
                del giver.pods[ask.index]
                self._holders[at].pop()
            self._leave(giver, ask, taken)
            shrunk.add(id(giver))
            wanting -= taken
        self._later[at] -= count
        return count

    def _join(self, planned: Bin, ask: Ask, count: int) -> int:
        """Count at most `count` pods of an ask to what the node holds; return how many."""
        space, pattern, profile = self._pass.spaces[planned.pool], planned.pattern, ask.profile
        if not profile.alone:
            wishing = msgspec.structs.replace(profile, owned=(*profile.owned, *profile.soft))
            count = min(count, self._pass.topology.allowance(wishing, pattern.held))
        present, joined = ask.variant, 0
        for option in ask.options() if count else ():
            ask.variant = option
            joined = joined or join(space, pattern, ask, count, planned.allowed)
        ask.variant = present
        if joined:
            pattern.held.add(profile, joined)
            pattern.counts[ask.index] = pattern.counts.get(ask.index, 0) + joined
        return joined

    def _leave(self, giver: Bin, ask: Ask, count: int) -> None:
        """Take pods of an ask from what the node holds."""
        pattern = giver.pattern
        pattern.used = pattern.used - ask.wanted * count
        pattern.held.add(ask.profile, -count)
        pattern.counts[ask.index] -= count
        if not pattern.counts[ask.index]:
            del pattern.counts[ask.index]
        if ask.ports:
            pattern.ports = frozenset(port for i in giver.pods for port in self._pass.asks[i].ports)


def _copy(planned: Bin) -> Bin:
    pattern = planned.pattern
    own = msgspec.structs.replace(pattern, counts=dict(pattern.counts), held=pattern.held.copy())
    return msgspec.structs.replace(planned, pattern=own, pods={i: list(k) for i, k in planned.pods.items()})


def _mobile(ask: Ask) -> bool:
    """Tell whether pods may be moved without asking whom they leave or join."""
    return not (ask.mixed or ask.profile.near or ask.profile.fond)


def _sizes(wanted: Amounts, spaces: Sequence[PoolSpace]) -> Prices:
    """Return the largest share that a pod takes of what the types have on average, by ask."""
    mean = np.concatenate([space.room for space in spaces]).mean(axis=0)
    found: Prices = (wanted / np.maximum(mean, 1.0)).max(axis=1)
    return found
