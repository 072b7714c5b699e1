"""Static pools: as many nodes as `spec.replicas` says, whatever the demand (feature gate StaticCapacity)."""

from karpenter.apis.karpenter import NodePool
from karpenter.controllers.context import Context
from karpenter.controllers.nodepool.keyed import pool_controller
from karpenter.controllers.static.deprovisioning import Deprovisioning
from karpenter.controllers.static.provisioning import Provisioning
from karpenter.runtime import Controller, Result, Singleton

__all__ = ["GATE", "build"]

GATE = "StaticCapacity"

_TOLD_SECONDS = 3600.0


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controllers; while the gate is closed, one that tells static pools so."""
    if not context.settings.feature_gates.get(GATE, False):
        return [_closed(context)]
    return [Provisioning(context).controller(), Deprovisioning(context).controller()]


def _closed(context: Context) -> Controller:
    async def tell(pool: NodePool) -> Result:
        if pool.static:
            context.recorder.publish(
                pool,
                "Warning",
                "FeatureGateClosed",
                f"spec.replicas is set, but the feature gate {GATE} is closed: no nodes are created",
                dedupe=[pool.metadata.uid],
                dedupe_seconds=_TOLD_SECONDS,
            )
        return Result()

    return pool_controller(context, "static.closed", tell)
