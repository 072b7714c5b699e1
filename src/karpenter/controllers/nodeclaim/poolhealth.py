"""What a claim's success or failure to become a node says about its pool."""

from karpenter.apis.conditions import is_false, is_true
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge

CONDITION = "NodeRegistrationHealthy"


async def record_success(context: Context, claim: NodeClaim) -> None:
    """Note that a node of the claim's pool registered."""
    pool = _pool_of(context, claim)
    if pool is None:
        return
    health = context.cluster.pool_health
    if health.would_be(pool.metadata.uid, True) is True and not is_true(pool.status.conditions, CONDITION):
        await write_condition(
            context, conditions.with_condition(pool, CONDITION, "True", now=context.clock.now())
        )
    health.record(pool.metadata.uid, True)


async def record_failure(context: Context, claim: NodeClaim, reason: str, message: str) -> None:
    """Note that a node of the claim's pool did not come."""
    pool = _pool_of(context, claim)
    if pool is None:
        return
    health = context.cluster.pool_health
    if health.would_be(pool.metadata.uid, False) is False and not is_false(pool.status.conditions, CONDITION):
        changed = conditions.with_condition(
            pool, CONDITION, "False", reason, message, now=context.clock.now()
        )
        await write_condition(context, changed)
    health.record(pool.metadata.uid, False)


async def write_condition(context: Context, pool: NodePool) -> None:
    """Write the conditions of `pool`, unless somebody else wrote since it was read."""
    document = {"status": {"conditions": conditions.document(pool.status.conditions)}}
    try:
        await context.client.patch(
            NodePool,
            pool.name,
            merge(document, resource_version=pool.metadata.resource_version),
            subresource="status",
        )
    except NotFound:
        return


def _pool_of(context: Context, claim: NodeClaim) -> NodePool | None:
    """Return the pool that owns `claim`, if it does and is still the same one."""
    for owner in claim.metadata.owner_references:
        if owner.kind == NodePool.resource.kind:
            pool = context.cluster.pool(owner.name)
            if pool is not None and pool.metadata.uid == owner.uid:
                return pool
    return None
