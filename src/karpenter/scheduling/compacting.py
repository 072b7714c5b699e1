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

from karpenter.model.requirements import Requirements
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.bins import Bin, BinTable
from karpenter.scheduling.catalogue import Amounts, Mask, Prices
from karpenter.scheduling.claims import launched
from karpenter.scheduling.packing import fitting_in, join
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.space import PoolSpace
from karpenter.scheduling.stock import lot_of
from karpenter.scheduling.topology import Occupancy, Profile
from karpenter.scheduling.waiting import Manners

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
        self._bins = [_copy(b, current.asks) for b in current.bins.bins]
        asks = [current.asks[i] for i in sorted({i for b in self._bins for i in b.pods})]
        wanted = np.array([ask.wanted for ask in asks], dtype=np.int64)
        order = np.argsort(-_sizes(wanted, current.spaces), kind="stable")
        self._asks = [asks[i] for i in order.tolist()]
        """Those with pods on planned nodes, the largest first."""
        self._at = {ask.index: at for at, ask in enumerate(self._asks)}
        self._columns = np.flatnonzero(wanted.any(axis=0))
        self._wanted: Amounts = np.ascontiguousarray(wanted[order][:, self._columns].T)
        """By resource and ask."""
        self._manners = Manners(current.topology.rules)
        numbers = [self._manners.number(_wishing(ask.profile)) for ask in self._asks]
        self._profiles: Amounts = np.array(numbers, dtype=np.int64)
        self._welcomed: dict[bytes, Mask] = {}
        self._fitting: dict[tuple[int, ...], int] = {}
        """By what a node leaves: how many of the smallest shapes of pods fit into it."""
        self._mobile: Mask = np.array([self._may_leave(ask) for ask in self._asks], dtype=np.bool_)

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

    def _may_leave(self, ask: Ask) -> bool:
        """Tell whether its pods neither follow others, by need or wish, nor are followed by them."""
        profile, rules = ask.profile, self._pass.topology.rules
        followed = any(rules[number].kind == "affinity" for number in profile.selected)
        return not (ask.mixed or profile.near or profile.fond or followed)

    def _in_order(self) -> list[Bin]:
        """Return the nodes: those for urgent pods, then with many demands, then with room for few others.

        Nodes for different places (zones) alternate, so that each has its share of what came by any time:
        kube-scheduler spreads pods over the places that it knows of as evenly as over all.
        """
        groups: dict[tuple[int, int, Requirements], list[int]] = {}
        for (urgency, demands, *_), at in sorted((self._rank(b), at) for at, b in enumerate(self._bins)):
            groups.setdefault((urgency, demands, self._bins[at].pattern.requirements), []).append(at)
        ranked: list[tuple[int, int, float, int, int]] = []
        for (urgency, demands, _), members in groups.items():
            prices = [self._bins[at].pattern.price for at in members]
            whole, before = sum(prices) or 1.0, 0.0
            for at, price in zip(members, prices, strict=True):
                ranked.append((urgency, demands, (before + price / 2) / whole, len(ranked), at))
                before += price
        return [self._bins[at] for *_, at in sorted(ranked)]

    def _rank(self, planned: Bin) -> tuple[int, int, int, float, str]:
        """Return what orders nodes, but for the places they are in."""
        left = tuple(self._left(planned)[self._columns].tolist())
        fitting = self._fitting.get(left)
        if fitting is None:
            fits = fitting_in(self._wanted[:, -_COMPARED:], left)
            fitting = self._fitting[left] = int(np.count_nonzero(fits))
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
                self._holders[self._at[i]].pop(0)  # all before it had their turn
        if not planned.pods:
            return
        if id(planned) in shrunk:
            self._resize(planned)
        left = self._left(planned)
        fitting = fitting_in(self._wanted, left[self._columns].tolist())
        fitting &= self._mobile & (self._later > 0) & self._welcome(planned)
        room: list[int] = left.tolist()
        for at in np.flatnonzero(fitting).tolist():
            moved = self._move(planned, at, room, shrunk)
            for column, amount in self._asks[at].needs if moved else ():
                room[column] -= moved * amount

    def _welcome(self, planned: Bin) -> Mask:
        """Return, by ask, whether the pods on a node let one more of it in, wishes included."""
        state = self._manners.state(planned.pattern.held)
        known = self._welcomed.get(state)
        if known is None:
            known = self._welcomed[state] = ~self._manners.barred(state)[self._profiles]
        return known

    def _move(self, planned: Bin, at: int, room: Sequence[int], shrunk: set[int]) -> int:
        """Put as many pods of an ask on the node as there is room for and may join; return how many."""
        ask = self._asks[at]
        count = min([int(self._later[at]), *[room[column] // amount for column, amount in ask.needs]])
        count = self._join(planned, ask, count) if count > 0 else 0
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
            count = min(count, self._pass.topology.allowance(_wishing(profile), pattern.held))
        if self._pass.problem.options.concentration_penalty > 0:  # nothing is added up to half of them
            count = min(count, len(ask.pods) // 2 - pattern.counts.get(ask.index, 0))
        present, joined = ask.variant, 0
        for option in ask.options() if count > 0 else ():
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


def _wishing(profile: Profile) -> Profile:
    """Return `profile` with whom it would rather not be with among those it must not be with."""
    if not profile.soft:
        return profile
    return msgspec.structs.replace(profile, owned=(*profile.owned, *profile.soft))


def _copy(planned: Bin, asks: Sequence[Ask]) -> Bin:
    """Return a node that changes independently, and knows of all its pods whom they keep away."""
    counts = {i: len(keys) for i, keys in planned.pods.items()}
    held = Occupancy.empty()
    for i, count in counts.items():
        held.add(asks[i].profile, count)
    own = msgspec.structs.replace(planned.pattern, counts=counts, held=held)
    return msgspec.structs.replace(planned, pattern=own, pods={i: list(k) for i, k in planned.pods.items()})


def _sizes(wanted: Amounts, spaces: Sequence[PoolSpace]) -> Prices:
    """Return the largest share that a pod takes of what the types have on average, by ask."""
    mean = np.concatenate([space.room for space in spaces]).mean(axis=0)
    found: Prices = (wanted / np.maximum(mean, 1.0)).max(axis=1)
    return found
