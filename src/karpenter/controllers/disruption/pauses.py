"""Consolidation whose replacements fail: after every failure its pool waits longer before it buys again.

A minute after the first one, then two, up to an hour; a success is the end of it. What only takes nodes away
goes on. Kept in memory: a new process may try once more.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from karpenter.base.clock import Clock
from karpenter.base.timestamps import format_time
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Objection
from karpenter.disruption.verdicts import Verdict

FIRST_SECONDS = 60.0
LONGEST_SECONDS = 3600.0


class Pause(NamedTuple):
    """What a pool waits for."""

    failures: int
    """In a row."""
    until: float
    """Epoch seconds."""
    why: str


class Pauses:
    """The pools that have trouble."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[str, Pause] = {}

    def failed(self, pools: Iterable[str], why: str) -> None:
        """Note that a replacement of these pools came to nothing."""
        for pool in pools:
            before = self._pauses.get(pool)
            failures = before.failures + 1 if before is not None else 1
            seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 10))
            self._pauses[pool] = Pause(failures, self._clock.now() + seconds, why)

    def succeeded(self, pools: Iterable[str]) -> None:
        """Note that replacements of these pools work."""
        for pool in pools:
            self._pauses.pop(pool, None)

    def objection(self) -> Objection:
        """Return what speaks against commands that buy from pools that wait now."""
        now = self._clock.now()
        held = {pool: pause for pool, pause in self._pauses.items() if pause.until > now}
        return partial(_objection, held)


def _objection(held: Mapping[str, Pause], command: Command) -> Verdict | None:
    if command.reason != "Underutilized":
        return None
    for claim in command.replacements:
        pause = held.get(claim.pool.name)
        if pause is not None:
            until = format_time(pause.until)
            return Verdict(
                node=command.candidates[0].name,
                method=command.method,
                code="halted",
                message=f"Left alone until {until}, the last replacement failed: {pause.why}",
                saving=command.savings,
                remedy=f"see what NodeClaims of nodepool/{claim.pool.name} waited for, or wait until {until}",
            )
    return None
