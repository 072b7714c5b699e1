"""What a pass is told to do otherwise than it would by itself."""

import msgspec

Values = tuple[str, ...]


class WhatIf(msgspec.Struct, frozen=True):
    """Changes to the way classes are placed; classes go by their number."""

    first: tuple[int, ...] = ()
    """Those that come before the others, in this order, as far as nobody has to wait for company."""
    last: tuple[int, ...] = ()
    """Those that come after the others."""
    cells: dict[tuple[int, Values], int] = {}
    """How many pods of a class the nodes of a domain may take."""
    nodes: dict[tuple[int, str], int] = {}
    """How many pods of a class a node that is there may take."""

    def turn(self, number: int) -> int:
        """Return when a class comes: the lower, the earlier."""
        if number in self.first:
            return self.first.index(number) - len(self.first)
        return 1 + self.last.index(number) if number in self.last else 0
