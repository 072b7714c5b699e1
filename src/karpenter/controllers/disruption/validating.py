"""The second look: what was decided fifteen seconds ago is held against the cluster as it is now."""

from collections.abc import Sequence

import structlog

from karpenter.controllers.context import Context
from karpenter.controllers.disruption.asking import Desk
from karpenter.controllers.disruption.survey import Survey
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Search

log = structlog.get_logger()

DROPPED = "a disruption does not hold on second look"


class SecondLook:
    """Tells what still holds of commands."""

    def __init__(self, context: Context, survey: Survey, desk: Desk, searches: Sequence[Search]) -> None:
        self._context = context
        self._survey = survey
        self._desk = desk
        self._searches = {search.method: search for search in searches}
        self._failed = context.metrics.counter(
            "karpenter_voluntary_disruption_failed_validations_total",
            "Nodes dropped on second look.",
            ["consolidation_type"],
        )

    async def __call__(self, command: Command) -> Command | None:
        """Return what still holds of `command`: all of it, fewer empty nodes, or nothing."""
        own = frozenset(candidate.node.provider_id for candidate in command.candidates)
        view = await self._survey.look(besides=own)
        mine = tuple(c for c in view.candidates if c.node.provider_id in own)
        answer = await self._desk.ask(self._searches[command.method], view._replace(candidates=mine))
        again = next(iter(answer.decision.commands), None)
        lost = len(own) - (len(again.candidates) if again else 0)
        if lost:
            self._failed.labels(command.consolidation_type).inc(lost)
            log.debug(DROPPED, command=str(command), nodes=lost)
        return again
