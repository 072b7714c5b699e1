"""What one NodePool can still buy: its catalogue under its template, daemons, limits and minValues."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from karpenter.apis import labels
from karpenter.apis.core import Pod, Taint
from karpenter.base.quantity import Resources
from karpenter.model import taints
from karpenter.model.pods import has_dra_requirements, host_ports, ports_conflict, requests
from karpenter.model.problem import PoolOffer, SolveOptions
from karpenter.model.requirements import SIMULATION_LABELS, Requirement, Requirements
from karpenter.scheduling.catalogue import Amounts, Catalogue, Evaluation, Mask, Prices, compiled
from karpenter.scheduling.classes import (
    TOLERATE_PREFERENCES,
    Port,
    Variant,
)
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.mix import Mix
from karpenter.scheduling.purse import PRICE, Purse
from karpenter.scheduling.stock import LOT, NO_LOT, Ledger, lot_of, open_lots, requirement_of
from karpenter.scheduling.terms import node_terms, term_requirements

_EMPTY = Requirements()
_NOT_RESERVED = Requirement.of(labels.CAPACITY_TYPE, "NotIn", (labels.CAPACITY_RESERVED,))
MAX_INSTANCE_TYPES = 600
"""How many types one claim may list."""


class Axis:
    """The resources of one problem, each with its column."""

    def __init__(self, names: Iterable[str]) -> None:
        """Give each of `names` a column, in order of name."""
        self.names = tuple(sorted(set(names)))
        self.column = {name: i for i, name in enumerate(self.names)}

    def vector(self, amounts: Mapping[str, int]) -> Amounts:
        """Return `amounts` as a row."""
        row = [0] * len(self.names)
        for name, amount in amounts.items():
            row[self.column[name]] = amount
        return np.array(row, dtype=np.int64)

    def resources(self, row: Amounts) -> Resources:
        """Return a row as a resource list, without what is zero."""
        return {name: amount for name, amount in zip(self.names, row.tolist(), strict=True) if amount}


class Daemon(msgspec.Struct, frozen=True):
    """A DaemonSet's pod as the solver sees it."""

    requests: Resources
    alternatives: tuple[Requirements, ...]
    """One of these must hold."""
    pod: Pod
    ports: frozenset[Port]


def daemons_of(pods: Sequence[Pod]) -> list[Daemon]:
    """Return what each DaemonSet will take of the nodes it runs on; those needing devices are left out."""
    return [
        Daemon(
            requests(pod),
            tuple(term_requirements(pod, term) for term in node_terms(pod)),
            pod,
            host_ports(pod),
        )
        for pod in pods
        if not has_dra_requirements(pod)
    ]


def template_requirements(offer: PoolOffer) -> Requirements:
    """Return what every node of the pool is, labels that it gets only later included.

    Raises:
        ValueError: when one of the pool's requirements cannot be read.
    """
    template = offer.pool.spec.template
    ref = template.spec.node_class_ref
    given = {
        **template.metadata.labels,
        labels.NODEPOOL: offer.pool.name,
        labels.nodeclass_label(ref.group, ref.kind): ref.name,
        **dict.fromkeys(SIMULATION_LABELS, "true"),
    }
    return Requirements.from_specs(template.spec.requirements).merge(Requirements.from_labels(given))


def _catalogue(offer: PoolOffer, requirements: Requirements, options: SolveOptions) -> Catalogue:
    """Return what the pool can buy, compiled.

    Where minValues ask for variety, a type counts as small as the smallest of its offerings: no claim may
    have to do without a type, because one of its sizes is too small.
    """
    catalogue = compiled(offer.instance_types, options.reservation_label)
    if catalogue.twins and requirements.has_min_values:
        return compiled(offer.instance_types, options.reservation_label, one_size=True)
    return catalogue


class PoolSpace:
    """One pool during one solve. Only `remaining` changes, as claims are planned."""

    def __init__(
        self,
        offer: PoolOffer,
        axis: Axis,
        daemons: Sequence[Daemon],
        options: SolveOptions,
        ledger: Ledger,
        drives: Drives,
    ) -> None:
        """Compile `offer` for a problem over the resources of `axis`; `ledger` is shared with other pools."""
        self.offer = offer
        self.weight = offer.weight
        self.name = offer.pool.name
        self.place = f"nodepool/{self.name}"
        self.ledger = ledger
        self.requirements = template_requirements(offer)
        if not options.reserved_capacity:
            self.requirements = self.requirements.add(_NOT_RESERVED)
        self.taints: list[Taint] = offer.pool.spec.template.spec.taints
        self.catalogue = catalogue = _catalogue(offer, self.requirements, options)
        self.well_known = options.well_known_labels | {LOT}
        self.allocatable = np.zeros((len(catalogue), len(axis.names)), dtype=np.int64)
        self.allocatable[:, [axis.column[name] for name in catalogue.resources]] = catalogue.allocatable
        if drives.drivers:
            for row, instance_type in enumerate(catalogue.types):
                for name, count in drives.room_of(instance_type).items():
                    self.allocatable[row, axis.column[name]] = count
        self.overhead = np.zeros_like(self.allocatable)
        self.daemon_ports: list[tuple[Mask, frozenset[Port]]] = []
        self._uneven: Amounts | None = None
        """The resources of which daemons take more on some types than on others."""
        self._add_daemons(axis, daemons)
        # Column after column in memory: comparing whole rows is three times as fast.
        self.room = np.asfortranarray(self.allocatable - self.overhead)
        """By type: what pods can have once the daemons run."""
        self.usable: Mask = np.all(self.room >= 0, axis=1)
        self.options = options
        if options.max_node_cpu is not None:
            cores = [kind.capacity.get("cpu", 0) for kind in catalogue.types]
            self.usable &= np.array(cores, dtype=np.int64) <= options.max_node_cpu
        self.mix = Mix(offer.capacity_type_mix, self.name, ledger.nodes)
        self.purse = Purse(offer.remaining.get(PRICE), ledger)
        self.limited = tuple(sorted(name for name in offer.remaining if name not in ("nodes", PRICE)))
        self.remaining = np.array([offer.remaining[name] for name in self.limited], dtype=np.int64)
        self.nodes_remaining = offer.remaining.get("nodes")
        self.capacity = np.zeros((len(catalogue), len(self.limited)), dtype=np.int64, order="F")
        for i, name in enumerate(self.limited):
            if name in catalogue.capacity_resources:
                self.capacity[:, i] = catalogue.capacity[:, catalogue.capacity_resources.index(name)]
        self._limits_version = object()
        self._all: Mask = np.ones(len(catalogue), dtype=np.bool_)
        self._within = self._count_within()
        self.frontiers: dict[tuple[Requirements, tuple[object, ...]], Amounts] = {}
        """For each start of a node: the types that no other beats in price and size."""
        self._evaluations: dict[Requirements, Evaluation] = {}
        self._by_price: dict[Requirements, Amounts] = {}
        self._charges: dict[Requirements, Amounts] = {}
        self._shares: dict[bytes, Prices] = {}
        self._openable: dict[tuple[Requirements, bytes, frozenset[Port]], Mask] = {}
        self._openable_at: tuple[object, ...] | None = None
        """What `limits_version` was when these were found out."""
        self.launched: dict[tuple[object, ...], int] = {}
        """By all that matters of a planned node: the type that its claim gets (`claims.launched`)."""
        self._merged: dict[tuple[Requirements, Variant], Requirements | str] = {}
        self._untolerated: dict[tuple[object, ...], str] = {}

    def _add_daemons(self, axis: Axis, daemons: Sequence[Daemon]) -> None:
        for daemon in daemons:
            if taints.tolerates(self.taints, (*daemon.pod.spec.tolerations, TOLERATE_PREFERENCES)):
                continue
            runs = np.zeros(len(self.catalogue), dtype=np.bool_)
            for wanted in daemon.alternatives:
                if not self.requirements.compatible(wanted, self.well_known):
                    runs |= self.catalogue.evaluate(wanted, self.well_known).matching
            self.overhead += runs[:, None] * axis.vector(daemon.requests)
            if daemon.ports:
                self.daemon_ports.append((runs, daemon.ports))

    @property
    def limits_version(self) -> tuple[object, ...]:
        """Changes whenever other types than before stay within the limits, or something has run out."""
        return self._limits_version, self.purse.left, self.ledger.used_up

    def evaluate(self, requirements: Requirements) -> Evaluation:
        """Return which types can be bought under `requirements`, and their prices.

        What has run out can only be had by nodes that draw on it already.
        """
        requirements = self._of_open_lots(requirements)
        found = self._evaluations.get(requirements)
        if found is None:
            found = self._evaluations[requirements] = self.catalogue.evaluate(
                requirements, self.well_known, self.offer.interruption_cost
            )
        return found

    def by_price(self, requirements: Requirements) -> Amounts:
        """Return the types that can be bought under `requirements`, cheapest first, then by name."""
        requirements = self._of_open_lots(requirements)
        found = self._by_price.get(requirements)
        if found is None:
            price = self.evaluate(requirements).price
            order = np.lexsort((self.catalogue.alphabetic, price))
            found = self._by_price[requirements] = order[np.isfinite(price[order])]
        return found

    def _of_open_lots(self, requirements: Requirements) -> Requirements:
        if not self.catalogue.lots or LOT in requirements:
            return requirements
        still_open = open_lots(self.ledger)
        return requirements if still_open is None else requirements.add(still_open)

    def untolerated(self, variant: Variant) -> str:
        """Return which of the pool's taints `variant` does not tolerate; empty when none."""
        found = self._untolerated.get(variant.tolerations)
        if found is None:
            found = taints.tolerates(self.taints, variant.tolerations)
            self._untolerated[variant.tolerations] = found
        return found

    def admit(self, requirements: Requirements, variant: Variant) -> Requirements | str:
        """Return what a node that has `requirements` must be once `variant` joins, or why it cannot."""
        key = (requirements, variant)
        merged = self._merged.get(key)
        if merged is None:
            untolerated = self.untolerated(variant)
            own = self.requirements.impossible()
            if untolerated:
                merged = untolerated
            elif own:
                merged = f"incompatible requirements, key {own}, the nodepool's own contradict each other"
            else:
                error = requirements.compatible(variant.requirements, self.well_known)
                merged = (
                    f"incompatible requirements, {error}"
                    if error
                    else requirements.merge(variant.requirements)
                )
                if merged == requirements:
                    merged = requirements
            self._merged[key] = merged
        return merged

    def within_limits(self) -> Mask:
        """Return, by type, whether one more node of it stays within what is left of the limits."""
        return self._within

    def _count_within(self) -> Mask:
        if self.nodes_remaining is not None and self.nodes_remaining < 1:
            return np.zeros(len(self.catalogue), dtype=np.bool_)
        within: Mask = np.all(self.capacity <= self.remaining, axis=1)
        return within

    def affords(self, requirements: Requirements) -> Mask:
        """Return, by type, whether one more node that is `requirements` stays within the limits on money."""
        if not self.purse.limited:
            return self._all
        return self.purse.affords(self._charged(requirements))

    def charge(self, chosen: int, options: Mask, requirements: Requirements) -> Amounts:
        """Return what a node of type `chosen`, that may become any of `options`, counts against the limits.

        By limited resource, the most it may have; at the end what it costs, in micro-USD per hour.
        """
        micro = self._charged(requirements)[chosen] if self.purse.limited else 0
        if not self.limited:
            return np.array([micro], dtype=np.int64)
        return np.append(self.capacity[options].max(axis=0, initial=0), micro)

    def _charged(self, requirements: Requirements) -> Amounts:
        requirements = self._of_open_lots(requirements)
        found = self._charges.get(requirements)
        if found is None:
            found = self._charges[requirements] = self.purse.charges(self.evaluate(requirements).usd)
        return found

    def affordable(self, charge: Amounts) -> int | None:
        """Return for how many nodes, each of this `charge`, the limits leave room; None: any number."""
        counts = [] if self.nodes_remaining is None else [self.nodes_remaining]
        limits = [*self.remaining.tolist(), self.purse.left]
        counts += [left // amount for left, amount in zip(limits, charge.tolist(), strict=True) if amount > 0]
        return max(0, min(counts)) if counts else None

    def take(self, charge: Amounts, count: int) -> None:
        """Count `count` nodes, each of this `charge`, against the limits."""
        self.remaining = self.remaining - charge[:-1] * count
        if self.purse.limited:
            self.purse.spend(int(charge[-1]) * count)
        if self.nodes_remaining is not None:
            self.nodes_remaining -= count
        if self.limited or self.nodes_remaining is not None:
            within = self._count_within()
            if not np.array_equal(within, self._within):
                self._within, self._limits_version = within, object()

    def openable(self, requirements: Requirements, wanted: Amounts, ports: frozenset[Port]) -> Mask:
        """Return the types of which one more node can be bought for a pod; remembered, not to be changed."""
        version = self.limits_version
        if version != self._openable_at:
            self._openable_at = version
            self._openable.clear()
        key = (requirements, wanted.tobytes(), ports)
        found = self._openable.get(key)
        if found is None:
            found = self._openable[key] = (
                np.isfinite(self.evaluate(requirements).price)
                & self.fits(wanted)
                & self.within_limits()
                & self.affords(requirements)
                & self.free_ports(ports)
            )
            found.flags.writeable = False
        return found

    def scarcest_share(self, wanted: Amounts) -> Prices:
        """Return, by type, which share of its scarcest resource one pod takes, where it has room for one.

        It is remembered: not to be changed.
        """
        key = wanted.tobytes()
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = np.zeros(len(self.room))
            with np.errstate(divide="ignore"):
                for column in np.flatnonzero(wanted).tolist():
                    np.maximum(found, wanted[column] / self.room[:, column], out=found)
            found.flags.writeable = False
        return found

    def drawing(self, start: Requirements, chosen: int, allowed: Mask) -> Requirements:
        """Return what a node bought as type `chosen` is: it draws on the cheapest lot, or on none.

        Lots without enough different types for minValues are passed over.
        """
        if not self.catalogue.lots:
            return start
        found = start
        for lot, _ in self._sources(start, chosen):
            found = start.add(requirement_of(lot)).merge(self.catalogue.lots.get(lot, _EMPTY))
            if not self.achieved(found, np.isfinite(self.evaluate(found).price) & allowed):
                break
        return found

    def worth_it(self, requirements: Requirements, chosen: int) -> Requirements:
        """Return `requirements` less the capacity types whose interruptions make `chosen` dearer.

        The cloud goes by price alone: what it may buy has to be what we would.
        """
        if not self.offer.interruption_cost:
            return requirements
        kinds = [kind for _, kind in self._sources(requirements, chosen) if kind]
        return (
            requirements.add(Requirement.of(labels.CAPACITY_TYPE, "In", kinds[:1])) if kinds else requirements
        )

    def not_counted_reservations(self) -> list[Requirement]:
        """Return what keeps a claim clear of reservations that it does not draw on."""
        label = self.ledger.reservation_label
        counted = {pin.single_value(label) for pin in self.catalogue.lots.values()} - {""}
        return [Requirement.of(label, "NotIn", sorted(counted))] if counted else []

    def _sources(self, requirements: Requirements, chosen: int) -> list[tuple[str, str]]:
        wanted = self._of_open_lots(requirements)
        return self.catalogue.sources(chosen, wanted, self.well_known, self.offer.interruption_cost)

    @property
    def unlimited(self) -> Requirements:
        """What a new node is that draws on nothing that can run out."""
        return self.requirements.add(requirement_of(NO_LOT)) if self.catalogue.lots else self.requirements

    def steered(self, start: Requirements, usable: Mask) -> Requirements:
        """Return what the next node should be for the mix of capacity types, if `usable` types can be that.

        Reservations are paid for already: while any can be used the mix does not matter.
        """
        for kind in (labels.CAPACITY_RESERVED, *self.mix.order()) if self.mix.wanted else ():
            found = start.add(Requirement.of(labels.CAPACITY_TYPE, "In", (kind,)))
            there = usable & np.isfinite(self.evaluate(found).price)
            if there.any() and not (self.achieved(found, there).keys() - self.achieved(start, usable)):
                return found
        return start

    def in_stock(self, requirements: Requirements, chosen: int) -> int | None:
        """Return how many nodes of type `chosen` to buy at once; None: any number.

        No more than the lot they draw on is good for, nor than bring the mix of capacity types in line.
        """
        lot = lot_of(requirements)
        most = [self.ledger.left[lot]] if lot else []
        if self.mix.wanted:
            kind = requirements.single_value(labels.CAPACITY_TYPE)
            share = self.mix.most(kind, self.catalogue.types[chosen].capacity.get("cpu", 0))
            most += [] if share is None else [share]
        return min(most, default=None)

    def draw(self, requirements: Requirements, chosen: int, count: int) -> None:
        """Note that `count` nodes of type `chosen` were bought (negative: were not): in stock, and mix."""
        lot = lot_of(requirements)
        if lot:
            self.ledger.take(lot, count)
        if self.mix.wanted:
            cores = self.catalogue.types[chosen].capacity.get("cpu", 0)
            self.mix.add(requirements.single_value(labels.CAPACITY_TYPE), cores * count)

    def awaits(self, requirements: Requirements, fitting: Mask) -> bool:
        """Tell whether a lot that only claims on their way have used up would do for `fitting` types."""
        awaited = sorted(self.ledger.awaited & self.catalogue.lots.keys())
        if not awaited:
            return False
        found = self.evaluate(requirements.add(Requirement.of(LOT, "In", awaited)))
        return bool((np.isfinite(found.price) & fitting).any())

    def listable(self, start: Requirements, chosen: int) -> Mask:
        """Return which types a node that is bought as `chosen` may list besides.

        Whatever is launched counts against the limits, so none that takes more of them than `chosen`, nor a
        dearer one where money is limited; but as many larger ones as minValues need, smallest first.
        """
        within = self.within_limits() & self.affords(start)
        small = within.copy()
        if self.limited:
            small &= np.all(self.capacity <= self.capacity[chosen], axis=1)
        if self.purse.limited:
            charges = self._charged(start)
            small &= charges <= charges[chosen]
        if not start.has_min_values or not (self.limited or self.purse.limited):
            return small if not start.has_min_values else within
        return self._with_enough(start, chosen, small, within)

    def _with_enough(self, start: Requirements, chosen: int, small: Mask, within: Mask) -> Mask:
        """Return few of the types `within` limits that meet minValues and, where possible, hold as much."""
        offered = within & np.isfinite(self.evaluate(start).price)
        roomy: Mask = np.all(self.room >= self.room[chosen], axis=1)
        share = (self.capacity / np.maximum(self.remaining, 1)).max(axis=1, initial=0.0)
        usd = self.evaluate(start).usd
        order = np.lexsort((np.arange(len(usd)), usd, share, ~roomy))
        listed: Mask = small & roomy
        for i in order.tolist():
            if not self.achieved(start, listed & offered):
                break
            if offered[i]:
                listed[i] = True
        return listed

    def free_ports(self, ports: frozenset[Port]) -> Mask:
        """Return, by type, whether the daemons that run on it leave `ports` free."""
        free = np.ones(len(self.catalogue), dtype=np.bool_)
        for runs, taken in self.daemon_ports:
            if conflicting(taken, ports):
                free &= ~runs
        return free

    def fits(self, used: Amounts) -> Mask:
        """Return, by type, whether pods that need `used` in all fit beside the daemons."""
        fitting = self.usable.copy()
        for column in np.flatnonzero(used).tolist():
            fitting &= self.room[:, column] >= used[column]
        return fitting

    def least_overhead(self, rows: Amounts) -> Amounts:
        """Return what daemons take at least on whichever of the types `rows`."""
        found: Amounts = self.overhead[rows[0]].copy()
        if self._uneven is None:
            self._uneven = np.flatnonzero((self.overhead != self.overhead[0]).any(axis=0))
        for column in self._uneven.tolist():
            found[column] = self.overhead[rows, column].min()
        return found

    def achieved(self, requirements: Requirements, options: Mask) -> dict[str, int]:
        """Return, for each key whose minValues the `options` miss, how many values they have."""
        short = {}
        for key, requirement in requirements.items():
            if requirement.min_values is not None:
                found = int(self.catalogue.distinct_values(key)[options].any(axis=0).sum())
                if found < requirement.min_values:
                    short[key] = found
        return short


def relax_min_values(requirements: Requirements, achieved: Mapping[str, int]) -> Requirements:
    """Return `requirements` with the minValues of the keys in `achieved` lowered to what can be had."""
    lowered = {
        key: msgspec.structs.replace(r, min_values=achieved[key] or None) if key in achieved else r
        for key, r in requirements.items()
    }
    return Requirements(lowered)


def conflicting(left: frozenset[Port], right: frozenset[Port]) -> bool:
    """Tell whether two sets of host ports cannot be on one node."""
    return any(ports_conflict(a, b) for a in left for b in right)


def how_many(room: Amounts, wanted: Amounts) -> Amounts:
    """Return, by row of `room`, how many times `wanted` fits; never negative."""
    counts: Amounts | None = None
    for column, amount in enumerate(wanted.tolist()):
        if amount:
            fit = room[:, column] // amount
            counts = fit if counts is None else np.minimum(counts, fit, out=counts)
    if counts is None:
        return np.full(len(room), np.iinfo(np.int64).max)
    return np.maximum(counts, 0, out=counts)
