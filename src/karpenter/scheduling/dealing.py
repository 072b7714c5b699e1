"""All classes dealt to domains, and dealt again where later ones spoiled it.

A class is dealt when only those before it have been counted. Others that its constraints select may come
later and tip the balance; who would then never be bound is taken out and dealt anew, against the counts as
they are in the end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from karpenter.scheduling import assign
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.cells import CellFinder
from karpenter.scheduling.classes import PodClass
from karpenter.scheduling.domains import DomainLedger, Wide
from karpenter.scheduling.topology import UNLIMITED

Values = tuple[str, ...]
_MOST_ROUNDS = 3


class Dealing(msgspec.Struct):
    """Where the pods of one class go."""

    whole: Ask
    """The class as it would be placed without regard to domains."""
    cells: Sequence[assign.Cell]
    counts: list[int]
    left: int


class _Batch(msgspec.Struct):
    """Classes that are dealt as if they were one."""

    members: dict[int, Ask]
    wide: Wide
    cells: list[assign.Cell]
    counts: list[int] = []
    left: int = 0

    def taken(self) -> list[tuple[assign.Cell, int]]:
        """Return the cells with pods in them, and how many."""
        return [(cell, n) for cell, n in zip(self.cells, self.counts, strict=True) if n]

    def shares(self) -> Iterator[tuple[int, Dealing]]:
        """Yield what each class has of it: each is in few cells, all together are where they were dealt."""
        counts = list(self.counts)
        for number, whole in self.members.items():
            own, wanted = [0] * len(counts), whole.remaining
            while wanted and any(counts):
                fullest = counts.index(max(counts))
                taken = min(wanted, counts[fullest])
                own[fullest] += taken
                counts[fullest] -= taken
                wanted -= taken
            yield number, Dealing(whole, self.cells, own, wanted)


class Dealer:
    """Deals the classes of one pass."""

    def __init__(
        self,
        classes: Sequence[PodClass],
        ledger: DomainLedger,
        finder: CellFinder,
        ask: Callable[[int], Ask],
        closed: dict[tuple[int, Values], int],
        most: Mapping[tuple[int, Values], int],
    ) -> None:
        """Deal `classes`; `ask` gives the ask for all pods of a class, `closed` cells with little room.

        Cells without any room are no domains for a spread; those that by `most` shall get few pods are.
        """
        self._classes = classes
        self._ledger = ledger
        self._finder = finder
        self._ask = ask
        self._most = most
        self._needs: list[tuple[int, set[int]]] | None = None
        """The classes that must be near others, and which groups these are of; None: not asked yet."""
        self._closed: dict[int, dict[Values, int]] = {}
        for (number, values), room in closed.items():
            self._closed.setdefault(number, {})[values] = room

    def deal(self, number: int, whole: Ask, *, on_nodes: bool = False) -> Dealing:
        """Deal what remains of a class and count it; only what nodes there can take with `on_nodes`."""
        cells = self._cells(number, whole)
        if on_nodes:
            cells = [msgspec.structs.replace(c, room=c.free) for c in cells if c.free and not c.tier]
        batch = _Batch({number: whole}, self._classes[number].profile.wide, cells)
        self._deal(batch)
        return Dealing(whole, batch.cells, batch.counts, batch.left)

    def deal_all(self, wholes: Mapping[int, Ask]) -> dict[int, Dealing]:
        """Deal several classes in their order, and those anew that could not be bound in the end."""
        batches = self._batches(wholes)
        for batch in batches:
            self._deal(batch)
        self._repair(batches)
        return {number: dealing for batch in batches for number, dealing in batch.shares()}

    def _batches(self, wholes: Mapping[int, Ask]) -> list[_Batch]:
        """Put those together to whom the same constraints apply, and whom every cell takes without end."""
        found: dict[object, _Batch] = {}
        endless: dict[int, tuple[list[assign.Cell], object]] = {}
        """Cells of classes, by identity, and what tells them apart; None if one of them is not endless."""
        for number, whole in wholes.items():
            wide, cells = self._classes[number].profile.wide, self._cells(number, whole)
            if id(cells) not in endless:
                alike = all(c.room == UNLIMITED and not c.free for c in cells)
                endless[id(cells)] = cells, tuple([(c.values, c.tier) for c in cells]) if alike else None
            mark = endless[id(cells)][1]
            key = number if mark is None else (wide, mark)
            batch = found.get(key)
            if batch is None:
                found[key] = _Batch({number: whole}, wide, cells)
            else:
                batch.members[number] = whole
        return list(found.values())

    def _cells(self, number: int, whole: Ask) -> list[assign.Cell]:
        wide = self._classes[number].profile.wide
        cells = self._finder.cells(whole, wide.keys, self._closed.get(number, {}), wide.optional)
        if not self._most:
            return cells
        rooms = [min(c.room, self._most.get((number, c.values), c.room)) for c in cells]
        return [msgspec.structs.replace(c, room=room) for c, room in zip(cells, rooms, strict=True)]

    def _deal(self, batch: _Batch) -> None:
        if assign.founds(batch.wide, self._ledger):
            batch.cells = self._with_company(min(batch.members), batch.cells)
        total = sum(whole.remaining for whole in batch.members.values())
        dealt = assign.deal(batch.wide, batch.cells, total, self._ledger)
        batch.counts, batch.left = dealt.counts, dealt.left

    def _repair(self, batches: Sequence[_Batch]) -> None:
        """Deal anew whose pods could not all be bound, with everybody else in place."""
        for _ in range(_MOST_ROUNDS):
            spoilt = [batch for batch in batches if self._spoilt(batch)]
            if not spoilt:
                return
            for batch in spoilt:
                if self._spoilt(batch):
                    for cell, count in batch.taken():
                        self._ledger.record(batch.wide, cell.values, -count)
                    self._deal(batch)

    def _spoilt(self, batch: _Batch) -> bool:
        taken = [cell for cell, _ in batch.taken()]
        return not assign.holds(batch.wide, taken, batch.cells, self._ledger)

    def _with_company(self, number: int, cells: list[assign.Cell]) -> list[assign.Cell]:
        """Note, for each cell, how many pods that must follow this class could not go there."""
        wide = self._classes[number].profile.wide
        missing = [0] * len(cells)
        for i, follower in self._followers(number):
            keys = tuple(k for k in wide.keys if k in follower.profile.wide.keys)
            cells_there = self._finder.cells(self._ask(i), keys, {}, follower.profile.wide.optional)
            reach = {c.values for c in cells_there}
            for position, cell in enumerate(cells):
                here = tuple(v for k, v in zip(wide.keys, cell.values, strict=True) if k in keys)
                if here not in reach:
                    missing[position] += follower.count
        return [msgspec.structs.replace(c, company=m) for c, m in zip(cells, missing, strict=True)]

    def _followers(self, number: int) -> Iterable[tuple[int, PodClass]]:
        """Yield the classes that must be near pods of class `number`."""
        if self._needs is None:
            wide = [(i, c.profile.wide) for i, c in enumerate(self._classes) if c.refusal is None]
            needs = [(i, {a.group for a in w.affinities if not a.weight}) for i, w in wide if w.affinities]
            self._needs = needs
        selected = set(self._classes[number].profile.wide.selected)
        for i, groups in self._needs:
            if i != number and groups & selected:
                yield i, self._classes[i]
