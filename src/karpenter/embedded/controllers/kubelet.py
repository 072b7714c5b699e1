"""Simulated kubelets: the stages of nodes annotated `kwok.x-k8s.io/node: fake`, and of the pods there."""

from typing import Any

from karpenter.apis.core import Node, Pod
from karpenter.apis.workloads import Lease
from karpenter.base.clock import Clock, format_micro_time
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.pods import create_unless_there, own_key, pod_cache
from karpenter.embedded.controllers.stages import (
    FAKE_NODE,
    NODE_STAGES,
    KubeletLatencies,
    Stage,
    Subject,
    delay_of,
    next_stage,
    pod_stages,
)
from karpenter.embedded.logs import PodLogs
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge, strategic
from karpenter.runtime import Controller, Result, Singleton

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40


def is_fake(node: Node) -> bool:
    """Tell whether we play the node's kubelet."""
    return node.metadata.annotations.get(FAKE_NODE) == "fake"


class _Clocked:
    """When each object's present stage is due."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[str, str, float]] = {}

    def due(
        self, obj: Pod | Node, stage: Stage, now: float, latencies: KubeletLatencies, rng: Random
    ) -> float:
        known = self._due.get(obj.key)
        if known is None or known[:2] != (obj.metadata.uid, stage.name):
            at = now + delay_of(stage, obj, latencies, rng)
            known = self._due[obj.key] = (obj.metadata.uid, stage.name, at)
        return known[2]

    def forget(self, key: str) -> None:
        self._due.pop(key, None)


class Kubelets:
    """All simulated kubelets of a cluster."""

    def __init__(
        self,
        cache: Cache,
        *,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
        latencies: KubeletLatencies,
        logs: PodLogs,
    ) -> None:
        self._client = cache.client
        self._clock = clock
        self._rng = rng
        self._latencies = latencies
        self._logs = logs
        self._nodes = cache.informer(Node)
        self._pods = pod_cache(cache)
        self._pod_stages = pod_stages(latencies)
        self._clocked = _Clocked()
        self._addresses = 0
        self._pod_addresses: dict[str, str] = {}
        self.pods = Controller(
            "kubelet-pods", self.reconcile_pod, clock=clock, rng=rng, metrics=metrics, concurrency=8
        )
        self.nodes = Controller(
            "kubelet-nodes", self.reconcile_node, clock=clock, rng=rng, metrics=metrics, concurrency=8
        )
        self.pods.watch(self._pods, self._pod_keys)
        self.nodes.watch(self._nodes, own_key)
        self._nodes.subscribe(self._on_node)
        self._pods.subscribe(self._on_pod)
        self.controllers: list[Controller | Singleton] = [self.pods, self.nodes]
        if latencies.heartbeat > 0:
            self.controllers.append(
                Singleton("kubelet-heartbeats", self._heartbeat, clock=clock, rng=rng, metrics=metrics)
            )

    def _pod_keys(self, change: Change[Pod]) -> list[str]:
        if change.type == "DELETED" or not change.object.spec.node_name:
            return []
        return [change.object.key]

    def _on_pod(self, change: Change[Pod]) -> None:
        if change.type == "DELETED":
            pod = change.object
            self._clocked.forget(pod.key)
            self._pod_addresses.pop(pod.metadata.uid, None)

    def _on_node(self, change: Change[Node]) -> None:
        if change.type == "DELETED":
            self._clocked.forget(change.object.key)
        elif change.type == "ADDED":
            for pod in self._pods.by_index("node", change.object.name):
                self.pods.enqueue(pod.key)

    def _address(self) -> str:
        self._addresses += 1
        low = self._addresses
        return f"10.{64 + (low >> 16) % 64}.{(low >> 8) & 255}.{low & 255}"

    async def reconcile_node(self, key: str) -> Result:
        """Take a simulated node through its stages."""
        node = self._nodes.get(key)
        if node is None or not is_fake(node):
            return Result()
        stage = next_stage(NODE_STAGES, node)
        if stage is None or stage.patch is None:
            return Result()
        now = self._clock.now()
        due = self._clocked.due(node, stage, now, self._latencies, self._rng)
        if due > now:
            return Result(due - now)
        document = {
            "metadata": {"uid": node.metadata.uid},
            "status": stage.patch(Subject(node, self._address()), now),
        }
        try:
            await self._client.patch(Node, node.name, strategic(document), subresource="status")
        except (NotFound, Conflict):
            return Result()
        return Result()

    async def reconcile_pod(self, key: str) -> Result:
        """Take a pod on a simulated node through its stages."""
        namespace, _, name = key.partition("/")
        pod = self._pods.get(name, namespace)
        if pod is None or not pod.spec.node_name:
            return Result()
        node = self._nodes.get(pod.spec.node_name)
        if node is None or not is_fake(node):
            return Result()
        stage = next_stage(self._pod_stages, pod)
        if stage is None:
            return Result()
        now = self._clock.now()
        due = self._clocked.due(pod, stage, now, self._latencies, self._rng)
        if due > now:
            return Result(due - now)
        try:
            await self._advance(pod, stage, now)
        except (NotFound, Conflict):
            return Result()  # another pod of that name, or none: its own events will bring us back
        for container in pod.spec.containers:
            if stage.log_line and stage.patch is not None:
                line = (
                    f"{container.name} of {pod.namespace}/{pod.name} {stage.log_line} on {pod.spec.node_name}"
                )
                self._logs.append(pod.namespace, pod.name, container.name, line)
        return Result()

    async def _advance(self, pod: Pod, stage: Stage, now: float) -> None:
        uid = pod.metadata.uid
        if stage.patch is None:
            await self._client.delete(Pod, pod.name, namespace=pod.namespace, uid=uid, grace_period_seconds=0)
            return
        address = self._pod_addresses.get(uid)
        if address is None:
            address = self._pod_addresses[uid] = self._address()
        document = {"metadata": {"uid": uid}, "status": stage.patch(Subject(pod, address), now)}
        await self._client.patch(
            Pod, pod.name, strategic(document), namespace=pod.namespace, subresource="status"
        )

    async def _heartbeat(self) -> Result:
        """Renew the lease of every simulated node."""
        moment = format_micro_time(self._clock.now())
        for node in self._nodes.items():
            if not is_fake(node) or node.deleting:
                continue
            renewal = {"spec": {"renewTime": moment}}
            try:
                await self._client.patch(Lease, node.name, merge(renewal), namespace=LEASE_NAMESPACE)
            except NotFound:
                await create_unless_there(
                    self._client, Lease.resource.path(LEASE_NAMESPACE), _lease(node, moment)
                )
        return Result(self._latencies.heartbeat)


def _lease(node: Node, moment: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node.name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.metadata.uid}
            ],
        },
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment},
    }


__all__ = ["KubeletLatencies", "Kubelets", "is_fake"]
