"""ReplicaSets: as many pods as asked for, giving up the least useful first."""

from collections import Counter

import msgspec

from karpenter.apis.core import Pod
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.kinds import FullReplicaSet, WorkloadStatus
from karpenter.embedded.controllers.pods import (
    Expectations,
    available_in,
    decode,
    delete_pod,
    is_active,
    is_ready,
    own_key,
    owned_by,
    owner_key,
    pod_cache,
    pod_from,
    post,
    removal_order,
    watch_pods,
)
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result


class ReplicaPlan(msgspec.Struct, frozen=True):
    """How many pods to create, which to delete, and what to report."""

    create: int
    delete: list[Pod]
    status: dict[str, object]
    look_again: float | None  # seconds until a pod becomes available by age


def plan_replicas(replica_set: FullReplicaSet, pods: list[Pod], now: float) -> ReplicaPlan:
    """Compare the pods a ReplicaSet owns with what it asks for."""
    active = [pod for pod in pods if is_active(pod)]
    excess = len(active) - replica_set.spec.replicas
    doomed: list[Pod] = []
    if excess > 0:
        siblings = Counter(pod.spec.node_name for pod in active if pod.spec.node_name)
        doomed = sorted(active, key=lambda pod: removal_order(pod, siblings))[:excess]
    ages = [available_in(pod, replica_set.spec.min_ready_seconds, now) for pod in active]
    soon = [age for age in ages if age]
    template_labels = (decode(replica_set.spec.template).get("metadata") or {}).get("labels") or {}
    status: dict[str, object] = {
        "replicas": len(active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(age == 0 for age in ages),
        "fullyLabeledReplicas": sum(template_labels.items() <= pod.metadata.labels.items() for pod in active),
        "observedGeneration": replica_set.metadata.generation,
    }
    return ReplicaPlan(max(0, -excess), doomed, status, min(soon) if soon else None)


def status_differs(status: WorkloadStatus, wanted: dict[str, object]) -> bool:
    """Tell whether a status patch would change any count."""
    return (
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        status.fully_labeled_replicas,
        status.observed_generation,
    ) != tuple(
        wanted[name]
        for name in (
            *("replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas"),
            "observedGeneration",
        )
    )


class ReplicaSetController:
    """Keeps ReplicaSets at their count."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._sets = cache.informer(FullReplicaSet)
        self._pods = pod_cache(cache)
        self._expectations = Expectations(clock)
        self._owner = owner_key("ReplicaSet")
        self.controller = Controller(
            "replicaset", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self._pods.subscribe(self._observe)
        self.controller.watch(self._sets, own_key)
        watch_pods(self.controller, self._pods, self._owner)

    def _observe(self, change: Change[Pod]) -> None:
        for key in self._owner(change):
            self._expectations.observe(key, change)

    async def reconcile(self, key: str) -> Result:
        """Bring one ReplicaSet nearer to its count and report."""
        namespace, _, name = key.partition("/")
        replica_set = self._sets.get(name, namespace)
        if replica_set is None:
            return Result()
        pods = owned_by(self._pods, replica_set)
        plan = plan_replicas(replica_set, pods, self._clock.now())
        if not replica_set.deleting and self._expectations.satisfied(key):
            await self._scale(key, replica_set, plan)
        if status_differs(replica_set.status, plan.status):
            try:
                await self._client.patch(
                    FullReplicaSet,
                    name,
                    merge({"status": plan.status}),
                    namespace=namespace,
                    subresource="status",
                )
            except NotFound:
                return Result()
        return Result(plan.look_again)

    async def _scale(self, key: str, replica_set: FullReplicaSet, plan: ReplicaPlan) -> None:
        if plan.create:
            body = msgspec.json.encode(pod_from(decode(replica_set.spec.template), replica_set))
            path = Pod.resource.path(replica_set.namespace)
            for _ in range(plan.create):
                created = await post(self._client, path, body)
                self._expect(key, created.name, replica_set.namespace, created.uid)
        for pod in plan.delete:
            self._expectations.expect(key, f"-{pod.metadata.uid}")
            await delete_pod(self._client, pod)

    def _expect(self, key: str, name: str, namespace: str, uid: str) -> None:
        # The watch may have been faster than the answer.
        seen = self._pods.get(name, namespace)
        if seen is None or seen.metadata.uid != uid:
            self._expectations.expect(key, uid)
