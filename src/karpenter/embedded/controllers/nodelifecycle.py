"""Nodes that are not ready are tainted, and pods that do not tolerate a NoExecute taint are evicted."""

import msgspec

from karpenter.apis.core import Node, Pod, Taint, Toleration
from karpenter.base.clock import Clock, format_time, parse_time
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.pods import NODE_INDEX, delete_pod, is_finished, own_key, pod_cache
from karpenter.embedded.scheduler.predicates import NOT_READY, UNREACHABLE, UNSCHEDULABLE, tolerates
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result

OURS = {
    *((NOT_READY, effect) for effect in ("NoSchedule", "NoExecute")),
    *((UNREACHABLE, effect) for effect in ("NoSchedule", "NoExecute")),
    (UNSCHEDULABLE, "NoSchedule"),
}


def condition_taints(node: Node) -> list[tuple[str, str]]:
    """Return the taints (key, effect) that the node's state calls for.

    A node that has never reported only keeps newcomers away; one that stopped being ready loses its pods.
    """
    wanted: list[tuple[str, str]] = []
    ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
    if ready is None:
        wanted = [(NOT_READY, "NoSchedule")]
    elif ready.status == "False":
        wanted = [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
    elif ready.status != "True":
        wanted = [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    if node.spec.unschedulable:
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    return wanted


def adjusted_taints(node: Node, now: float) -> list[Taint] | None:
    """Return the node's taints as they should be (None: as they are)."""
    wanted = condition_taints(node)
    present = {(t.key, t.effect) for t in node.spec.taints}
    kept = [t for t in node.spec.taints if (t.key, t.effect) not in OURS or (t.key, t.effect) in wanted]
    added = [
        Taint(key, "", effect, format_time(now) if effect == "NoExecute" else None)
        for key, effect in wanted
        if (key, effect) not in present
    ]
    return [*kept, *added] if added or len(kept) != len(node.spec.taints) else None


def eviction_delay(taints: list[Taint], tolerations: list[Toleration], now: float) -> float | None:
    """Return in how many seconds a pod must leave (0: now; None: it may stay)."""
    delays: list[float] = []
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        matching = [t for t in tolerations if tolerates(t, taint)]
        if not matching:
            return 0.0
        limits = [t.toleration_seconds for t in matching if t.toleration_seconds is not None]
        if limits and len(limits) == len(matching):
            since = parse_time(taint.time_added) if taint.time_added else now
            delays.append(max(0.0, since + max(0, min(limits)) - now))
    return min(delays) if delays else None


class NodeLifecycle:
    """Taints nodes by their conditions and evicts what does not tolerate it."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._nodes = cache.informer(Node)
        self._pods = pod_cache(cache)
        self.controller = Controller(
            "node-lifecycle", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self.controller.watch(self._nodes, own_key)
        self.controller.watch(self._pods, self._node_of)

    def _node_of(self, change: Change[Pod]) -> list[str]:
        # Only a pod's arrival on a tainted node matters here.
        name = change.object.spec.node_name
        if not name or change.type == "DELETED" or (change.old is not None and change.old.spec.node_name):
            return []
        node = self._nodes.get(name)
        return [name] if node is not None and any(t.effect == "NoExecute" for t in node.spec.taints) else []

    async def reconcile(self, key: str) -> Result:
        """Adjust one node's taints and evict from it."""
        node = self._nodes.get(key)
        if node is None:
            return Result()
        now = self._clock.now()
        taints = adjusted_taints(node, now)
        if taints is not None:
            patch = merge(
                {"spec": {"taints": msgspec.to_builtins(taints) or None}},
                resource_version=node.metadata.resource_version,
            )
            try:
                await self._client.patch(Node, node.name, patch)
            except (NotFound, Conflict):
                return Result()  # the newer version is on its way here
            return Result()
        return Result(await self._evict(node, now))

    async def _evict(self, node: Node, now: float) -> float | None:
        if not any(t.effect == "NoExecute" for t in node.spec.taints):
            return None
        soonest: float | None = None
        for pod in self._pods.by_index(NODE_INDEX, node.name):
            if pod.deleting or is_finished(pod):
                continue
            delay = eviction_delay(node.spec.taints, pod.spec.tolerations, now)
            if delay == 0.0:
                await delete_pod(self._client, pod)
            elif delay is not None:
                soonest = delay if soonest is None else min(soonest, delay)
        return soonest
