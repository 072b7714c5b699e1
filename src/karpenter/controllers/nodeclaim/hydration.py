"""Giving claims, and the nodes of claims, from before an upgrade the label of their node class."""

from collections.abc import Awaitable, Callable, Iterable

from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.labels import nodeclass_label
from karpenter.controllers.context import Context
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result, Singleton


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controllers of claims and of nodes."""
    hydration = Hydration(context)
    claims = _controller(context, "nodeclaim.hydration", hydration.claim)
    claims.watch(context.cache.informer(NodeClaim), lambda change: [change.object.name])
    nodes = _controller(context, "node.hydration", hydration.node)
    nodes.watch(context.cache.informer(Node), lambda change: [change.object.name])
    nodes.watch(context.cache.informer(NodeClaim), hydration.nodes_of)
    return [claims, nodes]


class Hydration:
    """Adds the label where it is missing or another one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._claims = context.cache.informer(NodeClaim)
        self._nodes = context.cache.informer(Node)

    def nodes_of(self, change: Change[NodeClaim]) -> Iterable[str]:
        """Return the nodes of a claim."""
        return [node.name for node in self._context.cluster.nodes_for(change.object.status.provider_id)]

    async def claim(self, name: str) -> Result:
        """Label one claim."""
        claim = self._claims.get(name)
        if claim is not None and not claim.deleting:
            await self._label(claim, claim)
        return Result()

    async def node(self, name: str) -> Result:
        """Label one node, if it is the one node of one claim."""
        node = self._nodes.get(name)
        if node is None or node.deleting:
            return Result()
        claims = self._context.cluster.claims_for(node.spec.provider_id)
        if len(claims) == 1:
            await self._label(node, claims[0])
        return Result()

    async def _label(self, obj: NodeClaim | Node, claim: NodeClaim) -> None:
        reference = claim.spec.node_class_ref
        key = nodeclass_label(reference.group, reference.kind)
        if not self._context.cluster.manages(reference) or obj.metadata.labels.get(key) == reference.name:
            return
        try:
            await self._context.client.patch(
                type(obj), obj.name, merge({"metadata": {"labels": {key: reference.name}}})
            )
        except NotFound:
            return


def _controller(context: Context, name: str, reconcile: Callable[[str], Awaitable[Result]]) -> Controller:
    return Controller(
        name, reconcile, clock=context.clock, rng=context.rng, metrics=context.metrics, concurrency=10
    )
