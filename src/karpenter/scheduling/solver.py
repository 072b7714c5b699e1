"""From a Problem to a Plan: existing nodes first, then what is already planned, then new nodes.

Pods are placed class by class, by count. For each class the variants (what it asks for, with ever fewer
preferences) are tried in order, and within a variant first the nodes there are, then planned nodes with room
at no extra price, then a new node from the first pool that can buy one. New nodes are opened by worth for
money (`karpenter.scheduling.packing`).
"""

from collections.abc import Sequence

import numpy as np

from karpenter.model.problem import Budget, Plan, Problem
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.model.requirements import Requirements
from karpenter.scheduling.bound import lower_bound
from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.claims import Bin, planned_claims
from karpenter.scheduling.classes import PodClass, classify
from karpenter.scheduling.nodes import NodeTable
from karpenter.scheduling.packing import Ask, Pattern, choose, fill, join
from karpenter.scheduling.refusals import refuse
from karpenter.scheduling.space import (
    Axis,
    PoolSpace,
    cheapest_share,
    daemons_of,
    how_many,
    relax_min_values,
)
from karpenter.scheduling.topology import Occupancy, Topology

_NO_POOL = Refusal(
    place="",
    constraint="nodepool",
    message="no nodepools found",
    remedy="create a NodePool, or see why the existing ones are not ready",
)


def solve(problem: Problem, budget: Budget | None = None) -> Plan:
    """Return which pods go where, and which machines to create for them.

    The same problem, its pods in whatever order, always has the same plan. A `budget` bounds what is spent
    on improving the first complete plan, which is always returned; nothing is improved yet, so none is spent.

    Raises:
        ValueError: when a quantity or a requirement in the problem cannot be read.
    """
    topology = Topology(problem)
    classes = classify(problem, topology)
    plan = _Solve(problem, topology, classes, by_priority=False).run()
    if _someone_jumped_the_queue(classes, plan):
        # Something ran out: now it matters who comes first.
        plan = _Solve(problem, topology, classes, by_priority=True).run()
    return plan


def _someone_jumped_the_queue(classes: Sequence[PodClass], plan: Plan) -> bool:
    """Tell whether a pod was left out while one of lower priority was placed."""
    refused = {u.pod for u in plan.unschedulable}
    able = [c for c in classes if c.refusal is None]
    left_out = [c.priority for c in able if not refused.isdisjoint(c.pods)]
    placed = [c.priority for c in able if not refused.issuperset(c.pods)]
    return bool(left_out and placed) and max(left_out) > min(placed)


class _Solve:
    """One pass over all classes. Everything that changes while a plan is made lives here."""

    def __init__(
        self, problem: Problem, topology: Topology, classes: Sequence[PodClass], *, by_priority: bool
    ) -> None:
        self.problem = problem
        self.topology = topology
        daemons = daemons_of(problem.snapshot.daemons)
        well_known = problem.options.well_known_labels
        self.axis = Axis(_resource_names(problem, classes, [d.requests for d in daemons]))
        self.spaces = [PoolSpace(offer, self.axis, daemons, well_known) for offer in problem.pools]
        self.nodes = NodeTable(problem.nodes, self.axis, daemons, classes, topology)
        self.free_before = self.nodes.total_free()
        ordered = sorted(classes, key=lambda c: -c.priority) if by_priority else list(classes)
        self.asks = [Ask(i, c, self.axis.vector(c.requests), c.count) for i, c in enumerate(ordered)]
        for ask in self.asks:
            on_one = topology.allowance(ask.pod_class.profile, Occupancy.empty())
            ask.most = 1 if ask.pod_class.ports else on_one
        self.by_priority = by_priority
        self.bins: list[Bin] = []
        self._bin_room: Amounts = np.zeros((0, len(self.axis.names)), dtype=np.int64)
        self.on_nodes: list[tuple[int, int, int]] = []
        """(ask, row, count), in order of placement."""
        self.refused: dict[int, tuple[Refusal, ...]] = {}

    def run(self) -> Plan:
        """Place every class, then write the plan."""
        waiting = [ask for ask in self.asks if self._refuse_at_once(ask)]
        levels = sorted({a.pod_class.priority for a in waiting}, reverse=True) if self.by_priority else [None]
        for level in levels:
            group = [a for a in waiting if level is None or a.pod_class.priority == level]
            for ask in group:
                self._settle(ask)
            # Nodes are opened for those with least choice first; who is free to go anywhere fills them up.
            for ask in sorted(group, key=lambda a: a.choices):
                while ask.remaining:
                    self._place_on_bins(ask)
                    if not ask.remaining:
                        break
                    if ask.home is not None and self._open(ask, group):
                        continue
                    if ask.home is not None:
                        self._find_home(ask, ask.home + 1)
                        if ask.home is not None:
                            continue
                    if not self._relax(ask):
                        break
        return self._plan()

    def _refuse_at_once(self, ask: Ask) -> bool:
        if ask.pod_class.refusal is not None:
            self.refused[ask.index] = (ask.pod_class.refusal,)
            return False
        return True

    def _settle(self, ask: Ask) -> None:
        """Place the class on existing nodes, under the first variant that has a place there or in a pool."""
        while True:
            self._place_on_nodes(ask)
            if not ask.remaining:
                return
            self._find_home(ask, 0)
            if ask.home is not None or ask.variant + 1 >= len(ask.pod_class.variants):
                return
            ask.variant += 1

    def _relax(self, ask: Ask) -> bool:
        """Go on to the next variant; without one, note why nothing took the rest, and tell so."""
        if ask.variant + 1 < len(ask.pod_class.variants):
            ask.variant += 1
            self._settle(ask)
            return True
        refusals = [refuse(s, ask.pod_class, ask.demands, ask.wanted, self.axis) for s in self.spaces]
        self.refused[ask.index] = tuple(refusals) or (_NO_POOL,)
        return False

    def _find_home(self, ask: Ask, first: int) -> None:
        """Find the first pool, from the one at `first` on, that can buy a node for one pod of the class."""
        ask.home = None
        for i in range(first, len(self.spaces)):
            space = self.spaces[i]
            merged = space.admit(space.requirements, ask.demands)
            if isinstance(merged, str):
                continue
            usable = self._openable(space, merged, ask)
            if usable.any():
                prices = np.where(usable, space.evaluate(merged).price, np.inf)[usable]
                ask.home = i
                ask.worth = cheapest_share(prices, space.room[usable], ask.wanted)
                everyone = space.evaluate(space.requirements).price
                own = space.evaluate(merged).price
                ask.choices = int((np.isfinite(own) & (own <= everyone)).sum())
                return

    @staticmethod
    def _openable(space: PoolSpace, merged: Requirements, ask: Ask) -> Mask:
        """Return the types of which one more node can be bought for one pod of `ask`."""
        usable: Mask = (
            np.isfinite(space.evaluate(merged).price)
            & space.fits(ask.wanted)
            & space.within_limits()
            & space.free_ports(ask.pod_class.ports)
        )
        return usable

    def _place_on_nodes(self, ask: Ask) -> None:
        if not self.nodes.nodes:
            return
        counts = self.nodes.room_for(ask.pod_class, ask.demands, ask.wanted)
        for row in np.flatnonzero(counts).tolist():
            take = min(int(counts[row]), ask.remaining)
            if take:
                self.nodes.place(row, ask.pod_class, ask.wanted, take)
                self.on_nodes.append((ask.index, row, take))
                ask.remaining -= take

    def _place_on_bins(self, ask: Ask) -> None:
        """Use what is left on planned nodes, where that costs nothing."""
        if not self.bins:
            return
        counts = how_many(self._bin_room[: len(self.bins)], ask.wanted)
        for row in np.flatnonzero(counts).tolist():
            planned = self.bins[row]
            take = min(int(counts[row]), ask.remaining)
            space = self.spaces[planned.pool]
            joined = join(space, self.topology, planned.pattern, ask, take, planned.allowed)
            if joined:
                planned.pods[ask.index] = planned.pods.get(ask.index, 0) + joined
                planned.sequence.append((ask.index, joined))
                self._bin_room[row] -= ask.wanted * joined
                ask.remaining -= joined
                if not ask.remaining:
                    return

    def _open(self, ask: Ask, group: Sequence[Ask]) -> bool:
        """Buy nodes for the class at hand and what goes well with it; tell whether any could be bought."""
        assert ask.home is not None
        space = self.spaces[ask.home]
        merged = space.admit(space.requirements, ask.demands)
        if isinstance(merged, str):
            return False
        usable = self._openable(space, merged, ask)
        if not usable.any():
            return False
        start = self._with_min_values(space, merged, usable)
        if start is None:
            return False
        prices = np.where(usable, space.evaluate(start).price, np.inf)
        queue = [ask, *(a for a in group if a is not ask and a.remaining and a.home == ask.home)]
        choice = choose(space, start, prices, queue)
        allowed = space.within_limits()
        if not start.has_min_values:
            # Whatever is launched counts against the limits: listing larger types would eat them up.
            allowed = allowed & space.not_larger(choice.chosen)
        pattern = fill(space, self.topology, choice, start, allowed, queue)
        if not pattern.counts.get(ask.index):
            return False
        self._buy(ask.home, pattern, allowed, start is not merged)
        return True

    def _with_min_values(self, space: PoolSpace, merged: Requirements, usable: Mask) -> Requirements | None:
        """Return the requirements a new node starts with, minValues lowered where that is the policy."""
        missing = space.achieved(merged, usable)
        if not missing:
            return merged
        if self.problem.options.min_values_strict:
            return None
        return relax_min_values(merged, missing)

    def _buy(self, pool: int, pattern: Pattern, allowed: Mask, relaxed: bool) -> None:
        """Buy as many nodes of one pattern as there are pods for it and the limits allow."""
        space = self.spaces[pool]
        by_index = {i: self.asks[i] for i in pattern.counts}
        copies = min(by_index[i].remaining // count for i, count in pattern.counts.items())
        options = allowed & space.fits(pattern.used)
        largest = space.capacity[options & np.isfinite(space.evaluate(pattern.requirements).price)].max(
            axis=0
        )
        affordable = space.affordable(largest)
        if affordable is not None:
            copies = min(copies, affordable)
        space.take(largest, copies)
        for _ in range(copies):
            self.bins.append(Bin.of(pool, pattern, allowed, relaxed))
        for i, count in pattern.counts.items():
            by_index[i].remaining -= count * copies
        left = np.repeat((space.room[pattern.chosen] - pattern.used)[None, :], copies, axis=0)
        self._bin_room = np.concatenate([self._bin_room, left])

    def _plan(self) -> Plan:
        """Name the pods that were placed by count, and write everything down in order."""
        unnamed = [iter(ask.pod_class.pods) for ask in self.asks]
        placements: dict[str, list[str]] = {}
        demand = self.axis.vector({})
        for index, row, count in self.on_nodes:
            names = placements.setdefault(self.nodes.nodes[row].name, [])
            names.extend(next(unnamed[index]) for _ in range(count))
            demand = demand + self.asks[index].wanted * count
        for planned in self.bins:
            for index, count in planned.sequence:
                planned.names.extend(next(unnamed[index]) for _ in range(count))
                demand = demand + self.asks[index].wanted * count
        claims = planned_claims(self.spaces, self.bins, self.axis)
        unschedulable = [
            Unschedulable(pod=key, refusals=self.refused[ask.index])
            for ask in self.asks
            if ask.index in self.refused
            for key in unnamed[ask.index]
        ]
        cost = sum(claim.price for claim in claims)
        return Plan(
            claims=tuple(claims),
            placements={name: tuple(sorted(placements[name])) for name in sorted(placements)},
            unschedulable=tuple(sorted(unschedulable, key=lambda u: u.pod)),
            cost=cost,
            lower_bound=min(cost, lower_bound(self.spaces, demand, self.free_before)),
        )


def _resource_names(
    problem: Problem, classes: Sequence[PodClass], daemons: Sequence[dict[str, int]]
) -> set[str]:
    names = {"cpu", "memory", "pods"}
    names.update(name for c in classes for name in c.requests)
    names.update(name for requests in daemons for name in requests)
    names.update(name for o in problem.pools for t in o.instance_types for name in t.allocatable)
    for node in problem.nodes:
        names.update(node.allocatable, node.requested, node.daemon_requested)
    return names
