"""Keeping the hash by which static drift is seen on pools, and on claims from before a new hash version."""

from karpenter.apis import labels as known
from karpenter.apis.conditions import get
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.nodepool_hash import nodepool_hash
from karpenter.controllers.context import Context
from karpenter.controllers.nodepool.keyed import pool_controller
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result, Singleton

_VERSION = known.NODEPOOL_HASH_VERSION_VALUE


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""

    async def reconcile(pool: NodePool) -> Result:
        value = nodepool_hash(pool)
        notes = pool.metadata.annotations
        if notes.get(known.NODEPOOL_HASH_VERSION) != _VERSION:
            for claim in context.cluster.claims_of_pool(pool.name):
                await _take_over(context, claim, value)
        wanted = {known.NODEPOOL_HASH: value, known.NODEPOOL_HASH_VERSION: _VERSION}
        if any(notes.get(key) != text for key, text in wanted.items()):
            try:
                await context.client.patch(NodePool, pool.name, merge({"metadata": {"annotations": wanted}}))
            except NotFound:
                return Result()
        return Result()

    return [pool_controller(context, "nodepool.hash", reconcile)]


async def _take_over(context: Context, claim: NodeClaim, value: str) -> None:
    """Give a claim the new version of the hash; one that has drifted keeps its hash, and stays drifted."""
    if claim.metadata.annotations.get(known.NODEPOOL_HASH_VERSION) == _VERSION:
        return
    wanted = {known.NODEPOOL_HASH_VERSION: _VERSION}
    if get(claim.status.conditions, "Drifted") is None:
        wanted[known.NODEPOOL_HASH] = value
    try:
        await context.client.patch(NodeClaim, claim.name, merge({"metadata": {"annotations": wanted}}))
    except NotFound:
        return
