"""Into which domains the pods of a class go, before anybody asks for nodes.

A *cell* is one value for each label that the class's constraints count by, in which a node for the class
can be had. Pods are dealt to cells so that every hard constraint holds, by kube-scheduler's rules; among the
cells that do, preferences decide, then room on nodes that are there, then balance, then price. Domains where
the class cannot go never attract its pods, but they do count where they have nodes.
"""

from collections.abc import Sequence

import msgspec

from karpenter.model.reasons import Constraint, Refusal
from karpenter.scheduling.domains import DomainLedger, Spread, Wide
from karpenter.scheduling.terms import Kind

UNBOUNDED = 2**62


class Cell(msgspec.Struct, frozen=True):
    """Somewhere a class can go."""

    values: tuple[str, ...]
    """By the class's keys."""
    tier: int
    """How many preferences of the class are given up there."""
    price: float
    """USD per hour that one pod costs there at least."""
    room: int
    """How many pods it can take."""
    free: int = 0
    """How many of these on nodes that are there already."""
    company: int = 0
    """How many pods that have to follow this class cannot go there."""


class Dealt(msgspec.Struct):
    """How many pods go into each cell, and how many into none."""

    counts: list[int]
    left: int


def deal(wide: Wide, cells: Sequence[Cell], count: int, ledger: DomainLedger) -> Dealt:
    """Deal `count` pods to `cells` and record them in the ledger."""
    return _Deal(wide, cells, ledger).run(count)


def founds(wide: Wide, ledger: DomainLedger) -> bool:
    """Tell whether these are the first pods of all groups they must be near, and are part of them."""
    hard = [a for a in wide.affinities if not a.weight]
    return bool(hard) and all(a.itself and not ledger.groups[a.group].total for a in hard)


class _Gauge(msgspec.Struct):
    """The counts of one group while pods are dealt, by domain; domains are numbered."""

    kind: Kind
    where: list[int]
    """By cell: its domain."""
    counts: list[int]
    grows: int
    """How much one more pod of the class adds."""
    weight: int
    """0: it must hold."""
    max_skew: int = 0
    nowhere: int = -1
    """The number of the domain that is none: nodes without the label. Nothing is counted there."""
    elsewhere: int = UNBOUNDED
    """The smallest count of a domain that no cell is in."""
    open_domains: bool = False
    """There are fewer domains than the spread wants: the emptiest counts as empty."""

    def bounds(self) -> tuple[int, int]:
        """Return the least and the most that a domain may count for one more pod there to be permitted."""
        if self.kind == "spread":
            least = 0 if self.open_domains else min(self.elsewhere, *self.counts)
            return 0, least + self.max_skew - self.grows
        return (1, UNBOUNDED) if self.kind == "affinity" else (0, 0)


class _Deal:
    """Deals pods of one class; the ledger hears of them in the end."""

    def __init__(self, wide: Wide, cells: Sequence[Cell], ledger: DomainLedger) -> None:
        self.wide = wide
        self.cells = cells
        self.ledger = ledger
        self.dealt = [0] * len(cells)
        gauges = [self._spread(s) for s in wide.spreads] if cells else []
        if cells:
            gauges += [self._gauge("affinity", a.group, a.weight) for a in wide.affinities]
            gauges += [self._gauge("anti", a.group, a.weight) for a in wide.antis]
        gauges += [g for n in wide.selected if cells and (g := self._kept_out(n)) is not None]
        self.hard = [g for g in gauges if not g.weight]
        self.soft = [g for g in gauges if g.weight]
        self.balance = [g for g in self.hard if g.kind == "spread"]
        owned = {s.group for s in wide.spreads}
        self.counted = [
            self._gauge("spread", n) for n in wide.selected if cells and n not in owned and self._is_spread(n)
        ]
        """Spreads of others that count these pods: they had better be level, too."""
        growing = (*(g for g in gauges if g.kind != "affinity"), *self.counted)
        self.by_one = any(g.grows for g in growing)
        self.spreads = [*self.balance, *(g for g in self.soft if g.kind == "spread")]
        self.uniform = self._uniform()
        self.passive = self._passive()

    def _uniform(self) -> bool:
        """Tell whether nothing but how full they are tells cells apart, as far as constraints go."""
        if len(self.wide.keys) != 1 or not self.spreads or len({c.tier for c in self.cells}) != 1:
            return False
        if self.wide.affinities or self.wide.antis or len(self.spreads) != len(self.hard) + len(self.soft):
            return False
        return all(
            g.grows and g.elsewhere == UNBOUNDED and (g.weight or not g.open_domains) for g in self.spreads
        )

    def _passive(self) -> bool:
        """Tell whether a pod more or less in a cell changes nothing but the counts of others' spreads."""
        if len(self.wide.keys) != 1 or not self.counted or any(g.grows for g in (*self.hard, *self.soft)):
            return False
        return not any(c.free or c.values == ("",) for c in self.cells)

    def _is_spread(self, number: int) -> bool:
        group = self.ledger.groups[number].group
        return group.kind == "spread" and group.key in self.wide.keys

    def _gauge(self, kind: Kind, number: int, weight: int = 0) -> _Gauge:
        tally = self.ledger.groups[number]
        position = self.wide.keys.index(tally.group.key)
        domains = {v: i for i, v in enumerate(dict.fromkeys(c.values[position] for c in self.cells))}
        return _Gauge(
            kind=kind,
            where=[domains[c.values[position]] for c in self.cells],
            counts=[tally.pods.get(v, 0) for v in domains],
            grows=int(number in self.wide.selected),
            weight=weight,
            nowhere=domains.get("", -1),
            elsewhere=min(
                (tally.pods.get(v, 0) for v in tally.present if v not in domains), default=UNBOUNDED
            ),
        )

    def _spread(self, spread: Spread) -> _Gauge:
        gauge = self._gauge("spread", spread.group, spread.weight)
        gauge.max_skew = spread.max_skew
        tally = self.ledger.groups[spread.group]
        position = self.wide.keys.index(tally.group.key)
        known = tally.present | {c.values[position] for c in self.cells}
        gauge.open_domains = len(known) < spread.min_domains
        return gauge

    def _kept_out(self, number: int) -> _Gauge | None:
        """Return the gauge of those who carry an anti-affinity that selects these pods."""
        tally = self.ledger.groups[number]
        if tally.group.kind != "anti" or not tally.owners or tally.group.key not in self.wide.keys:
            return None
        gauge = self._gauge("anti", number)
        position = self.wide.keys.index(tally.group.key)
        for cell, domain in zip(self.cells, gauge.where, strict=True):
            gauge.counts[domain] = tally.owners.get(cell.values[position], 0)
        gauge.grows = 0
        return gauge

    def run(self, count: int) -> Dealt:
        left = count
        if founds(self.wide, self.ledger):
            others = [g for g in self.hard if g.kind != "affinity"]
            left -= self._best(left, others, company=True, only=1)
        while left:
            taken = self._evenly(left) or self._levelled(left) or self._best(left, self.hard)
            if not taken:
                break
            left -= taken
        for cell, dealt in zip(self.cells, self.dealt, strict=True):
            if dealt:
                self.ledger.record(self.wide, cell.values, dealt)
        return Dealt(self.dealt, left)

    def _best(
        self, left: int, rules: Sequence[_Gauge], *, company: bool = False, only: int = UNBOUNDED
    ) -> int:
        """Put pods into the best cell that the rules permit; return how many."""
        ranks = [(self.cells[i].company if company else 0, *self._rank(i), i) for i in self._open(rules)]
        if not ranks:
            return 0
        best = min(ranks)[-1]
        cell = self.cells[best]
        take = min(left, only, cell.room - self.dealt[best], 1 if self.by_one else left)
        if self.dealt[best] < cell.free:
            take = min(take, cell.free - self.dealt[best])
        self._put(best, take)
        return take

    def _open(self, rules: Sequence[_Gauge]) -> list[int]:
        """Return the cells that have room and where the rules permit one more pod."""
        found = [i for i, cell in enumerate(self.cells) if self.dealt[i] < cell.room]
        for gauge in rules:
            low, high = gauge.bounds()
            found = [i for i in found if low <= gauge.counts[gauge.where[i]] <= high]
        return found

    def _put(self, cell: int, take: int) -> None:
        self.dealt[cell] += take
        for gauge in (*self.hard, *self.soft, *self.counted):
            if gauge.where[cell] != gauge.nowhere:
                gauge.counts[gauge.where[cell]] += take * gauge.grows

    def _evenly(self, left: int) -> int:
        """Deal rounds of one pod to every cell at once, where all cells are equal; return how many pods."""
        cells = self.cells
        if not self.uniform or left < len(cells):
            return 0
        if any(len(set(gauge.counts)) > 1 for gauge in self.spreads):
            return 0
        rounds = left // len(cells)
        if any(c.free > dealt for c, dealt in zip(cells, self.dealt, strict=True)):
            # The last ones may lean towards nodes that are there, as far as the skew lets them.
            rounds -= max((g.max_skew for g in self.balance), default=0)
        rounds = min(rounds, *(c.room - d for c, d in zip(cells, self.dealt, strict=True)))
        if rounds <= 0:
            return 0
        for i in range(len(cells)):
            self._put(i, rounds)
        return rounds * len(cells)

    def _levelled(self, left: int) -> int:
        """Fill up the emptiest of the best cells to the level of the next; return how many pods that took.

        For pods that only others' spreads count. One by one they would go the same way.
        """
        ranks = [(self._rank(i), i) for i in self._open(self.hard)] if self.passive else []
        if not ranks:
            return 0
        *best, level = min(ranks)[0][:5]
        burdens = {i: rank[4] for rank, i in ranks if [*rank[:4]] == best}
        lowest = [i for i, burden in burdens.items() if burden == level]
        above = min((burden for burden in burdens.values() if burden > level), default=UNBOUNDED)
        steps = -((level - above) // len(self.counted))
        rounds = min(left // len(lowest), steps, *(self.cells[i].room - self.dealt[i] for i in lowest))
        for i in lowest:
            self._put(i, rounds)
        return rounds * len(lowest)

    def _rank(self, i: int) -> tuple[int, int, bool, int, int, float, tuple[str, ...]]:
        """Order cells: fewer preferences given up, better neighbours, nodes there, balance, price, name."""
        cell, unwelcome = self.cells[i], 0
        for gauge in self.soft:
            sign = -1 if gauge.kind == "affinity" else 1
            unwelcome += sign * gauge.weight * gauge.counts[gauge.where[i]]
        crowd = sum([g.counts[g.where[i]] for g in self.balance])
        burden = sum([g.counts[g.where[i]] for g in self.counted])
        return (cell.tier, unwelcome, self.dealt[i] >= cell.free, crowd, burden, cell.price, cell.values)


def why_not(
    wide: Wide,
    values: Sequence[str],
    cells: Sequence[Cell],
    ledger: DomainLedger,
) -> tuple[Constraint, int] | None:
    """Return which constraint of which group keeps one more pod out of a domain; None: none does."""
    at = dict(zip(wide.keys, values, strict=True))
    for spread in wide.spreads:
        tally = ledger.groups[spread.group]
        here = tally.pods.get(at[tally.group.key], 0) + spread.itself
        if not spread.weight and here > _most(spread, wide, cells, ledger):
            return ("topologySpread", spread.group)
    for anti in wide.antis:
        tally = ledger.groups[anti.group]
        if not anti.weight and tally.pods.get(at[tally.group.key], 0):
            return ("podAntiAffinity", anti.group)
    for number in wide.selected:
        tally = ledger.groups[number]
        if tally.group.kind == "anti" and tally.owners.get(at.get(tally.group.key, ""), 0):
            return ("podAntiAffinity", number)
    for near in wide.affinities:
        tally = ledger.groups[near.group]
        if not near.weight and not tally.pods.get(at[tally.group.key], 0):
            return ("podAffinity", near.group)
    return None


def holds(wide: Wide, taken: Sequence[Cell], cells: Sequence[Cell], ledger: DomainLedger) -> bool:
    """Tell whether pods that are counted already in cells `taken` keep their hard spreads as things stand."""
    for spread in wide.spreads:
        if taken and not spread.weight:
            tally, most = ledger.groups[spread.group], _most(spread, wide, cells, ledger)
            position = wide.keys.index(tally.group.key)
            if any(tally.pods.get(cell.values[position], 0) > most for cell in taken):
                return False
    return True


def _most(spread: Spread, wide: Wide, cells: Sequence[Cell], ledger: DomainLedger) -> int:
    """Return how many pods a spread lets a domain hold: its maxSkew above the emptiest."""
    tally = ledger.groups[spread.group]
    position = wide.keys.index(tally.group.key)
    domains = tally.present | {c.values[position] for c in cells}
    if len(domains) < spread.min_domains:
        return spread.max_skew
    return min(tally.pods.get(d, 0) for d in domains) + spread.max_skew


def refusal(wide: Wide, cells: Sequence[Cell], ledger: DomainLedger) -> Refusal:
    """Return why no cell can take one more pod of the class."""
    if not cells:
        return Refusal(
            place="",
            constraint="requirements",
            message=f"no node with a value for {', '.join(wide.keys)} can be had for the pod",
            remedy="let a NodePool define the label, or leave the topology constraint out",
        )
    causes = [why_not(wide, c.values, cells, ledger) for c in cells]
    constraint, number = next((c for c in causes if c is not None), ("resources", -1))
    if number < 0:
        return Refusal(place="", constraint="resources", message="every allowed domain is full")
    group = ledger.groups[number].group
    counts = {d: ledger.groups[number].pods.get(d, 0) for d in sorted(_known(number, wide, cells, ledger))}
    words = {
        "topologySpread": (
            "spread",
            "make capacity possible in the emptier domains, raise maxSkew, or let it be ScheduleAnyway",
        ),
        "podAffinity": ("affinity", "run a pod that it selects where this pod may go"),
        "podAntiAffinity": ("anti-affinity", "allow more domains, or make it a preference"),
    }
    name, remedy = words[constraint]
    shown = ", ".join(f"{d or '(none)'}: {n}" for d, n in counts.items())
    return Refusal(
        place="",
        constraint=constraint,
        message=f"unsatisfiable topology constraint for {name}, key={group.key} (counts = {shown})",
        detail={"key": group.key, "counts": counts},
        remedy=remedy,
    )


def _known(number: int, wide: Wide, cells: Sequence[Cell], ledger: DomainLedger) -> set[str]:
    tally = ledger.groups[number]
    here = (
        {c.values[wide.keys.index(tally.group.key)] for c in cells} if tally.group.key in wide.keys else set()
    )
    return tally.present | set(tally.pods) | here
