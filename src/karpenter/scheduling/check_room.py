"""What types have left for pods, as one table: most types of a claim are cleared by one comparison.

Those that are not are looked at one by one, by whoever asks.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from karpenter.base.quantity import Resources
from karpenter.model.instancetype import InstanceType


class Room:
    """The types of one pool, as far as they were asked for."""

    def __init__(self, types: Mapping[str, InstanceType]) -> None:
        """Know the names of the resources there are on `types`, by name."""
        resources = sorted({resource for kind in types.values() for resource in kind.allocatable})
        self._types = types
        self._columns = {resource: column for column, resource in enumerate(resources)}
        self._rows: dict[str, int] = {}
        self._left = np.zeros((0, len(resources)), dtype=np.int64)

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Return those of the types `names` that have to be added before they can be asked for."""
        return [name for name in names if name not in self._rows]

    def add(self, overheads: Mapping[str, Resources]) -> None:
        """Add types, each with what daemons take of it."""
        rows = [self._row(self._types[name], overhead) for name, overhead in overheads.items()]
        self._rows.update((name, len(self._left) + at) for at, name in enumerate(overheads))
        self._left = np.concatenate([self._left, np.array(rows, dtype=np.int64)])

    def _row(self, kind: InstanceType, overhead: Resources) -> list[int]:
        has = kind.allocatable
        odd = kind.has_overrides or any(n not in self._columns for n in overhead) or min(has.values()) < 0
        return [-1 if odd else has.get(name, 0) - overhead.get(name, 0) for name in self._columns]

    def doubtful(self, names: Sequence[str], asked: Resources) -> list[str]:
        """Return those of the types `names`, all of them added, that may not hold what is `asked`."""
        if any(resource not in self._columns for resource in asked):
            return list(names)
        wanted = np.zeros(len(self._columns), dtype=np.int64)
        for resource, amount in asked.items():
            wanted[self._columns[resource]] = amount
        short = (self._left[[self._rows[name] for name in names]] < wanted).any(axis=1)
        return [names[at] for at in np.flatnonzero(short).tolist()]
