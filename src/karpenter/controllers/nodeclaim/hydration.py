"""Giving claims from before an upgrade the label of their node class."""

from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.labels import nodeclass_label
from karpenter.controllers.context import Context
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result, Singleton


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""
    claims = context.cache.informer(NodeClaim)

    async def reconcile(name: str) -> Result:
        claim = claims.get(name)
        if claim is None or claim.deleting or not context.cluster.manages(claim.spec.node_class_ref):
            return Result()
        reference = claim.spec.node_class_ref
        key = nodeclass_label(reference.group, reference.kind)
        if claim.metadata.labels.get(key) == reference.name:
            return Result()
        try:
            await context.client.patch(
                NodeClaim, name, merge({"metadata": {"labels": {key: reference.name}}})
            )
        except NotFound:
            return Result()
        return Result()

    controller = Controller(
        "nodeclaim.hydration",
        reconcile,
        clock=context.clock,
        rng=context.rng,
        metrics=context.metrics,
        concurrency=10,
    )
    controller.watch(claims, lambda change: [change.object.name])
    return [controller]
