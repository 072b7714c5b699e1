"""Time, handed in rather than read.

Nothing in this project reads the wall clock or sleeps except through a `Clock`; that is what lets the
whole operator run under virtual time (see `karpenter.base.virtualtime`), twice the same. This module and
`karpenter.base.virtualtime` are the only ones that may touch `time` and `asyncio.sleep`; a test greps the
tree for it.

Times are floats: seconds since the Unix epoch, UTC. `format_time` and `parse_time` convert to and from the
RFC 3339 text of the Kubernetes API.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


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


def format_time(seconds: float) -> str:
    """Render epoch `seconds` as Kubernetes' metav1.Time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Render epoch `seconds` as Kubernetes' metav1.MicroTime (Leases, events.k8s.io)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Return the epoch seconds of RFC 3339 `text`.

    Raises:
        ValueError: when `text` is not RFC 3339 with an offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset (want RFC 3339, e.g. 2026-01-31T12:00:00Z)")
    return moment.timestamp()
