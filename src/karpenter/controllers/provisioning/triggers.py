"""What wakes the provisioner: pods without a node, nodes that go away, claims that came to nothing."""

from collections.abc import Iterable

from karpenter.apis import labels
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.controllers.context import Context
from karpenter.controllers.provisioning.batcher import Batcher
from karpenter.kube.informer import Change
from karpenter.model.pods import is_provisionable
from karpenter.runtime import Controller, Result, Singleton

AGAIN_SECONDS = 10.0
"""As long as any waits, a pod or a leaving node triggers again."""
_AT_ONCE = 500


class Triggers:
    """The controllers that feed the batcher."""

    def __init__(self, context: Context, batcher: Batcher) -> None:
        self._context = context
        self._batcher = batcher
        self._pods = context.cache.informer(Pod)
        self._nodes = context.cache.informer(Node)
        self._waiting: dict[str, None] = {}
        """Keys of the pods that wait for a node, the longest first."""

    def controllers(self) -> list[Controller | Singleton]:
        """Return the controllers, watching."""
        c = self._context
        pods = Controller(
            "provisioner.trigger.pod",
            self._reconcile_pod,
            clock=c.clock,
            rng=c.rng,
            metrics=c.metrics,
            concurrency=c.settings.concurrency(10, 1000),
        )
        pods.watch(self._pods, self._on_pod)
        again = Singleton(
            "provisioner.trigger.again", self._ask_again, clock=c.clock, rng=c.rng, metrics=c.metrics
        )
        nodes = Controller(
            "provisioner.trigger.node",
            self._reconcile_node,
            clock=c.clock,
            rng=c.rng,
            metrics=c.metrics,
            concurrency=10,
        )
        nodes.watch(self._nodes, lambda change: [change.object.name] if _is_leaving(change.object) else [])
        c.cache.informer(NodeClaim).subscribe(self._on_claim)
        c.cache.informer(NodePool).subscribe(self._on_pool)
        c.cluster.buffers.on_wanted(lambda: self._batcher.trigger("headroom"))
        return [pods, again, nodes]

    async def _reconcile_pod(self, key: str) -> Result:
        namespace, name = key.split("/", 1)
        pod = self._pods.get(name, namespace)
        if pod is None or not is_provisionable(pod):
            return Result()
        cluster = self._context.cluster
        cluster.pod_times.acknowledge(key, self._context.clock.now())
        if not cluster.reserved_for(pod):
            self._batcher.trigger(pod.metadata.uid)
        return Result()

    async def _ask_again(self) -> Result:
        """Trigger for the first pod that waits in vain: a pass looks at all of them anyway."""
        for number, key in enumerate(list(self._waiting), start=1):
            if number % _AT_ONCE == 0:
                await self._context.clock.sleep(0)
            namespace, name = key.split("/", 1)
            pod = self._pods.get(name, namespace)
            if pod is not None and is_provisionable(pod) and not self._context.cluster.reserved_for(pod):
                self._batcher.trigger(pod.metadata.uid)
                break
        return Result(AGAIN_SECONDS)

    async def _reconcile_node(self, name: str) -> Result:
        node = self._nodes.get(name)
        if node is None or not _is_leaving(node):
            return Result()
        self._batcher.trigger(node.metadata.uid)
        return Result(AGAIN_SECONDS)

    def _on_pod(self, change: Change[Pod]) -> Iterable[str]:
        """Keep account of who waits, and return who does now."""
        key = change.object.key
        if change.type != "DELETED" and is_provisionable(change.object):
            self._waiting[key] = None
            return [key]
        self._waiting.pop(key, None)
        if change.type == "DELETED" and is_provisionable(change.object):
            # It is not to be counted any more among those without a place.
            self._batcher.trigger(f"{change.object.metadata.uid}/{change.type}")
        return []

    def _on_claim(self, change: Change[NodeClaim]) -> None:
        """A claim that goes sets its pods free: plan for them at once, not when they ask again."""
        claim = change.object
        if change.type == "DELETED" or (
            claim.deleting and not (change.old is not None and change.old.deleting)
        ):
            self._batcher.trigger(f"{claim.metadata.uid}/{change.type}")

    def _on_pool(self, change: Change[NodePool]) -> None:
        """A pool that is new, changed, or now ready may take pods that nothing took before."""
        old = change.old
        if change.type != "DELETED" and (
            old is None
            or old.metadata.generation != change.object.metadata.generation
            or old.status.conditions != change.object.status.conditions
        ):
            self._batcher.trigger(f"{change.object.metadata.uid}/{change.object.metadata.resource_version}")


def _is_leaving(node: Node) -> bool:
    return any(taint.key == labels.DISRUPTED_TAINT for taint in node.spec.taints)
