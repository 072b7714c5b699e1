"""Pods whose node is gone are removed: nobody is left to stop them."""

from karpenter.apis.core import Node, Pod
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.pods import NODE_INDEX, pod_cache
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import strategic
from karpenter.runtime import Controller, Result

QUARANTINE_SECONDS = 1.0
"""How long a node must be unknown before its pods go: the pod may have been seen before its node."""


class PodCollector:
    """Deletes the pods of nodes that do not exist; keyed by node name."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._nodes = cache.informer(Node)
        self._pods = pod_cache(cache)
        self._missing_since: dict[str, float] = {}
        self.controller = Controller(
            "pod-garbage", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=2
        )
        self.controller.watch(self._nodes, self._gone)
        self.controller.watch(self._pods, self._stranded)

    def _gone(self, change: Change[Node]) -> list[str]:
        return [change.object.name] if change.type == "DELETED" else []

    def _stranded(self, change: Change[Pod]) -> list[str]:
        name = change.object.spec.node_name
        if change.type == "DELETED" or not name or self._nodes.get(name) is not None:
            return []
        return [name]

    async def reconcile(self, key: str) -> Result:
        """Remove the pods of one node, if it is really gone."""
        if self._nodes.get(key) is not None or not (pods := self._pods.by_index(NODE_INDEX, key)):
            self._missing_since.pop(key, None)
            return Result()
        now = self._clock.now()
        waited = now - self._missing_since.setdefault(key, now)
        if waited < QUARANTINE_SECONDS:
            return Result(QUARANTINE_SECONDS - waited)
        for pod in pods:
            await self._remove(pod)
        return Result()

    async def _remove(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        try:
            if pod.status.phase not in ("Succeeded", "Failed"):
                await self._client.patch(
                    Pod,
                    pod.name,
                    strategic({"metadata": {"uid": uid}, "status": {"phase": "Failed"}}),
                    namespace=pod.namespace,
                    subresource="status",
                )
            await self._client.delete(Pod, pod.name, namespace=pod.namespace, uid=uid, grace_period_seconds=0)
        except (NotFound, Conflict):
            return
