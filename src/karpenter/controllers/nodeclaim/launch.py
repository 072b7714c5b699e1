"""Getting an instance for a claim; once, whatever happens to the answer."""

import msgspec
import structlog

from karpenter.apis.conditions import is_true, is_unknown
from karpenter.apis.karpenter import NodeClaim
from karpenter.cloudprovider import CreateError, InsufficientCapacity, NodeClassNotReady, UnevaluatedNodePool
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.controllers.nodeclaim.step import Step, StepError
from karpenter.runtime import Requeue

log = structlog.get_logger()

NO_CAPACITY = "failed launching nodeclaim: insufficient capacity"
CLASS_NOT_READY = "failed launching nodeclaim: node class not ready"

_MESSAGE_LIMIT = 300


class Launch:
    """The first step."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._launched: dict[str, NodeClaim] = {}
        """What the cloud gave, by claim uid, until the claim says so itself: a lost status patch must not
        launch again."""
        self._uids: dict[str, str] = {}

    def launched(self, claim: NodeClaim) -> NodeClaim | None:
        """Return the instance of a claim whose status does not tell of it yet."""
        return self._launched.get(claim.metadata.uid)

    def forget(self, name: str) -> None:
        """Drop what is remembered of a claim that is gone."""
        self._launched.pop(self._uids.pop(name, ""), None)

    async def run(self, claim: NodeClaim) -> Step:
        """Launch unless that is decided. Raises what should be tried again."""
        now = self._context.clock.now()
        if not is_unknown(claim.status.conditions, "Launched"):
            if is_true(claim.status.conditions, "Launched"):
                self.forget(claim.name)
            return Step(conditions.refreshed(claim, "Launched", now=now))
        instance = self.launched(claim)
        if instance is None:
            try:
                instance = await self._context.provider.create(claim)
            except InsufficientCapacity as error:
                self._tell(claim, "InsufficientCapacityError", error)
                log.warning(NO_CAPACITY, **facts(self._context, claim), error=str(error))
                await delete_claim(self._context, claim, "insufficient_capacity")
                return Step(claim)
            except NodeClassNotReady as error:
                self._tell(claim, "NodeClassNotReady", error)
                log.warning(CLASS_NOT_READY, **facts(self._context, claim), error=str(error))
                await delete_claim(self._context, claim, "nodeclass_not_ready")
                return Step(claim)
            except UnevaluatedNodePool as error:
                raise Requeue from error
            except CreateError as error:
                raise StepError(self._failed(claim, error.reason, error.message), error) from error
            except Exception as error:
                raise StepError(self._failed(claim, "LaunchFailed", str(error)), error) from error
            self._launched[claim.metadata.uid] = instance
            self._uids[claim.name] = claim.metadata.uid
        now = self._context.clock.now()
        return Step(conditions.with_condition(with_details(claim, instance), "Launched", "True", now=now))

    def _tell(self, claim: NodeClaim, reason: str, error: Exception) -> None:
        self._context.recorder.publish(
            claim,
            "Warning",
            reason,
            f"NodeClaim {claim.name} event: {shortened(str(error))}",
            dedupe=[claim.metadata.uid],
        )

    def _failed(self, claim: NodeClaim, reason: str, message: str) -> NodeClaim:
        now = self._context.clock.now()
        return conditions.with_condition(claim, "Launched", "Unknown", reason, shortened(message), now=now)


def with_details(claim: NodeClaim, instance: NodeClaim) -> NodeClaim:
    """Return `claim` with what the cloud tells of its instance.

    The claim's own labels win over the cloud's; the cloud's annotations win over the claim's.
    """
    metadata = msgspec.structs.replace(
        claim.metadata,
        labels={**instance.metadata.labels, **claim.metadata.labels},
        annotations={**claim.metadata.annotations, **instance.metadata.annotations},
    )
    status = msgspec.structs.replace(
        claim.status,
        provider_id=instance.status.provider_id,
        image_id=instance.status.image_id,
        capacity=instance.status.capacity,
        allocatable=instance.status.allocatable,
    )
    return msgspec.structs.replace(claim, metadata=metadata, status=status)


def shortened(message: str) -> str:
    """Return at most 300 characters of `message`."""
    return message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + "..."
