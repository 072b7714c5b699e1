"""Telling when a registered node is ready for work."""

from karpenter.apis import labels as known
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.quantity import resources_of
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.step import Step
from karpenter.kube.patch import merge
from karpenter.model import taints


class Initialization:
    """The third step."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self, claim: NodeClaim) -> Step:
        """Set Initialized once the node is ready, its startup taints are off and its resources are there."""
        now = self._context.clock.now()
        if is_true(claim.status.conditions, "Initialized"):
            return Step(conditions.refreshed(claim, "Initialized", now=now))
        if not is_true(claim.status.conditions, "Registered"):
            return Step(claim)
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        if len(nodes) != 1:
            reason, message = "NodeNotFound", "Node not registered with cluster"
        else:
            reason, message = missing(claim, nodes[0])
        if reason:
            return Step(conditions.with_condition(claim, "Initialized", "Unknown", reason, message, now=now))
        node = nodes[0]
        if node.metadata.labels.get(known.INITIALIZED) != "true":
            await self._context.client.patch(
                Node, node.name, merge({"metadata": {"labels": {known.INITIALIZED: "true"}}})
            )
        return Step(conditions.with_condition(claim, "Initialized", "True", now=now))


def missing(claim: NodeClaim, node: Node) -> tuple[str, str]:
    """Return what `node` lacks to be initialized, as reason and message; empty when nothing."""
    if not is_true(node.status.conditions, "Ready"):
        return "NodeNotReady", "Node status is NotReady"
    for taint in claim.spec.startup_taints:
        if any(taint.matches(present) for present in node.spec.taints):
            return "StartupTaintsExist", f"StartupTaint {str(taint)!r} still exists"
    for present in node.spec.taints:
        if taints.is_ephemeral(present):
            return "KnownEphemeralTaintsExist", f"KnownEphemeralTaint {str(present)!r} still exists"
    allocatable = resources_of(node.status.allocatable)
    for name, amount in sorted(resources_of(claim.spec.resources.requests).items()):
        if amount and not allocatable.get(name):
            return "ResourceNotRegistered", f"Resource {name!r} was requested but not registered"
    return "", ""
