"""Time, handed in rather than read.

Nothing in this project reads the wall clock or sleeps except through a `Clock`; that is what lets the
whole operator run under virtual time (see `karpenter.base.virtualtime`), twice the same. This module and
`karpenter.base.virtualtime` are the only ones that may touch `time` and `asyncio.sleep`; a test greps the
tree for it.

Times are floats: seconds since the Unix epoch, UTC. `karpenter.base.timestamps` converts to and from the text
of the Kubernetes API, its functions are at hand here too.
"""

import asyncio
import time
from typing import Protocol

from karpenter.base.timestamps import format_micro_time, format_time, parse_time

__all__ = [
    "Clock",
    "LoopClock",
    "ManualClock",
    "SystemClock",
    "format_micro_time",
    "format_time",
    "parse_time",
]


class Clock(Protocol):
    """What a component may know and do about time."""

    def now(self) -> float:
        """Return the wall-clock time in seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` (at once, after one turn of the loop, when not positive)."""
        ...


class SystemClock:
    """The machine's own clock, for production."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class LoopClock:
    """A clock that follows the running event loop's own time, from a chosen epoch.

    On a `VirtualLoop` its time jumps from timer to timer, so that waiting costs nothing.
    """

    def __init__(self, epoch: float = 1_767_225_600.0) -> None:
        self._epoch = epoch  # 2026-01-01T00:00:00Z unless told

    def now(self) -> float:
        return self._epoch + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that stands still until it is told; for tests of pure or synchronous code."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`."""
        self._now += seconds
