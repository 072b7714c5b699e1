"""The loop of disruption: look at the cluster, ask one method after the other, hand on what they want.

Two loops share the queue: one asks the methods that answer at once, the other those that search. So drift
goes on while consolidation thinks, and nobody waits for anybody's second look.

A method that had nothing to do is asked again when something has changed: the cluster, who may go, or what
budgets leave. Searches that keep finding nothing take on less (`pacing`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from karpenter.controllers.context import Context
from karpenter.controllers.disruption.asking import Desk
from karpenter.controllers.disruption.leftovers import Leftovers
from karpenter.controllers.disruption.pacing import THOROUGH, Effort, Pace
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.controllers.disruption.reporting import Reporter
from karpenter.controllers.disruption.searches import waits
from karpenter.controllers.disruption.survey import Budgets, Survey, View
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Search
from karpenter.disruption.verdicts import Method
from karpenter.runtime import Result, Singleton

log = structlog.get_logger()

_POLL_SECONDS = 10.0
_UNSYNCED_SECONDS = 1.0


class Seen(NamedTuple):
    """What a method's answer depends on: with the same again, it would be the same again."""

    changed_at: float
    """When something last changed."""
    who: tuple[tuple[str, ...], tuple[str, ...]]
    """Who may go."""
    remaining: Mapping[str, int]
    """What budgets leave, by pool."""


class DisruptionLoop:
    """One pass after another, every ten seconds while there is nothing to do."""

    def __init__(
        self,
        context: Context,
        name: str,
        searches: Sequence[Search],
        *,
        survey: Survey,
        desk: Desk,
        queue: CommandQueue,
        reporter: Reporter,
        leftovers: Leftovers | None = None,
    ) -> None:
        """Prepare; the loop with `leftovers` clears them, and tells of what it sees."""
        self._context = context
        self._searches = searches
        self._survey = survey
        self._desk = desk
        self._queue = queue
        self._reporter = reporter
        self._leftovers = leftovers
        self._settled: dict[Method, Seen] = {}
        self._pace = Pace()
        self._told: Budgets | None = None
        self.controller = Singleton(
            name, self._pass, clock=context.clock, rng=context.rng, metrics=context.metrics
        )

    async def _pass(self) -> Result:
        if not self._context.cluster.synced():
            return Result(_UNSYNCED_SECONDS)
        if self._leftovers is not None:
            await self._leftovers.tidy()
        view = await self._survey.look()
        if self._leftovers is not None and view.budgets is not self._told:
            self._reporter.viewed(view)
            self._told = view.budgets  # the same object while nothing has changed
        remaining = view.remaining
        for search in self._searches:
            seen = Seen(view.unconsolidated_at, view.who, remaining[search.reason])
            if self._settled.get(search.method) == seen:
                continue
            effort = self._effort(search, view)
            if effort is not None and await self._ask(search, view, seen, effort):
                return Result(0.0)
        return Result(_POLL_SECONDS)

    def _effort(self, search: Search, view: View) -> Effort | None:
        if search.reason != "Underutilized":
            return THOROUGH  # answers at once
        return self._pace.effort(search.method, view.changed_at, self._context.clock.now())

    async def _ask(self, search: Search, view: View, seen: Seen, effort: Effort) -> bool:
        """Ask one method; tell whether anything was begun."""
        began = self._context.clock.monotonic()
        answer = await self._desk.ask(search, view, attempts=effort.attempts)
        decision, seconds = answer.decision, self._context.clock.monotonic() - began
        self._reporter.decided(search, decision, view, seconds=seconds, ran_out=answer.ran_out)
        self._settled.pop(search.method, None)
        if (decision.settled or decision.bound) and not decision.commands:
            self._settled[search.method] = seen
        if decision.commands:
            self._pace.found(search.method, self._context.clock.now())
        elif decision.eligible:
            self._pace.fruitless(search.method, effort, view.changed_at, self._context.clock.now())
        # From here nothing waits: what is accepted fits what is underway by now.
        accepted = False
        for command in decision.commands:
            if self._fits(command):
                self._queue.accept(command, wait=waits(search))
                accepted = True
        return accepted

    def _fits(self, command: Command) -> bool:
        """Tell whether a command's nodes may still go, and budgets allow all of them together."""
        now = self._survey.glance()
        free = {c.node.provider_id for c in (*now.candidates, *now.eventual)}
        if any(c.node.provider_id not in free for c in command.candidates):
            return False
        left = now.remaining[command.reason]
        for candidate in command.candidates:
            left[candidate.pool.name] = left.get(candidate.pool.name, 0) - 1
        return all(number >= 0 for number in left.values())
