"""Giving up on claims that don't become nodes in time."""

import structlog

from karpenter.apis.conditions import get, is_true
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.duration import format_duration
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.controllers.nodeclaim.launch import shortened
from karpenter.controllers.nodeclaim.poolhealth import record_failure
from karpenter.controllers.nodeclaim.step import Step
from karpenter.runtime import Result

log = structlog.get_logger()

TIMED_OUT = "terminating nodeclaim, timeout passed"

LAUNCH_SECONDS = 5 * 60.0
REGISTRATION_SECONDS = 15 * 60.0


class Liveness:
    """The fourth step."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self, claim: NodeClaim) -> Step:
        """Delete a claim that is not launched after 5 minutes, or not registered after 15."""
        if is_true(claim.status.conditions, "Registered"):
            return Step(claim)
        now = self._context.clock.now()
        if not is_true(claim.status.conditions, "Launched"):
            left = conditions.transition_time(claim, "Launched") + LAUNCH_SECONDS - now
            if left > 0:
                return Step(claim, Result(left))
            launched = get(claim.status.conditions, "Launched")
            reason, message = (launched.reason, launched.message) if launched else ("LaunchFailed", "")
            self._tell(claim, "LaunchTimeout", "launched", LAUNCH_SECONDS, reason, message)
            return await self._give_up(claim, "launch_timeout", reason, message)
        left = conditions.transition_time(claim, "Registered") + REGISTRATION_SECONDS - now
        if left > 0:
            return Step(claim, Result(left))
        registered = get(claim.status.conditions, "Registered")
        reason, message = (registered.reason, registered.message) if registered else ("NodeNotFound", "")
        self._tell(claim, "RegistrationTimeout", "registered", REGISTRATION_SECONDS, reason, message)
        return await self._give_up(
            claim, "registration_timeout", "RegistrationFailed", "Failed to register node"
        )

    def _tell(
        self, claim: NodeClaim, event: str, what: str, seconds: float, reason: str, message: str
    ) -> None:
        """Say on the claim, which is about to go, what it waited for in vain."""
        why = f"{reason}: {message}" if message else reason
        said = f"Not {what} within {format_duration(seconds)}, the NodeClaim is deleted ({shortened(why)})"
        self._context.recorder.publish(claim, "Warning", event, said, dedupe=[claim.metadata.uid])

    async def _give_up(self, claim: NodeClaim, why: str, reason: str, message: str) -> Step:
        if await delete_claim(self._context, claim, why):
            log.info(TIMED_OUT, **facts(self._context, claim), reason=why)
            await record_failure(self._context, claim, reason, message)
        return Step(claim)
