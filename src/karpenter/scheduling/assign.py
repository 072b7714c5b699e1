"""Into which domains the pods of a class go, before anybody asks for nodes.

A *cell* is one value for each label that the class's constraints count by, in which a node for the class
can be had. Pods are dealt to cells so that every hard constraint holds, by kube-scheduler's rules; among the
cells that do, preferences decide, then balance, then price. Domains where the class cannot go never attract
its pods, but they do count where they have nodes.
"""

from collections.abc import Sequence

import msgspec

from karpenter.model.reasons import Constraint, Refusal
from karpenter.scheduling.domains import DomainLedger, Spread, Wide


class Cell(msgspec.Struct, frozen=True):
    """Somewhere a class can go."""

    values: tuple[str, ...]
    """By the class's keys."""
    variant: int
    """The first variant of the class that can go there."""
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


class _Deal:
    def __init__(self, wide: Wide, cells: Sequence[Cell], ledger: DomainLedger) -> None:
        self.wide = wide
        self.cells = cells
        self.ledger = ledger
        self.dealt = [0] * len(cells)
        self.position = {key: i for i, key in enumerate(wide.keys)}
        self.hard = [s for s in wide.spreads if not s.weight]
        self.growing = any(s.itself for s in wide.spreads) or any(a.itself for a in wide.antis)
        self.home: tuple[str, ...] | None = None
        """Where all pods go, once the first of a group that attracts itself has gone somewhere."""

    def run(self, count: int) -> Dealt:
        left = count
        if founds(self.wide, self.ledger):
            best = min(
                (i for i in range(len(self.cells)) if self._valid(i, founding=True)),
                key=lambda i: (self.cells[i].company, self._rank(i)),
                default=None,
            )
            if best is None:
                return Dealt(self.dealt, left)
            # Whether the rest follows is an ordinary question from now on: the group has its first pod.
            left -= self._put(best, 1)
        while left:
            even = self._evenly(left)
            if even:
                left -= even
                continue
            best = min((i for i in range(len(self.cells)) if self._valid(i)), key=self._rank, default=None)
            if best is None:
                break
            left -= self._put(best, left)
        return Dealt(self.dealt, left)

    def _put(self, i: int, left: int) -> int:
        """Give a cell all it may take at once: one pod where more would change what is best."""
        take = min(left, self.cells[i].room - self.dealt[i])
        if self.dealt[i] < self.cells[i].free:
            take = min(take, self.cells[i].free - self.dealt[i])
        if self.growing:
            take = min(take, 1)
        self.dealt[i] += take
        self.ledger.record(self.wide, self.cells[i].values, take)
        return take

    def _evenly(self, left: int) -> int:
        """Deal rounds of one pod to every cell at once, where all cells are equal; return how many pods."""
        wide, cells = self.wide, self.cells
        if len(wide.keys) != 1 or wide.affinities or any(not a.weight for a in wide.antis):
            return 0
        if not wide.spreads or not all(s.itself for s in wide.spreads) or wide.antis:
            return 0
        rounds = left // len(cells) if cells else 0
        if rounds < 1 or any(c.variant != cells[0].variant for c in cells):
            return 0
        values = [c.values[0] for c in cells]
        for spread in wide.spreads:
            tally = self.ledger.groups[spread.group]
            if len({tally.pods.get(v, 0) for v in values}) != 1 or not tally.present <= set(values):
                return 0
            if not spread.weight and len(values) < spread.min_domains:
                return 0
        rounds = min(rounds, min(c.room - d for c, d in zip(cells, self.dealt, strict=True)))
        for i, cell in enumerate(cells if rounds else ()):
            self.dealt[i] += rounds
            self.ledger.record(wide, cell.values, rounds)
        return rounds * len(cells)

    def _valid(self, i: int, *, founding: bool = False) -> bool:
        """Tell whether one more pod in the cell keeps every hard constraint."""
        cell = self.cells[i]
        if self.dealt[i] >= cell.room:
            return False
        return why_not(self.wide, cell.values, self.cells, self.ledger, founding=founding) is None

    def _rank(self, i: int) -> tuple[int, int, int, float, tuple[str, ...]]:
        """Order cells: fewer preferences given up, better neighbours, better balance, price, name."""
        cell, wide = self.cells[i], self.wide
        unwelcome, crowd = 0, 0
        for spread in wide.spreads:
            tally = self.ledger.groups[spread.group]
            here = tally.pods.get(self._domain(tally.group.key, cell), 0)
            if spread.weight:
                unwelcome += spread.weight * here
            else:
                crowd += here
        for attraction, sign in (*((a, -1) for a in wide.affinities), *((a, 1) for a in wide.antis)):
            if attraction.weight:
                tally = self.ledger.groups[attraction.group]
                unwelcome += sign * attraction.weight * tally.pods.get(self._domain(tally.group.key, cell), 0)
        price = 0.0 if self.dealt[i] < cell.free else cell.price
        return (cell.variant, unwelcome, crowd, price, cell.values)

    def _domain(self, key: str, cell: Cell) -> str:
        return cell.values[self.position[key]]


def why_not(
    wide: Wide,
    values: Sequence[str],
    cells: Sequence[Cell],
    ledger: DomainLedger,
    *,
    founding: bool = False,
) -> tuple[Constraint, int] | None:
    """Return the kind of constraint, and its group, that keeps one more pod out of where keys have `values`.

    `founding`: the class may be the first of the groups it must be near.
    """
    at = dict(zip(wide.keys, values, strict=True))
    for spread in wide.spreads:
        if not spread.weight and not _within_skew(spread, at, wide, cells, ledger):
            return ("topologySpread", spread.group)
    for anti in wide.antis:
        tally = ledger.groups[anti.group]
        if not anti.weight and tally.pods.get(at[tally.group.key], 0):
            return ("podAntiAffinity", anti.group)
    for number in wide.selected:
        tally = ledger.groups[number]
        if tally.group.kind == "anti" and tally.owners.get(at.get(tally.group.key, ""), 0):
            return ("podAntiAffinity", number)
    if not founding:
        for near in wide.affinities:
            tally = ledger.groups[near.group]
            if not near.weight and not tally.pods.get(at[tally.group.key], 0):
                return ("podAffinity", near.group)
    return None


def _within_skew(
    spread: Spread, at: dict[str, str], wide: Wide, cells: Sequence[Cell], ledger: DomainLedger
) -> bool:
    tally = ledger.groups[spread.group]
    key = tally.group.key
    position = wide.keys.index(key)
    domains = tally.present | {c.values[position] for c in cells}
    least = min((tally.pods.get(d, 0) for d in domains), default=0)
    if len(domains) < spread.min_domains:
        least = 0
    return tally.pods.get(at[key], 0) + spread.itself - least <= spread.max_skew


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
        "topologySpread": ("spread", "raise maxSkew, or make capacity possible in the emptier domains"),
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
