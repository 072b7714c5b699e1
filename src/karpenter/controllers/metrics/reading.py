"""Gauges that are brought up to date when somebody reads them: between two scrapes they cost nothing."""

import asyncio
from collections.abc import Callable

from karpenter.controllers.context import Context
from karpenter.runtime import Result, Singleton


class OnRead(Singleton):
    """Fills gauges whenever metrics are read while we lead: another replica must not tell the same again."""

    def __init__(self, name: str, fill: Callable[[], None], context: Context) -> None:
        """`fill` must not wait."""
        super().__init__(name, self._never, clock=context.clock, rng=context.rng, metrics=context.metrics)
        self._fill = fill
        self._metrics = context.metrics

    async def run(self) -> None:
        """Fill until cancelled."""
        with self._metrics.filled_by(self._fill):
            await asyncio.Event().wait()

    async def _never(self) -> Result:
        return Result()
