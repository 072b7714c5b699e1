"""One pass over all classes: everything that changes while a plan is made lives here."""

from collections.abc import Sequence

import msgspec
import numpy as np

from karpenter.base.quantity import Resources
from karpenter.model.problem import LimitPrice, Plan, Problem
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.scheduling import assign
from karpenter.scheduling.alternating import alternating
from karpenter.scheduling.asks import Ask, Needs, Origin, Outline, needs_of
from karpenter.scheduling.bins import BinTable
from karpenter.scheduling.bound import lower_bound
from karpenter.scheduling.buying import Buyer
from karpenter.scheduling.catalogue import Amounts, Catalogue, compiled
from karpenter.scheduling.cells import CellFinder
from karpenter.scheduling.claims import planned_claims
from karpenter.scheduling.classes import PodClass, Variant
from karpenter.scheduling.dealing import Dealer, Dealing
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.nodes import NodeTable
from karpenter.scheduling.order import levels, urgencies
from karpenter.scheduling.refusals import refuse
from karpenter.scheduling.relaxation import Relaxation
from karpenter.scheduling.space import (
    Axis,
    PoolSpace,
    daemons_of,
)
from karpenter.scheduling.stock import Ledger
from karpenter.scheduling.topology import Occupancy, Profile, Topology
from karpenter.scheduling.waiting import Waiting
from karpenter.scheduling.whatif import WhatIf

Values = tuple[str, ...]
_FEW_BINS = 64
"""Up to so many planned nodes, one by one is asked whether a larger one would take who is left."""
_NO_POOL = Refusal(
    place="",
    constraint="nodepool",
    message="no nodepools found",
    remedy="create a NodePool, or see why the existing ones are not ready",
)
_LONELY = Refusal(
    place="",
    constraint="podAffinity",
    message="no node that holds the pods it must be with has room, and none can be made larger",
    remedy="allow larger instance types, or run the pods it selects where there is room",
)


class Pass:
    """One attempt at placing all pods."""

    def __init__(
        self,
        problem: Problem,
        topology: Topology,
        classes: Sequence[PodClass],
        drives: Drives,
        closed: dict[tuple[int, Values], int],
        *,
        by_priority: bool = False,
        what_if: WhatIf | None = None,
    ) -> None:
        """Prepare; `closed` has domains, by class, that take only so many of its pods.

        `by_priority`: who is more urgent is placed before all others.
        """
        self.problem = problem
        self.topology = topology
        self.ledger = topology.domains.copy()
        self.classes = classes
        self.by_priority = by_priority
        self.what_if = what_if or WhatIf()
        daemons = daemons_of(problem.snapshot.daemons)
        label = problem.options.reservation_label
        catalogues = list(dict.fromkeys(compiled(o.instance_types, label) for o in problem.pools))
        self.axis = Axis(_resource_names(problem, classes, [d.requests for d in daemons], catalogues))
        stock = Ledger(problem, [catalogue.scarce for catalogue in catalogues])
        self.spaces = [
            PoolSpace(o, self.axis, daemons, problem.options, stock, drives) for o in problem.pools
        ]
        self.nodes = NodeTable(problem, self.axis, daemons, classes, topology, drives, self.what_if.nodes)
        self.free_before = self.nodes.total_free()
        self.finder = CellFinder(self.spaces, self.nodes)
        self.dealer = Dealer(classes, self.ledger, self.finder, self._whole, closed, self.what_if.cells)
        self.asks: list[Ask] = []
        bins = BinTable(self.spaces, topology, len(self.axis.names))
        self.buyer = Buyer(self.spaces, topology, problem.options, self.asks, bins)
        self._merged: dict[object, Ask] = {}
        self._outlines: dict[int, Outline] = {}
        self._wanted: dict[tuple[tuple[str, int], ...], tuple[Amounts, Needs]] = {}
        self._alone: dict[Profile, tuple[Profile, int]] = {}
        """By profile: the part that concerns single nodes, and how many such pods an empty node takes."""
        self._on_nodes_already: dict[tuple[int, Values], int] = {}
        self.dealt: dict[tuple[int, Values], int] = {}
        """How many pods of a class were sent to which domains."""
        self.on_nodes: dict[str, list[str]] = {}
        self.refused: dict[str, tuple[Refusal, ...]] = {}

    @property
    def bins(self) -> BinTable:
        """The nodes planned so far."""
        return self.buyer.bins

    def run(self) -> None:
        """Place every class."""
        depth = levels(self.classes)
        order = sorted(
            range(len(self.classes)),
            key=lambda i: (
                depth[i],
                self.what_if.turn(i),
                not self.classes[i].profile.wide.firm,
                bool(self.classes[i].profile.near or self.classes[i].profile.fond),  # they follow others
                i,
            ),
        )
        urgent = urgencies(self.classes)
        priorities = sorted(set(urgent), reverse=True) if self.by_priority else [None]
        for priority in priorities:
            first = len(self.asks)
            numbers = [i for i in order if priority is None or urgent[i] == priority]
            dealings = self._deal_all(numbers)
            # Whoever no node can be bought for has the first choice of those that are there.
            for i in sorted(numbers, key=lambda i: (depth[i], self.what_if.turn(i), self._buyable(i))):
                self._place_class(i, depth[i], dealings.get(i))
            self.open_all(self.asks[first:])
            self.finder.forget()
        self._squeeze()

    def unplaced(self) -> set[str]:
        """Return the pods that found no place."""
        return set(self.refused)

    def full_cells(self) -> dict[tuple[int, Values], int]:
        """Return the domains, by class, that could not take what was dealt to them, and what they took."""
        full: dict[tuple[int, Values], int] = {}
        for ask in self.asks:
            if ask.remaining:
                for origin, placed in ask.left_by_origin():
                    key = (origin.pod_class, origin.cell)
                    if origin.cell and key not in full:
                        full[key] = placed + self._on_nodes_already.get(key, 0)
        return full

    # --- where classes go ---------------------------------------------------------------------------------

    def _deal_all(self, numbers: Sequence[int]) -> dict[int, Dealing]:
        """Deal all classes whose domains matter to a hard constraint."""
        return self.dealer.deal_all(
            {
                i: self._whole(i)
                for i in numbers
                if self.classes[i].refusal is None and self.classes[i].profile.wide.firm
            }
        )

    def _place_class(self, number: int, level: int, dealing: Dealing | None) -> None:
        """Put a class on existing nodes, domain by domain if it was dealt, and ask for what remains."""
        pod_class = self.classes[number]
        if pod_class.refusal is not None:
            self.refused.update(dict.fromkeys(pod_class.pods, (pod_class.refusal,)))
            return
        if dealing is None:
            whole = self._whole(number)
            # Preferences about domains don't make anybody wait for a new node, but choose among those there.
            if pod_class.profile.wide.keys and self.nodes.within_reach(whole.variants):
                self._place_dealt(number, level, self.dealer.deal(number, whole, on_nodes=True))
            self._settle(whole)
            if not whole.remaining:
                return
            if pod_class.profile.wide.keys:
                dealing = self.dealer.deal(number, whole)
            if dealing is None or not dealing.cells:
                self._merge(whole, level)
                return
        self._place_dealt(number, level, dealing)
        if dealing.left:
            self._refuse_dealt(dealing, dealing.whole.take(dealing.left))

    def _place_dealt(self, number: int, level: int, dealing: Dealing) -> None:
        """Put the pods of each domain on nodes there, and ask for what remains."""
        pod_class = self.classes[number]
        for cell, count in zip(dealing.cells, dealing.counts, strict=True):
            if count:
                key = (number, cell.values)
                self.dealt[key] = self.dealt.get(key, 0) + count
                variants = self.finder.narrowed(pod_class.variants, pod_class.profile.wide.keys, cell.values)
                part = self._ask(number, variants, dealing.whole.take(count), cell.values)
                self._settle(part)
                if part.placed:
                    self._on_nodes_already[key] = self._on_nodes_already.get(key, 0) + part.placed
                self._merge(part, level)

    def _buyable(self, number: int) -> bool:
        """Tell whether some pool could buy a node for a pod of the class."""
        pod_class = self.classes[number]
        if pod_class.refusal is not None or not self.nodes.within_reach(pod_class.variants):
            return True
        whole = self._whole(number)
        for variant in range(len(whole.variants)):
            whole.variant = variant
            self.buyer.find_home(whole)
            if whole.home is not None:
                return True
        return False

    def _whole(self, number: int) -> Ask:
        """Return the ask for all pods of a class, wherever they go."""
        pod_class = self.classes[number]
        return self._ask(number, pod_class.variants, pod_class.pods, ())

    def _ask(self, number: int, variants: tuple[Variant, ...], pods: Sequence[str], cell: Values) -> Ask:
        outline = self._outlines.get(number)
        if outline is None:
            outline = self._outlines[number] = self._outline(self.classes[number])
        return outline.ask(variants, pods, Origin(number, cell, len(pods)))

    def _outline(self, pod_class: PodClass) -> Outline:
        known = self._alone.get(pod_class.profile)
        if known is None:
            profile = pod_class.profile.on_nodes
            known = self._alone[pod_class.profile] = (
                profile,
                self.topology.allowance(profile, Occupancy.empty()),
            )
        wanted, needs = self._wants(tuple(pod_class.requests.items()))
        return Outline(pod_class, wanted, needs, known[0], 1 if pod_class.ports else known[1])

    def _wants(self, requests: tuple[tuple[str, int], ...]) -> tuple[Amounts, Needs]:
        """Return what a pod wants, by column; few classes differ in that."""
        found = self._wanted.get(requests)
        if found is None:
            wanted = self.axis.vector(dict(requests))
            found = self._wanted[requests] = wanted, needs_of(wanted)
        return found

    def _refuse_dealt(self, dealing: Dealing, keys: Sequence[str]) -> None:
        """Say why no domain takes the rest of a class."""
        refusals: tuple[Refusal, ...] = ()
        if not dealing.cells and not any(self.buyer.can_open(dealing.whole, s) for s in self.spaces):
            refusals = self._refusals(dealing.whole)
        if not refusals:
            wide = self.classes[dealing.whole.origins[0].pod_class].profile.wide
            refusals = (assign.refusal(wide, dealing.cells, self.ledger),)
        self.refused.update(dict.fromkeys(keys, refusals))

    def _settle(self, ask: Ask) -> None:
        """Place the ask on existing nodes, and find where a node can be bought for the rest.

        As few preferences as possible are given up; among variants without a difference in that, existing
        nodes come first, then the heaviest pool, then the cheapest.
        """
        while True:
            options = [i for i in ask.options() if i not in ask.tried]
            for option in options:
                ask.variant = option
                self._place_on_nodes(ask)
                if not ask.remaining:
                    return
            homes = []
            for option in options:
                ask.variant = option
                self.buyer.find_home(ask)
                if ask.home is not None:
                    homes.append((-self.spaces[ask.home].weight, ask.worth, ask.home, ask.variant))
            if homes:
                best = min(homes)[3]
                if best != ask.variant:
                    ask.variant = best
                    self.buyer.find_home(ask)
                return
            last = max(ask.options())
            if last + 1 >= len(ask.variants):
                ask.variant, ask.home = options[0] if options else last, None
                return
            ask.mixed = ask.mixed or ask.placed > 0
            ask.variant = last + 1
            ask.tried = set()

    def _place_on_nodes(self, ask: Ask) -> None:
        if not self.nodes.within_reach(ask.variants):
            return
        for wishes in ask.profile.wishes:
            counts = self.nodes.room_for(ask, ask.demands, wishes=wishes)
            rows = np.flatnonzero(counts)
            if ask.profile.gregarious and not wishes:
                rows = rows[np.argsort(-counts[rows], kind="stable")]  # together on as few as possible
            for row in rows.tolist():
                take = min(int(counts[row]), ask.remaining)
                if not take:
                    return
                self._take(row, ask, take)
        if ask.remaining and self._may_found(ask):
            counts = self.nodes.room_for(ask, ask.demands, founding=True)
            row = int(counts.argmax())
            # Whoever comes first binds the others to its node: a new one is better if it holds more of them.
            if counts[row] >= ask.remaining or counts[row] > self.buyer.most_together(ask):
                self._take(row, ask, min(int(counts[row]), ask.remaining))

    def _take(self, row: int, ask: Ask, count: int) -> None:
        self.nodes.place(row, ask, count)
        self.on_nodes.setdefault(self.nodes.nodes[row].name, []).extend(ask.take(count))

    def _may_found(self, ask: Ask) -> bool:
        """Tell whether the ask must be near itself only, and none of the pods it wants is anywhere yet."""
        near = ask.profile.near
        return (
            bool(near)
            and all(rule in ask.profile.selected for rule in near)
            and not any(self.nodes.holds(rule) or self.bins.holds(rule) for rule in near)
            and all(
                i == ask.origins[0].pod_class or set(near).isdisjoint(c.profile.near)
                for i, c in enumerate(self.classes)
            )
        )

    def _merge(self, part: Ask, level: int) -> None:
        """Add what remains of `part` to the ask of everything that is like it from here on."""
        if not part.remaining:
            return
        key = (
            level,
            part.variants[part.options()[0] :],
            part.wanted.tobytes(),
            part.ports,
            part.profile,
            part.priority,
        )
        origin = msgspec.structs.replace(part.origins[0], count=part.remaining)
        pods = part.pods[part.placed :]
        ask = self._merged.get(key)
        if ask is None:
            part.index = len(self.asks)
            part.pods, part.origins, part.level = pods, [origin], level
            self._merged[key] = part
            self.asks.append(part)
        else:
            ask.pods.extend(pods)
            ask.origins.append(origin)
            ask.remaining += len(pods)

    # --- new nodes ----------------------------------------------------------------------------------------

    def open_all(self, group: list[Ask]) -> None:
        """Open nodes for those with least choice first; who is free to go anywhere fills them up."""
        if not group:
            return
        waiting = Waiting(group, self.topology.rules)
        for ask in sorted(group, key=lambda a: (a.level, self._turn(a), bool(a.profile.fond), a.choices)):
            while ask.remaining:
                self._place_on_bins(ask)
                if not ask.remaining or self._open_for(ask, waiting):
                    continue
                if not self._relax(ask):
                    break
                waiting.update(ask)
            waiting.update(ask)

    def _turn(self, ask: Ask) -> int:
        """Return when it is the ask's turn: first who founds a group, last who can only join others."""
        if not ask.profile.near:
            return 1
        return 2 if any(self.nodes.holds(rule) for rule in ask.profile.near) else 0

    def _place_on_bins(self, ask: Ask) -> None:
        """Put pods on planned nodes, under whatever variant is as good as the present one."""
        present = ask.variant
        for wishes in ask.profile.wishes:
            for option in ask.options():
                ask.variant = option
                if ask.remaining:
                    self.bins.place(ask, wishes=wishes)
        ask.variant = present

    def _open_for(self, ask: Ask, waiting: Waiting) -> bool:
        """Open a node for the ask, or enlarge one; tell whether anything was placed."""
        founding = False
        if ask.profile.near:
            if any(self.nodes.holds(r) or self.bins.holds(r) for r in ask.profile.near):
                return self.bins.grow(ask)
            founding = all(r in ask.profile.selected for r in ask.profile.near)
            if not founding:
                return False
        tried: frozenset[int] = frozenset()
        while ask.home is not None:
            waiting.update(ask)
            if self.buyer.open(ask, waiting, founding=founding):
                return True
            tried |= {ask.home}
            self.buyer.find_home(ask, tried)
        return False

    def _relax(self, ask: Ask) -> bool:
        """Go on to the next variant; without one, note why nothing took the rest, and tell so."""
        ask.tried.add(ask.variant)
        self._settle(ask)
        if ask.home is not None or not ask.remaining:
            return True
        # Limits may leave no other node to buy, but room for a larger one.
        while ask.remaining and len(self.bins) <= _FEW_BINS and self.bins.grow(ask):
            pass
        if not ask.remaining:
            return False
        refusals = self._refusals(ask)
        if ask.profile.near and all(r.constraint == "resources" for r in refusals):
            refusals = (_LONELY,)
        self.refused.update(dict.fromkeys(ask.pods[ask.placed :], refusals))
        return False

    def _squeeze(self) -> None:
        """Place pods no node can be bought for on those there are, where kube-scheduler would let them."""
        for ask in self.asks:
            # Every planned node is one more that a spread of its own measures by.
            lost = ask.profile.alone or bool(ask.profile.owned and len(self.bins))
            while ask.remaining and self.nodes.nodes and not lost:
                counts = self.nodes.room_for(ask, ask.demands, nowhere_else=True)
                if not counts.any():
                    break
                row = int(np.flatnonzero(counts)[0])
                self.nodes.place(row, ask, 1)
                taken = ask.take(1)
                self.on_nodes.setdefault(self.nodes.nodes[row].name, []).extend(taken)
                self.refused.pop(taken[0], None)

    def _refusals(self, ask: Ask) -> tuple[Refusal, ...]:
        return tuple(refuse(s, ask, self.axis) for s in self.spaces) or (_NO_POOL,)

    # --- the answer ---------------------------------------------------------------------------------------

    def plan(self, proven: float = 0.0, limit_prices: tuple[LimitPrice, ...] = ()) -> Plan:
        """Write everything down in order; no plan can cost less than `proven`, in USD per hour."""
        bought = planned_claims(self.spaces, self.bins.bins, self.axis)
        claims = alternating(bought, self.classes, self.problem.pods)
        unschedulable = [Unschedulable(pod=key, refusals=r) for key, r in self.refused.items()]
        cost = sum(claim.price for claim in claims)
        bound = lower_bound(self.spaces, self._demand(), self.free_before)
        return Plan(
            claims=tuple(claims),
            placements={name: tuple(sorted(self.on_nodes[name])) for name in sorted(self.on_nodes)},
            unschedulable=tuple(sorted(unschedulable, key=lambda u: u.pod)),
            cost=cost,
            lower_bound=min(cost, max(bound, proven)),
            limit_prices=limit_prices,
        )

    def relaxation(self) -> Relaxation:
        """Return what any plan for the pods that found a place has to meet."""
        counts, free, rules = self._placed(), self.free_before, self.topology.rules
        return Relaxation(self.spaces, self.nodes, free, self.axis, rules, self.classes, counts, {})

    def _placed(self) -> list[int]:
        """Return how many pods of each class found a place."""
        if not self.refused:
            return [c.count for c in self.classes]
        return [sum(key not in self.refused for key in c.pods) for c in self.classes]

    def _demand(self) -> Amounts:
        """Return what all pods that were placed ask for."""
        total: Resources = {}
        for pod_class, placed in zip(self.classes, self._placed(), strict=True):
            for name, amount in pod_class.requests.items():
                total[name] = total.get(name, 0) + amount * placed
        return self.axis.vector(total)


def _resource_names(
    problem: Problem,
    classes: Sequence[PodClass],
    daemons: Sequence[dict[str, int]],
    catalogues: Sequence[Catalogue],
) -> set[str]:
    names = {"cpu", "memory", "pods"}
    names.update(name for c in classes for name in c.requests)
    names.update(name for requests in daemons for name in requests)
    names.update(name for catalogue in catalogues for name in catalogue.resources)
    for node in problem.nodes:
        names.update(node.allocatable, node.requested, node.daemon_requested)
    return names
