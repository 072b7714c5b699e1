"""Counting what each pool has, into its status."""

from karpenter.apis.annotations import PRICE_LIMIT, PRICE_USED, format_usd
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import format_resources, resources_of
from karpenter.controllers.context import Context
from karpenter.controllers.nodepool.keyed import pool_controller
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result, Singleton

PERIOD_SECONDS = 5.0
_UNSYNCED_SECONDS = 1.0
_ALWAYS = ("cpu", "memory", "pods", "ephemeral-storage", "nodes")


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""

    cost = context.metrics.gauge(
        "karpenter_nodepools_cost_total", "What a pool's machines cost, USD per hour.", ["nodepool"]
    )

    def forget(change: Change[NodePool]) -> None:
        if change.type == "DELETED":
            cost.remove(change.object.name)

    context.cache.informer(NodePool).subscribe(forget)

    async def reconcile(pool: NodePool) -> Result:
        if not context.cluster.synced():
            return Result(_UNSYNCED_SECONDS)
        cost.labels(pool.name).set(cost_of(context, pool))
        totals = {**dict.fromkeys(_ALWAYS, 0), **context.cluster.pool_resources(pool.name)}
        wanted = {**format_resources(totals), **money_of(context, pool)}
        before = pool.status.resources
        same = resources_of(before) == resources_of(wanted) and before.get(PRICE_USED) == wanted.get(
            PRICE_USED
        )
        if same and pool.status.nodes == totals["nodes"]:
            return Result(PERIOD_SECONDS)
        gone = {name: None for name in before if name not in wanted}
        status = {"resources": {**wanted, **gone}, "nodes": totals["nodes"]}
        try:
            await context.client.patch(NodePool, pool.name, merge({"status": status}), subresource="status")
        except NotFound:
            return Result()
        return Result(PERIOD_SECONDS)

    return [pool_controller(context, "nodepool.counter", reconcile)]


def money_of(context: Context, pool: NodePool) -> dict[str, str]:
    """Return what counts against limits on money, as a quantity of USD per hour; nothing without any."""
    limited = PRICE_LIMIT in pool.metadata.annotations or context.settings.cluster_price_limit is not None
    if not limited:
        return {}
    micro = context.cluster.price_commitments().get(pool.name, 0)
    return {PRICE_USED: format_usd(micro).removeprefix("$")}


def cost_of(context: Context, pool: NodePool) -> float:
    """Return what the launched machines of `pool` cost, USD per hour; unknown prices count as nothing."""
    claims = context.cluster.claims_of_pool(pool.name)
    return sum(context.cluster.price(claim) or 0.0 for claim in claims if claim.status.provider_id)
