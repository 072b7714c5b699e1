"""Room under `limits.nodes` that is spoken for while its NodeClaims are being created.

Several controllers may add nodes to one static pool at the same time: the one that keeps its number, and
whoever replaces one of its nodes. Each asks here first, and gives back when its claims count by themselves.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Grants:
    """Nodes granted and not yet counted, by pool."""

    def __init__(self) -> None:
        self._granted: dict[str, int] = {}

    def granted(self, pool: str) -> int:
        """Return how many nodes of `pool` are granted now."""
        return self._granted.get(pool, 0)

    @contextmanager
    def grant(self, pool: str, *, limit: int | None, present: int, wanted: int) -> Iterator[int]:
        """Grant up to `wanted` nodes for the length of the block, and tell how many.

        Args:
            limit: the pool's `limits.nodes`; None when there is none.
            present: all of its claims, those on their way out included.
            wanted: how many would be created.
        """
        room = wanted if limit is None else limit - present - self.granted(pool)
        count = max(0, min(wanted, room))
        self._granted[pool] = self.granted(pool) + count
        try:
            yield count
        finally:
            left = self.granted(pool) - count
            if left:
                self._granted[pool] = left
            else:
                self._granted.pop(pool, None)
