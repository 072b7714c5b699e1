"""All classes dealt to domains, and dealt again where later ones spoiled it.

A class is dealt when only those before it have been counted. Others that its constraints select may come
later and tip the balance; who would then never be bound is taken out and dealt anew, against the counts as
they are in the end.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from karpenter.scheduling import assign
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.cells import CellFinder
from karpenter.scheduling.classes import PodClass
from karpenter.scheduling.domains import DomainLedger

Values = tuple[str, ...]
_MOST_ROUNDS = 3


class Dealing(msgspec.Struct):
    """Where the pods of one class go."""

    whole: Ask
    """The class as it would be placed without regard to domains."""
    cells: Sequence[assign.Cell]
    counts: list[int]
    left: int


class Dealer:
    """Deals the classes of one pass."""

    def __init__(
        self,
        classes: Sequence[PodClass],
        ledger: DomainLedger,
        finder: CellFinder,
        ask: Callable[[int], Ask],
        closed: dict[tuple[int, Values], int],
    ) -> None:
        """Deal `classes`; `ask` gives the ask for all pods of a class, `closed` cells with little room."""
        self._classes = classes
        self._ledger = ledger
        self._finder = finder
        self._ask = ask
        self._closed: dict[int, dict[Values, int]] = {}
        for (number, values), room in closed.items():
            self._closed.setdefault(number, {})[values] = room

    def deal(self, number: int, whole: Ask, *, on_nodes: bool = False) -> Dealing:
        """Deal what remains of a class and count it; only what nodes there can take with `on_nodes`."""
        wide = self._classes[number].profile.wide
        cells = self._finder.cells(whole, wide.keys, self._closed.get(number, {}), wide.optional)
        if on_nodes:
            cells = [msgspec.structs.replace(c, room=c.free) for c in cells if c.free and not c.tier]
        if assign.founds(wide, self._ledger):
            cells = self._with_company(number, cells)
        dealt = assign.deal(wide, cells, whole.remaining, self._ledger)
        return Dealing(whole, cells, dealt.counts, dealt.left)

    def repair(self, dealings: dict[int, Dealing]) -> None:
        """Deal those classes anew whose pods could not all be bound, with everybody else in place."""
        for _ in range(_MOST_ROUNDS):
            spoilt = [n for n, dealing in dealings.items() if self._spoilt(n, dealing)]
            if not spoilt:
                return
            for number in spoilt:
                dealing = dealings[number]
                if self._spoilt(number, dealing):
                    self._count(number, dealing, -1)
                    dealings[number] = self.deal(number, dealing.whole)

    def _spoilt(self, number: int, dealing: Dealing) -> bool:
        wide = self._classes[number].profile.wide
        return any(
            not assign.holds(wide, cell.values, dealing.cells, self._ledger)
            for cell, count in zip(dealing.cells, dealing.counts, strict=True)
            if count
        )

    def _count(self, number: int, dealing: Dealing, sign: int) -> None:
        wide = self._classes[number].profile.wide
        for cell, count in zip(dealing.cells, dealing.counts, strict=True):
            if count:
                self._ledger.record(wide, cell.values, sign * count)

    def _with_company(self, number: int, cells: list[assign.Cell]) -> list[assign.Cell]:
        """Note, for each cell, how many pods that must follow this class could not go there."""
        wide = self._classes[number].profile.wide
        missing = [0] * len(cells)
        for i, follower in _followers(self._classes, number):
            keys = tuple(k for k in wide.keys if k in follower.profile.wide.keys)
            cells_there = self._finder.cells(self._ask(i), keys, {}, follower.profile.wide.optional)
            reach = {c.values for c in cells_there}
            for position, cell in enumerate(cells):
                here = tuple(v for k, v in zip(wide.keys, cell.values, strict=True) if k in keys)
                if here not in reach:
                    missing[position] += follower.count
        return [msgspec.structs.replace(c, company=m) for c, m in zip(cells, missing, strict=True)]


def _followers(classes: Sequence[PodClass], number: int) -> Iterable[tuple[int, PodClass]]:
    """Yield the classes that must be near pods of class `number`."""
    selected = set(classes[number].profile.wide.selected)
    for i, other in enumerate(classes):
        needs = {a.group for a in other.profile.wide.affinities if not a.weight}
        if i != number and other.refusal is None and needs & selected:
            yield i, other
