"""Watching a session: a screen that follows it on a terminal, lines everywhere else."""

import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from karpenter.base.clock import Clock
from karpenter.cli.up.session import Session
from karpenter.cli.up.view import live_view, progress_line
from karpenter.cli.up.words import Narrator

_REFRESH_SECONDS = 0.5
_SHARE = 0.05
"""At most this share of the time goes into looking, however much there is to see."""
_KEPT = 20


class Watcher:
    """Shows what the operator decides and what becomes of it."""

    def __init__(self, console: Console, clock: Clock, *, plain: bool) -> None:
        self._console = console
        self._clock = clock
        self._plain = plain
        self._session: Session | None = None
        self._narrator = Narrator(self._price)
        self._early: list[str] = []
        self.decisions: deque[str] = deque(maxlen=_KEPT)
        """Sentences with their time of day, the last one last."""

    def take(self, line: str) -> None:
        """Take a line of the operator's log (JSON): tell it, and keep it as the log of the operator's pod."""
        if self._session is not None:
            self._session.log(line)
        else:
            self._early.append(line)
        with suppress(json.JSONDecodeError):
            record = json.loads(line)
            sentence = self._narrator.tell(record)
            if sentence:
                self.decisions.append(f"{str(record.get('time', ''))[11:19]} {sentence}")
                if self._plain:
                    self._console.print(f"  {sentence}")

    def say(self, line: str) -> None:
        """Print a line; it stays above the live view."""
        self._console.print(line)

    def open(self, session: Session) -> None:
        """Watch `session` from now on; what was logged before goes into its log."""
        self._session = session
        for line in self._early:
            session.log(line)
        self._early.clear()

    async def run(self, session: Session, where: Sequence[str]) -> None:
        """Show `session` until cancelled; `where` tells how to reach it."""
        if self._plain:
            await self._print_changes(session)
        else:
            await self._show(session, where)

    async def _show(self, session: Session, where: Sequence[str]) -> None:
        seen: object = None
        with Live(console=self._console, auto_refresh=False) as live:
            while True:
                started = self._clock.monotonic()
                await session.refresh_prices()
                picture, size = session.picture(), self._console.size
                now = (picture, size, tuple(self.decisions))
                if now != seen:
                    seen = now
                    screen = live_view(picture, self.decisions, where, width=size.width, height=size.height)
                    live.update(screen, refresh=True)
                await self._pause(started)

    async def _print_changes(self, session: Session) -> None:
        last = ""
        while True:
            started = self._clock.monotonic()
            await session.refresh_prices()
            line = progress_line(session.picture())
            if line != last:
                self._console.print(line)
                last = line
            await self._pause(started)

    async def _pause(self, started: float) -> None:
        took = self._clock.monotonic() - started
        await self._clock.sleep(max(_REFRESH_SECONDS, took / _SHARE))

    def _price(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        return self._session.prices.offer(instance_type, zone, capacity_type) if self._session else None
