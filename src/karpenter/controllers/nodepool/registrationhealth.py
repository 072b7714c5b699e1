"""Forgetting how a pool's machines did once the pool or its node class has changed."""

from karpenter.apis.conditions import get
from karpenter.apis.karpenter import NodePool
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.poolhealth import CONDITION
from karpenter.controllers.nodepool.keyed import pool_controller
from karpenter.controllers.nodepool.readiness import node_class_of
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result, Singleton


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""

    def forget(change: Change[NodePool]) -> None:
        if change.type == "DELETED":
            context.cluster.pool_health.forget(change.object.metadata.uid)

    context.cache.informer(NodePool).subscribe(forget)

    async def reconcile(pool: NodePool) -> Result:
        node_class = node_class_of(context, pool.spec.template.spec.node_class_ref)
        if node_class is None:
            return Result()
        health = context.cluster.pool_health
        uid = pool.metadata.uid
        condition = get(pool.status.conditions, CONDITION)
        if health.verdict(uid) is None and condition is not None and condition.status != "Unknown":
            health.set(uid, condition.status == "True", conditions.transition_time(pool, CONDITION))
        status: dict[str, object] = {}
        generation = node_class.metadata.generation
        if (
            condition is None
            or pool.status.node_class_observed_generation != generation
            or condition.observed_generation != pool.metadata.generation
        ):
            health.set(uid, None)
            wanted = conditions.with_condition(
                pool,
                CONDITION,
                "Unknown",
                "AwaitingReconciliation",
                "object is awaiting reconciliation",
                now=context.clock.now(),
            )
            if wanted.status.conditions != pool.status.conditions:
                status["conditions"] = conditions.document(wanted.status.conditions)
        if pool.status.node_class_observed_generation != generation:
            status["nodeClassObservedGeneration"] = generation
        if status:
            patch = merge({"status": status}, resource_version=pool.metadata.resource_version)
            try:
                await context.client.patch(NodePool, pool.name, patch, subresource="status")
            except NotFound:
                return Result()
        return Result()

    return [pool_controller(context, "nodepool.registrationhealth", reconcile, follow_classes=True)]
