"""Waiting a little for more: pods rarely come alone, and one plan for many is cheaper than many plans."""

import asyncio
from collections.abc import Callable

LULL = 0.5
"""Share of the idle time after which it is likely that nothing more comes."""


class Batcher:
    """Collects triggers into windows.

    A window opens with the first trigger and closes when nothing new has come for `idle_seconds`, or after
    `max_seconds`. The same element again does not prolong it.
    """

    def __init__(self, *, idle_seconds: float, max_seconds: float) -> None:
        self._idle = idle_seconds
        self._max = max_seconds
        self._seen: set[str] = set()
        self._news = asyncio.Event()

    def trigger(self, element: str) -> None:
        """Note that `element` (a uid) wants a pass; ignored if this window has it already."""
        if element not in self._seen:
            self._seen.add(element)
            self._news.set()

    async def wait(self, on_lull: Callable[[], None] = lambda: None) -> None:
        """Return when a window has closed; what comes later belongs to the next one.

        `on_lull` is called whenever nothing has come for half of the idle time, and it is not over yet.
        """
        await self._news.wait()
        loop = asyncio.get_running_loop()
        closes = loop.time() + self._max
        while True:
            self._news.clear()
            left, pause = max(0.0, min(self._idle, closes - loop.time())), self._idle * LULL
            if left > pause:
                if await self._more_within(pause):
                    continue
                on_lull()
                left -= pause
            if not await self._more_within(left):
                break
        self._seen.clear()
        self._news.clear()

    async def _more_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True
