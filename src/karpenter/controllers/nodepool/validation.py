"""Whether what a pool says makes sense beyond what its schema can tell."""

from karpenter.apis.karpenter import NodePool
from karpenter.apis.nodepool_validation import validate_nodepool
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodepool.keyed import pool_controller, write_conditions
from karpenter.runtime import Controller, Result, Singleton

CONDITION = "ValidationSucceeded"
EVENT_SECONDS = 300.0


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""

    async def reconcile(pool: NodePool) -> Result:
        errors = validate_nodepool(pool, well_known=context.well_known_labels)
        now = context.clock.now()
        if errors:
            message = "; ".join(f"{error} ({error.fix})" if error.fix else str(error) for error in errors)
            context.recorder.publish(
                pool,
                "Warning",
                "NodePoolValidationFailed",
                message,
                dedupe=[pool.metadata.uid, message],
                dedupe_seconds=EVENT_SECONDS,
            )
            wanted = conditions.with_condition(
                pool, CONDITION, "False", "NodePoolValidationFailed", message, now=now
            )
        else:
            wanted = conditions.with_condition(pool, CONDITION, "True", now=now)
        await write_conditions(context, pool, wanted.status.conditions)
        return Result()

    return [pool_controller(context, "nodepool.validation", reconcile)]
