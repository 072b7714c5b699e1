"""The second look: what was decided fifteen seconds ago is held against the cluster as it is now."""

import structlog

from karpenter.controllers.context import Context
from karpenter.controllers.disruption.asking import Desk
from karpenter.controllers.disruption.survey import Survey
from karpenter.disruption.command import Command
from karpenter.disruption.validation import Invalid

log = structlog.get_logger()

DROPPED = "a disruption does not hold on second look"


class SecondLook:
    """Tells what still holds of commands."""

    def __init__(self, context: Context, survey: Survey, desk: Desk) -> None:
        self._context = context
        self._survey = survey
        self._desk = desk
        self._failed = context.metrics.counter(
            "karpenter_voluntary_disruption_failed_validations_total",
            "Nodes dropped on second look.",
            ["consolidation_type"],
        )

    async def __call__(self, command: Command, going: frozenset[str]) -> Command | None:
        """Return what still holds of `command`: all of it, fewer empty nodes, or nothing.

        `going` are provider ids of nodes that others take before.
        """
        view = await self._survey.look(underway=going)
        validity = await self._desk.validate(command, view)
        if validity.failed:
            self._failed.labels(command.consolidation_type).inc(validity.failed)
        for invalid in validity.invalid:
            log.debug(DROPPED, command=str(command), nodes=invalid.nodes, why=invalid.message)
            if command.reason == "Underutilized":
                self._tell(command, invalid)
        return validity.command

    def _tell(self, command: Command, invalid: Invalid) -> None:
        for candidate in command.candidates:
            what = command.of_node(candidate.node.name)
            text = f"{what}, reason: {invalid.reason} (savings: ${command.savings:.2f})"
            for obj in (candidate.node.node, candidate.node.claim):
                if obj is not None:
                    self._context.recorder.publish(
                        obj,
                        "Normal",
                        "ConsolidationRejected",
                        f"Consolidation rejected: {text}",
                        dedupe=(obj.metadata.uid, what, invalid.reason),
                    )
