"""Taking nodes away from static pools until there are no more than `spec.replicas`."""

import asyncio

import structlog

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.controllers.nodepool.keyed import pool_controller
from karpenter.controllers.static.census import census
from karpenter.controllers.static.scaledown import surplus
from karpenter.kube.informer import Change
from karpenter.model.pods import is_reschedulable
from karpenter.runtime import Controller, Result

log = structlog.get_logger()

REMOVED = "deleting nodeclaim of static nodepool that has too many"
REASON = "scaled_down"

AGAIN_SECONDS = 60.0
UNSYNCED_SECONDS = 1.0


class Deprovisioning:
    """Keeps static pools from having too many nodes.

    Budgets of the pool do not hold it back: a user asked for fewer nodes. The nodes' end is as gentle as any:
    PodDisruptionBudgets and the termination grace period are kept to.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def controller(self) -> Controller:
        """Return the controller, watching pools and their claims."""
        controller = pool_controller(self._context, "static.deprovisioning", self._reconcile)

        def keys(change: Change[NodeClaim]) -> list[str]:
            pool = change.object.metadata.labels.get(known.NODEPOOL, "")
            return [pool] if change.type == "ADDED" and pool else []

        controller.watch(self._context.cache.informer(NodeClaim), keys)
        return controller

    async def _reconcile(self, pool: NodePool) -> Result:
        cluster, replicas = self._context.cluster, pool.spec.replicas
        if replicas is None or pool.deleting:
            return Result()
        if not cluster.synced():
            return Result(UNSYNCED_SECONDS)
        rows = {row.claim.name: row for row in cluster.nodes() if row.claim is not None}
        active = census(self._context, pool.name).active
        chosen = surplus(active, rows, len(active) - replicas, self._context.clock.now())
        ended = await asyncio.gather(*(self._end(claim) for claim in chosen), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome  # comes again with back-off; those that are deleted are not counted then
        return Result(AGAIN_SECONDS)

    async def _end(self, claim: NodeClaim) -> None:
        pods = self._context.cluster.pods_on(claim.status.node_name)
        if await delete_claim(self._context, claim, REASON, pods=sum(is_reschedulable(p) for p in pods)):
            log.info(
                REMOVED,
                NodePool=claim.metadata.labels.get(known.NODEPOOL, ""),
                NodeClaim=claim.name,
                Node=claim.status.node_name,
            )
