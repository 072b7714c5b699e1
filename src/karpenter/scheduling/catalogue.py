"""Instance types and offerings as arrays, compiled once per catalogue.

A provider hands over the same tuple of instance types until something changes, so the tuple's identity is
what compiled catalogues are kept by. Evaluating a set of requirements is an AND of cached masks.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirement, Requirements
from karpenter.model.sizes import by_size, smallest
from karpenter.scheduling.stock import LOT, NO_LOT, Source, requirement_of, scarce_lots, sources

Mask = npt.NDArray[np.bool_]
Amounts = npt.NDArray[np.int64]
Prices = npt.NDArray[np.float64]

_KEPT_CATALOGUES = 64
_KEPT_MASKS = 4096


class Evaluation(NamedTuple):
    """What is left of a catalogue under some requirements."""

    matching: Mask
    """By type: its labels allow the requirements."""
    offered: Mask
    """By type: some available offering allows them."""
    price: Prices
    """By type: what its best available compatible offering is chosen by, USD per hour: its price and what
    interruptions are expected to cost. Infinite where it is of no use."""
    usd: Prices
    """By type: what that offering is paid with, USD per hour."""


class Catalogue:
    """A tuple of instance types, compiled. Arrays are by type, in the tuple's order.

    A type whose offerings override its size is there once for each size (`karpenter.model.sizes`).
    """

    def __init__(
        self, types: tuple[InstanceType, ...], reservation_label: str = "", *, one_size: bool = False
    ) -> None:
        """Compile `types`; reserved offerings carry their reservation's id under `reservation_label`.

        With `one_size` every type is there once, as small as the smallest of its offerings.
        """
        self.listed: Final = types
        self.types: Final = smallest(types) if one_size else by_size(types)
        types = self.types
        self.names: Final = tuple(t.name for t in types)
        self.names_of_rows: Final = np.array([*self.names, ""], dtype=object)[:-1]
        """The same, to be picked from by rows."""
        counts = Counter(self.names)
        self.twins: Final = tuple(i for i, name in enumerate(self.names) if counts[name] != 1)
        """The rows of types that are there in several sizes."""
        self.resources: Final = tuple(sorted({name for t in types for name in t.allocatable}))
        self.capacity_resources: Final = tuple(sorted({name for t in types for name in t.capacity}))
        self.allocatable: Final = _matrix([t.allocatable for t in types], self.resources)
        self.capacity: Final = _matrix([t.capacity for t in types], self.capacity_resources)
        self._labels = _index_labels(types)
        offerings = _rows(types, reservation_label)
        self.lots: Final = {s.lot: s.pin for _, _, s in offerings if s.lot != NO_LOT}
        """What claims that draw on a lot require, by lot; empty when nothing can run out."""
        self.scarce: Final = tuple(scarce_lots(types, reservation_label))
        """How much there is of every lot, as each offering has it."""
        kinds: dict[Requirements, int] = {}
        self._offering_kind = np.array(
            [
                kinds.setdefault(r.add(requirement_of(s.lot)) if self.lots else r, len(kinds))
                for _, r, s in offerings
            ],
            dtype=np.int64,
        )
        self._offering_kinds = list(kinds)
        self._offering_type = np.array([i for i, _, _ in offerings], dtype=np.int64)
        self._offering_usd = np.array([s.price for _, _, s in offerings], dtype=np.float64)
        self._offering_hazard = np.array([s.hazard for _, _, s in offerings], dtype=np.float64)
        self._offering_keys = frozenset(key for r in kinds for key in r)
        self._masks: dict[Requirement, Mask] = {}
        self._prices: dict[tuple[Requirements, frozenset[str], float], tuple[Prices, Prices]] = {}
        self._values: dict[str, Mask] = {}
        self._capacity_types: dict[Requirements, dict[str, Mask]] = {}
        """By what is required and capacity type: which types are sold so."""
        self._sold_as: Mask = np.zeros((len(types), len(kinds)), dtype=np.bool_)
        self._sold_as[self._offering_type, self._offering_kind] = True
        self.alphabetic: Final = np.argsort(np.argsort(self.names, kind="stable"), kind="stable")
        """The place of each type when they are ordered by name."""

    def __len__(self) -> int:
        return len(self.types)

    def values_of(self, key: str) -> tuple[str, ...]:
        """Return the values of a label that can be bought at present, sorted."""
        found = {value for kind in self._offering_kinds if key in kind for value in kind[key].permitted()}
        if not found:
            found = {v for t in self.types if key in t.requirements for v in t.requirements[key].permitted()}
        return tuple(sorted(found))

    def evaluate(
        self, requirements: Requirements, well_known: frozenset[str], interruption_cost: float = 0.0
    ) -> Evaluation:
        """Return which types can be bought under `requirements`, and for how much.

        Labels in `well_known` may be undefined in `requirements`: then an offering may have any value.
        `interruption_cost` is what one interruption of a node costs, in USD.
        """
        matching = np.ones(len(self.types), dtype=np.bool_)
        for requirement in requirements.values():
            if requirement.key in self._labels:
                matching &= self._mask(requirement)
        offered, usd = self._cheapest(requirements, well_known, interruption_cost)
        price = np.where(matching, offered, np.inf)
        return Evaluation(
            matching,
            np.isfinite(offered),
            price,
            price if usd is offered else np.where(matching, usd, np.inf),
        )

    def open_offerings(self, interruption_cost: float) -> tuple[Amounts, Prices, Prices]:
        """Return, of every available offering: type, what it is chosen by, what is paid; in a fixed order."""
        usd = self._offering_usd
        return self._offering_type, usd + self._offering_hazard * interruption_cost, usd

    def offering_lots(self) -> list[str]:
        """Return, of every available offering in the same order, the lot it is bought from, or NO_LOT."""
        lots = [kind.single_value(LOT) or NO_LOT for kind in self._offering_kinds]
        return [lots[kind] for kind in self._offering_kind.tolist()]

    def offerings_for(self, requirements: Requirements, well_known: frozenset[str]) -> Mask:
        """Return, by available offering, whether a node of it can be what `requirements` say."""
        matching = np.ones(len(self.types), dtype=np.bool_)
        for requirement in requirements.values():
            if requirement.key in self._labels:
                matching &= self._mask(requirement)
        allowed = np.array(
            [not requirements.compatible(kind, well_known) for kind in self._offering_kinds], dtype=np.bool_
        )
        found: Mask = matching[self._offering_type]
        return found & allowed[self._offering_kind] if len(self._offering_kinds) else found

    def capacity_types(self, types: Amounts, requirements: Requirements) -> tuple[str, ...]:
        """Return the capacity types, sorted, among the offerings of `types` that `requirements` allow."""
        relevant = Requirements({k: r for k, r in requirements.items() if k in self._offering_keys})
        known = self._capacity_types.get(relevant)
        if known is None:
            if len(self._capacity_types) >= _KEPT_MASKS:
                self._capacity_types.clear()
            known = self._capacity_types[relevant] = {}
            for number, kind in enumerate(self._offering_kinds):
                name = "" if kind.intersects(relevant) else kind.single_value(labels.CAPACITY_TYPE)
                if name:
                    known[name] = known.get(name, False) | self._sold_as[:, number]
        return tuple(sorted([name for name, sold in known.items() if sold[types].any()]))

    def sources(
        self, chosen: int, requirements: Requirements, well_known: frozenset[str], interruption_cost: float
    ) -> list[tuple[str, str]]:
        """Return where a node of type `chosen` could come from: (lot or NO_LOT, capacity type), best first.

        At the same price a lot comes before what is there without end.
        """
        found: dict[tuple[str, str], float] = {}
        for row in np.flatnonzero(self._offering_type == chosen).tolist():
            kind = self._offering_kinds[int(self._offering_kind[row])]
            if not requirements.compatible(kind, well_known):
                source = (kind.single_value(LOT) or NO_LOT, kind.single_value(labels.CAPACITY_TYPE))
                price = float(self._offering_usd[row] + self._offering_hazard[row] * interruption_cost)
                found[source] = min(price, found.get(source, price))
        return sorted(found, key=lambda source: (found[source], source[0] == NO_LOT, source))

    def distinct_values(self, key: str) -> Mask:
        """Return the values of `key` by type, as a matrix [type, value] over all values that types list."""
        known = self._values.get(key)
        if known is None:
            rows = [t.requirements.get(key).permitted() for t in self.types]
            column = {value: i for i, value in enumerate(sorted({v for row in rows for v in row}))}
            known = np.zeros((len(rows), len(column)), dtype=np.bool_)
            for i, row in enumerate(rows):
                for value in row:
                    known[i, column[value]] = True
            self._values[key] = known
        return known

    def _mask(self, requirement: Requirement) -> Mask:
        mask = self._masks.get(requirement)
        if mask is None:
            codes, kinds = self._labels[requirement.key]
            fits = np.array([k is None or requirement.has_intersection(k) for k in kinds], dtype=np.bool_)
            mask = fits[codes]
            if len(self._masks) >= _KEPT_MASKS:
                self._masks.clear()
            self._masks[requirement] = mask
        return mask

    def _cheapest(
        self, requirements: Requirements, well_known: frozenset[str], interruption_cost: float
    ) -> tuple[Prices, Prices]:
        """Return the best available offering by type that `requirements` allow (infinite: none).

        First what it is chosen by, then what is paid for it: the same array where interruptions cost nothing.
        """
        relevant = Requirements({k: r for k, r in requirements.items() if k in self._offering_keys})
        key = (relevant, well_known, interruption_cost)
        cached = self._prices.get(key)
        if cached is None:
            allowed = np.array(
                [not requirements.compatible(kind, well_known) for kind in self._offering_kinds],
                dtype=np.bool_,
            )
            usd = np.full(len(self.types), np.inf)
            rows = np.flatnonzero(allowed[self._offering_kind]) if len(allowed) else self._offering_kind
            types = self._offering_type[rows]
            paid = self._offering_usd[rows]
            if not interruption_cost:
                np.minimum.at(usd, types, paid)
                cached = usd, usd
            else:
                price = paid + self._offering_hazard[rows] * interruption_cost
                # Worst first: of equal indices the last one written stays.
                order = np.lexsort((paid, price))[::-1]
                chosen_by = usd.copy()
                chosen_by[types[order]] = price[order]
                usd[types[order]] = paid[order]
                cached = chosen_by, usd
            if len(self._prices) >= _KEPT_MASKS:
                self._prices.clear()
            self._prices[key] = cached
        return cached


def _rows(types: tuple[InstanceType, ...], reservation_label: str) -> list[tuple[int, Requirements, Source]]:
    """Return every way to buy a type at present: the type's number, what is required, how it is paid for."""
    return [
        (i, offering.requirements, source)
        for i, kind in enumerate(types)
        for offering in kind.offerings
        if offering.available
        for source in sources(kind, offering, reservation_label)
    ]


def _matrix(rows: Sequence[dict[str, int]], columns: Sequence[str]) -> Amounts:
    return np.array([[row.get(name, 0) for name in columns] for row in rows], dtype=np.int64).reshape(
        len(rows), len(columns)
    )


def _index_labels(types: tuple[InstanceType, ...]) -> dict[str, tuple[Amounts, list[Requirement | None]]]:
    """Return, by label key, a code per type and the distinct requirements behind the codes."""
    index: dict[str, tuple[Amounts, list[Requirement | None]]] = {}
    for key in sorted({key for t in types for key in t.requirements}):
        kinds: dict[Requirement | None, int] = {}
        codes = [
            kinds.setdefault(t.requirements[key] if key in t.requirements else None, len(kinds))  # noqa: SIM401
            for t in types
        ]
        index[key] = (np.array(codes, dtype=np.int64), list(kinds))
    return index


_compiled: dict[tuple[int, str, bool], Catalogue] = {}


def compiled(
    types: tuple[InstanceType, ...], reservation_label: str = "", *, one_size: bool = False
) -> Catalogue:
    """Return `types` compiled; the same tuple object is compiled once."""
    key = (id(types), reservation_label, one_size)
    catalogue = _compiled.get(key)
    if catalogue is None or catalogue.listed is not types:
        while len(_compiled) >= _KEPT_CATALOGUES:
            _compiled.pop(next(iter(_compiled)), None)  # another thread may have been faster
        catalogue = _compiled[key] = Catalogue(types, reservation_label, one_size=one_size)
    return catalogue
