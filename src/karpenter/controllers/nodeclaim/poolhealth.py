"""What a claim's success or failure to become a node says about its pool."""

from typing import Literal

from karpenter.apis.conditions import get
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.patch import merge

CONDITION = "NodeRegistrationHealthy"


_ATTEMPTS = 4


async def record_success(context: Context, claim: NodeClaim) -> None:
    """Note that a node of the claim's pool registered."""
    pool = _pool_of(context, claim)
    if pool is None:
        return
    health = context.cluster.pool_health
    health.record(pool.metadata.uid, True, context.clock.now())
    if health.verdict(pool.metadata.uid) is True:
        await _write(context, pool, "True", CONDITION, "")


async def record_failure(context: Context, claim: NodeClaim, reason: str, message: str) -> None:
    """Note that a node of the claim's pool did not come."""
    pool = _pool_of(context, claim)
    if pool is None:
        return
    health = context.cluster.pool_health
    health.record(pool.metadata.uid, False, context.clock.now())
    if health.verdict(pool.metadata.uid) is False:
        await _write(context, pool, "False", reason, message)


async def _write(
    context: Context, pool: NodePool, status: Literal["True", "False"], reason: str, message: str
) -> None:
    """Write the condition, unless it is so already.

    Claims of a pool register together: of their writes to the one pool all but one conflict, and each of the
    others looks again whether there is anything left to say.
    """
    for attempt in range(_ATTEMPTS):
        present = get(pool.status.conditions, CONDITION)
        if present is not None and present.status == status:
            return
        now = context.clock.now()
        wanted = conditions.with_condition(pool, CONDITION, status, reason, message, now=now)
        document = {"status": {"conditions": conditions.document(wanted.status.conditions)}}
        patch = merge(document, resource_version=pool.metadata.resource_version)
        try:
            await context.client.patch(NodePool, pool.name, patch, subresource="status")
            return
        except NotFound:
            return
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
            pool = await context.client.get(NodePool, pool.name)


def _pool_of(context: Context, claim: NodeClaim) -> NodePool | None:
    """Return the pool that owns `claim`, if it does and is still the same one."""
    for owner in claim.metadata.owner_references:
        if owner.kind == NodePool.resource.kind:
            pool = context.cluster.pool(owner.name)
            if pool is not None and pool.metadata.uid == owner.uid:
                return pool
    return None
