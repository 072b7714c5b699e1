"""How long to wait before trying again."""

from karpenter.base.randomness import Random


class Backoff:
    """Exponential pauses with jitter, remembered per key.

    The n-th failure in a row waits between half and the whole of `first * 2**(n-1)` seconds, at most `last`:
    enough jitter that a crowd spreads, never so much that a pause becomes nothing.
    """

    def __init__(self, first: float, last: float) -> None:
        self.first = first
        self.last = last
        self._failures: dict[str, int] = {}

    def fresh(self) -> "Backoff":
        """Return one with the same figures and no memory."""
        return Backoff(self.first, self.last)

    def next(self, key: str, rng: Random) -> float:
        """Note a failure of `key` and return the seconds to wait."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        ceiling = min(self.last, self.first * 2.0 ** min(failures - 1, 60))
        return ceiling * (0.5 + rng.random() / 2)

    def forget(self, key: str) -> None:
        """Note a success of `key`."""
        self._failures.pop(key, None)
