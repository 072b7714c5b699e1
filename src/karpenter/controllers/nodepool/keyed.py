"""A controller over managed NodePools: what all of them share."""

from collections.abc import Awaitable, Callable

from karpenter.apis.karpenter import NodePool
from karpenter.apis.meta import Condition
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result


def pool_controller(
    context: Context,
    name: str,
    reconcile: Callable[[NodePool], Awaitable[Result]],
    *,
    follow_classes: bool = False,
) -> Controller:
    """Return a controller that calls `reconcile` with each managed pool as it is now.

    With `follow_classes`, changes of node classes are changes of the pools that use them.
    """
    pools = context.cache.informer(NodePool)

    async def by_name(key: str) -> Result:
        pool = pools.get(key)
        if pool is None or not context.cluster.manages(pool.spec.template.spec.node_class_ref):
            return Result()
        return await reconcile(pool)

    controller = Controller(
        name, by_name, clock=context.clock, rng=context.rng, metrics=context.metrics, concurrency=10
    )
    controller.watch(pools, lambda change: [change.object.name])
    if follow_classes:
        for kind in context.provider.node_classes:
            controller.watch(
                context.cache.informer(kind),
                lambda change: [
                    pool.name
                    for pool in pools.items()
                    if pool.spec.template.spec.node_class_ref.name == change.object.name
                ],
            )
    return controller


async def write_conditions(context: Context, before: NodePool, after: list[Condition]) -> None:
    """Write the conditions of a pool if they changed; a conflict means: look again."""
    if after == before.status.conditions:
        return
    try:
        await context.client.patch(
            NodePool,
            before.name,
            merge(
                {"status": {"conditions": conditions.document(after)}},
                resource_version=before.metadata.resource_version,
            ),
            subresource="status",
        )
    except NotFound:
        return
