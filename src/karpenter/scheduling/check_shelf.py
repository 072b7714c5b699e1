"""What a pool sells, as a table: most claims, each with hundreds of types, are cleared by one comparison.

Types that can run out, or cost more the more are bought, are left out of it: whoever asks looks at them, and
at whatever else is not cleared, one by one.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from karpenter.apis import labels as known
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirement, Requirements

Rows = npt.NDArray[np.int64]
Prices = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Shelf:
    """The types of one pool and their offerings."""

    def __init__(
        self,
        types: Mapping[str, InstanceType],
        well_known: frozenset[str],
        interruption_cost: float,
        *,
        reserved: bool,
    ) -> None:
        """Lay out `types`, by name; with `reserved`, reserved capacity may be bought."""
        self._types = types
        self._well_known = well_known
        self._row_of = {name: row for row, name in enumerate(types)}
        kinds: dict[Requirements, int] = {}
        offered: list[tuple[int, int, float, float]] = []
        odd: list[int] = []
        for row, kind in enumerate(types.values()):
            for o in kind.offerings:
                if o.stock is not None or o.steps:
                    odd.append(row)
                elif o.available:
                    offered.append((row, kinds.setdefault(o.requirements, len(kinds)), o.price, o.hazard))
        self._kinds = list(kinds)
        """What offerings require: types have most in common."""
        self._buyable = [
            reserved or k.single_value(known.CAPACITY_TYPE) != known.CAPACITY_RESERVED for k in kinds
        ]
        self._row: Rows = np.array([row for row, _, _, _ in offered], dtype=np.int64)
        """By offering: the row of its type."""
        self._kind: Rows = np.array([kind for _, kind, _, _ in offered], dtype=np.int64)
        self._usd: Prices = np.array([usd for _, _, usd, _ in offered], dtype=np.float64)
        self._worth: Prices = self._usd + interruption_cost * np.array([hazard for *_, hazard in offered])
        self._odd: Mask = np.zeros(len(types), dtype=np.bool_)
        self._odd[odd] = True
        self._said: dict[str, tuple[Rows, list[Requirement]]] = {}
        self._clashing: dict[Requirement, Mask] = {}
        self._cheapest: dict[tuple[bool, ...], tuple[Prices, Prices]] = {}

    def rows(self, names: Sequence[str]) -> Rows:
        """Return where types stand, by name; none may be unknown."""
        return np.array([self._row_of[name] for name in names], dtype=np.int64)

    def opened(self, requirements: Requirements) -> tuple[bool, ...]:
        """Return which kinds of offerings `requirements` leave open."""
        return tuple(
            buyable and not requirements.compatible(kind, self._well_known)
            for kind, buyable in zip(self._kinds, self._buyable, strict=True)
        )

    def cheapest(self, opened: tuple[bool, ...]) -> tuple[Prices, Prices]:
        """Return, by row, what the best of the `opened` offerings is chosen by and what is paid for it.

        USD per hour; infinite where a type cannot be had, no number where it is not for this table.
        """
        found = self._cheapest.get(opened)
        if found is None:
            worth, usd = (np.where(self._odd, np.nan, np.inf) for _ in range(2))
            offers = np.flatnonzero(np.array(opened, dtype=np.bool_)[self._kind] & ~self._odd[self._row])
            # Worst first: of what is written to one place the last stays.
            offers = offers[np.lexsort((self._usd[offers], self._worth[offers]))[::-1]]
            worth[self._row[offers]] = self._worth[offers]
            usd[self._row[offers]] = self._usd[offers]
            found = self._cheapest[opened] = worth, usd
        return found

    def clears(self, names: Sequence[str], requirements: Requirements, opened: tuple[bool, ...]) -> bool:
        """Tell whether types can surely be had, are what is required, and are listed by price and name.

        `opened` are the kinds of offerings that `requirements` leave open.
        """
        rows = self.rows(names)
        worth = self.cheapest(opened)[0][rows]
        if not np.isfinite(worth).all() or (worth[1:] < worth[:-1]).any():
            return False
        if any(names[at] > names[at + 1] for at in np.flatnonzero(worth[1:] == worth[:-1]).tolist()):
            return False
        if not requirements.get(known.INSTANCE_TYPE).values.issuperset(names):
            return False
        others = (r for r in requirements.values() if r.key != known.INSTANCE_TYPE)
        return not any(self._clashing_with(requirement)[rows].any() for requirement in others)

    def said(
        self, key: str, names: Sequence[str], opened: tuple[bool, ...]
    ) -> set[tuple[Requirement, Requirement]] | None:
        """Return what types and those of their offerings that are `opened` say of a label.

        None when some of the types are not for this table.
        """
        listed = np.zeros(len(self._types), dtype=np.bool_)
        listed[self.rows(names)] = True
        if (listed & self._odd).any():
            return None
        offers = listed[self._row] & np.array(opened, dtype=np.bool_)[self._kind]
        codes, by_types = self._said_by_types(key)
        pairs = np.unique(codes[self._row[offers]] * len(self._kinds) + self._kind[offers])
        split = (divmod(pair, len(self._kinds)) for pair in pairs.tolist())
        return {(by_types[code], self._kinds[kind].get(key)) for code, kind in split}

    def _clashing_with(self, requirement: Requirement) -> Mask:
        """Return, by row, whether the type cannot be what is required of one label."""
        found = self._clashing.get(requirement)
        if found is None:
            codes, by_types = self._said_by_types(requirement.key)
            clashes = [not requirement.has_intersection(said) for said in by_types]
            found = self._clashing[requirement] = np.array(clashes, dtype=np.bool_)[codes]
        return found

    def _said_by_types(self, key: str) -> tuple[Rows, list[Requirement]]:
        """Return the different things that types say of a label, and by row which of them."""
        found = self._said.get(key)
        if found is None:
            different: dict[Requirement, int] = {}
            codes = [
                different.setdefault(kind.requirements.get(key), len(different))
                for kind in self._types.values()
            ]
            found = self._said[key] = np.array(codes, dtype=np.int64), list(different)
        return found
