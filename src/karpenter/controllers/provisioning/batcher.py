"""Waiting a little for more: pods rarely come alone, and one plan for many is cheaper than many plans."""

import asyncio


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

    async def wait(self) -> None:
        """Return when a window has closed; what comes later belongs to the next one."""
        await self._news.wait()
        loop = asyncio.get_running_loop()
        closes = loop.time() + self._max
        while True:
            self._news.clear()
            left = min(self._idle, closes - loop.time())
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._news.wait()
            except TimeoutError:
                break
        self._seen.clear()
        self._news.clear()
