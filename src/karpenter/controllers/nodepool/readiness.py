"""Whether a pool's node class can be used."""

from typing import NamedTuple

from karpenter.apis.conditions import get
from karpenter.apis.karpenter import NodeClassRef, NodePool
from karpenter.apis.meta import ConditionStatus
from karpenter.cloudprovider import NodeClass
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodepool.keyed import pool_controller, write_conditions
from karpenter.kube.client import resource_of
from karpenter.runtime import Controller, Result, Singleton


class Verdict(NamedTuple):
    """NodeClassReady, as it should be."""

    status: ConditionStatus
    reason: str
    message: str = ""


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""

    async def reconcile(pool: NodePool) -> Result:
        verdict = verdict_of(node_class_of(context, pool.spec.template.spec.node_class_ref))
        wanted = conditions.with_condition(pool, "NodeClassReady", *verdict, now=context.clock.now())
        await write_conditions(context, pool, wanted.status.conditions)
        return Result()

    return [pool_controller(context, "nodepool.readiness", reconcile, follow_classes=True)]


def node_class_of(context: Context, reference: NodeClassRef) -> NodeClass | None:
    """Return the node class that `reference` names, if it is there."""
    for kind in context.provider.node_classes:
        resource = resource_of(kind)
        if (resource.group, resource.kind) == (reference.group, reference.kind):
            return context.cache.informer(kind).get(reference.name)
    return None


def verdict_of(node_class: NodeClass | None) -> Verdict:
    """Judge a node class."""
    if node_class is None:
        return Verdict("False", "NodeClassNotFound", "NodeClass not found on cluster")
    if node_class.deleting:
        return Verdict("False", "NodeClassTerminating", "NodeClass is Terminating")
    ready = get(node_class.status.conditions, "Ready")
    if ready is None or ready.status == "Unknown":
        return Verdict("False", "NodeClassReadinessUnknown", "Node Class Readiness Unknown")
    if ready.status == "False":
        return Verdict("False", ready.reason or "NodeClassNotReady", ready.message)
    return Verdict("True", "NodeClassReady")
