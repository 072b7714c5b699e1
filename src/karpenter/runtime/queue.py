"""A queue of keys to reconcile: each at most once in it, never twice at work at a time.

The rules are client-go's: a key added while it waits is one key; a key added while it is being worked on
comes again when that work is done; a key may be added for later.
"""

import asyncio
from collections import deque

from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics

_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)  # client-go's


class WorkQueueMeters:
    """client-go's metrics of a work queue, by its names."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.depth = metrics.gauge("workqueue_depth", "Keys waiting.", ["name"]).labels(name)
        self.adds = metrics.counter("workqueue_adds_total", "Keys queued.", ["name"]).labels(name)
        self.waited = metrics.histogram(
            "workqueue_queue_duration_seconds", "Time a key waited.", ["name"], buckets=_BUCKETS
        ).labels(name)
        self.worked = metrics.histogram(
            "workqueue_work_duration_seconds", "Time the work on a key took.", ["name"], buckets=_BUCKETS
        ).labels(name)


class WorkQueue:
    """Keys in first-come order."""

    def __init__(self, clock: Clock, meters: WorkQueueMeters | None = None) -> None:
        self._clock = clock
        self._meters = meters
        if meters:
            meters.depth.set_function(lambda: float(len(self._ready)))
        self._ready: deque[str] = deque()
        self._waiting: dict[str, float] = {}  # since when
        self._working: dict[str, float] = {}
        self._again: set[str] = set()
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._wakers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: str, after: float = 0.0) -> None:
        """Queue `key` now, or in `after` seconds; the earlier of two wishes counts."""
        if after > 0:
            self._add_later(key, after)
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer[1].cancel()
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = self._clock.monotonic()
            if self._meters:
                self._meters.adds.inc()
            self._ready.append(key)
            self._wake()

    async def get(self) -> str:
        """Wait for a key and take it; give it back with `done`."""
        while not self._ready:
            waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wakers.append(waker)
            try:
                await waker
            except asyncio.CancelledError:
                if waker.done() and not waker.cancelled():
                    self._wake()  # it was our turn: pass it on
                raise
        key = self._ready.popleft()
        since, now = self._waiting.pop(key), self._clock.monotonic()
        self._working[key] = now
        if self._meters:
            self._meters.waited.observe(now - since)
        return key

    def done(self, key: str) -> None:
        """Tell that the work on `key` has ended; it comes again if it was added meanwhile."""
        since = self._working.pop(key)
        if self._meters:
            self._meters.worked.observe(self._clock.monotonic() - since)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _add_later(self, key: str, after: float) -> None:
        due = self._clock.monotonic() + after
        known = self._timers.get(key)
        if known is not None:
            if known[0] <= due:
                return
            known[1].cancel()
        handle = asyncio.get_running_loop().call_later(after, self._due, key)
        self._timers[key] = (due, handle)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _wake(self) -> None:
        while self._wakers:
            waker = self._wakers.popleft()
            if not waker.done():
                waker.set_result(None)
                return
