"""A queue of keys to reconcile: each at most once in it, never twice at work at a time.

The rules are client-go's: a key added while it waits is one key; a key added while it is being worked on
comes again when that work is done; a key may be added for later.
"""

import asyncio
from collections import deque

from karpenter.base.clock import Clock


class WorkQueue:
    """Keys in first-come order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()
        self._working: set[str] = set()
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
            self._waiting.add(key)
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
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """Tell that the work on `key` has ended; it comes again if it was added meanwhile."""
        self._working.discard(key)
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
