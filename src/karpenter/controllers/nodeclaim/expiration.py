"""Ending claims that have reached the age their pool allows."""

import structlog

from karpenter.apis.karpenter import NodeClaim
from karpenter.base.duration import parse_duration
from karpenter.controllers.conditions import created_at
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.model.pods import is_reschedulable
from karpenter.runtime import Controller, Result, Singleton

log = structlog.get_logger()

EXPIRED = "deleting expired nodeclaim"


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""
    claims = context.cache.informer(NodeClaim)

    async def reconcile(name: str) -> Result:
        """Delete the claim once it is older than its `expireAfter`; budgets do not hold it back."""
        claim = claims.get(name)
        if (
            claim is None
            or context.cluster.is_ending(claim)
            or not context.cluster.manages(claim.spec.node_class_ref)
        ):
            return Result()
        if claim.spec.expire_after == "Never":
            return Result()
        left = created_at(claim) + parse_duration(claim.spec.expire_after) - context.clock.now()
        if left > 0:
            return Result(left)
        pods = context.cluster.pods_on(claim.status.node_name)
        if await delete_claim(context, claim, "expired", pods=sum(is_reschedulable(p) for p in pods)):
            log.info(EXPIRED, **facts(context, claim), expire_after=claim.spec.expire_after)
        return Result()

    controller = Controller(
        "nodeclaim.expiration",
        reconcile,
        clock=context.clock,
        rng=context.rng,
        metrics=context.metrics,
        concurrency=10,
    )
    controller.watch(claims, lambda change: [change.object.name])
    return [controller]
