"""Carries out surges: starts the rollouts that bring stand-ins for pods of draining nodes, and tells
disruption whose pods would have one.

What a pod's workload looks like is asked of the API server each time, and only for pods that have opted in:
nobody else pays for it, in memory or in rights. Needs `get` on replicasets and `get`, `patch` on deployments.
"""

from collections.abc import Iterable, Sequence

import msgspec
import structlog

from karpenter.apis import labels
from karpenter.apis.core import Node, Pod
from karpenter.apis.meta import KubeObject, OwnerReference
from karpenter.apis.workloads import Deployment, ReplicaSet
from karpenter.controllers.context import Context
from karpenter.controllers.node.blockers import Blockers
from karpenter.controllers.node.drain import needs_force_delete
from karpenter.disruption.drainblocks import DrainBlock
from karpenter.disruption.surge import (
    Surge,
    bears_eviction,
    is_surging_for,
    moves_freely,
    plan_surge,
    why_no_surge_of,
    why_no_surge_with,
)
from karpenter.kube.errors import Conflict, Forbidden, NotFound
from karpenter.kube.patch import merge
from karpenter.model import pods as podlib
from karpenter.model.pdbs import is_ready
from karpenter.runtime import Result, Singleton

log = structlog.get_logger()

_OWNER = "controller"
_ASKS = "asks-for-surge"

LOOK_SECONDS = 60.0
"""How often it is looked up whose pods would have stand-ins."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What surges make of the pods that a drain would evict now."""

    evict: tuple[Pod, ...]
    """The others: to be evicted."""
    blocks: tuple[DrainBlock, ...] = ()
    """Pods that wait for their stand-ins."""


class Surges:
    """Stand-ins first, for pods that have opted in."""

    def __init__(self, context: Context, blockers: Blockers) -> None:
        self._context = context
        self._blockers = blockers
        self._nodes = context.cache.informer(Node)
        self._pods = context.cache.informer(Pod)
        self._pods.add_index(_OWNER, _owner_uid)
        self._pods.add_index(_ASKS, lambda pod: ("true",) if podlib.expects_stand_in(pod) else ())
        self._rolled = context.metrics.counter(
            "karpenter_pods_surged_total", "Rollouts started so that pods have stand-ins first.", ["nodepool"]
        )

        self.controller = Singleton(
            "node.surge", self._look, clock=context.clock, rng=context.rng, metrics=context.metrics
        )

    async def _look(self) -> Result:
        """Find the pods that their budget can never let go, and that would have a stand-in all the same."""
        limits = self._blockers.limits()
        found: set[str] = set()
        seen: dict[str, Deployment | None] = {}
        for pod in self._pods.by_index(_ASKS, "true"):
            owner = _controller(pod)
            if owner is None or not limits.fully_blocking(pod):
                continue
            if owner.uid not in seen:
                try:
                    seen[owner.uid] = await self._deployment(owner.name, pod.namespace)
                except Forbidden:
                    return Result(LOOK_SECONDS)  # a drain that comes to it says what is missing
            deployment = seen[owner.uid]
            if deployment is not None and moves_freely(pod, deployment) and not self._unshared(pod):
                found.add(pod.key)
        self._context.cluster.note_stand_ins(frozenset(found))
        return Result(LOOK_SECONDS)

    async def hold(self, node: Node, pods: Sequence[Pod], deadline: float | None) -> Held:
        """Start what has to be started for `pods`, about to be evicted from `node`; return who waits."""
        now = self._context.clock.now()
        evict: list[Pod] = []
        blocks: list[DrainBlock] = []
        seen: dict[str, Deployment | None] = {}
        for pod in pods:
            wanted = podlib.asks_for_surge(pod) and podlib.is_evictable(pod, now)
            if not wanted or needs_force_delete(pod, now, deadline):
                evict.append(pod)
                continue
            bears = self._bears(pod)
            surge = await self._surge(node, pod, seen, bears=bears)
            if surge.block is not None:
                blocks.append(surge.block)
            if surge.step == "evict":
                evict.append(pod)
                if surge.impossible and not bears:
                    self._tell_impossible(pod, surge.impossible)
        return Held(evict=tuple(evict), blocks=tuple(blocks))

    def _bears(self, pod: Pod) -> bool:
        owner = _controller(pod)
        peers = self._pods.by_index(_OWNER, owner.uid) if owner is not None else []
        ready = [p for p in peers if p.key != pod.key and self._stays(p)]
        return bears_eviction(pod, self._blockers.limits(), len(ready))

    def _stays(self, pod: Pod) -> bool:
        """Tell whether a pod serves, and goes on doing so on a node that is not about to go."""
        node = self._nodes.get(pod.spec.node_name)
        going = (
            node is None
            or node.deleting
            or any(taint.key == labels.DISRUPTED_TAINT for taint in node.spec.taints)
        )
        return is_ready(pod) and podlib.is_active(pod) and not going

    async def _surge(self, node: Node, pod: Pod, seen: dict[str, Deployment | None], *, bears: bool) -> Surge:
        """Return what comes of a pod, with its rollout begun if it is to; `bears`: it could go without."""
        owner = _controller(pod)
        if owner is None or owner.kind != "ReplicaSet":
            return Surge(step="evict", impossible=why_no_surge_of(owner))
        unshared = self._unshared(pod)
        if unshared:
            return Surge(step="evict", impossible=unshared)
        try:
            if owner.uid not in seen:
                seen[owner.uid] = await self._deployment(owner.name, pod.namespace)
            deployment = seen[owner.uid]
            if deployment is None:
                return Surge(step="evict", impossible=why_no_surge_of(owner))
            if bears and not is_surging_for(deployment, node.metadata.uid):
                return Surge(step="evict")
            surge = plan_surge(pod, deployment, node.metadata.uid, self._protected(owner))
            if surge.step == "roll":
                seen[owner.uid] = await self._roll(node, pod, deployment)
        except Forbidden as error:
            return Surge(step="evict", impossible=f"the operator lacks a right: {error.message}")
        return surge

    def _protected(self, owner: OwnerReference) -> Pod | None:
        """Return a pod of a ReplicaSet that must not be disrupted now."""
        now = self._context.clock.now()
        peers = self._pods.by_index(_OWNER, owner.uid)
        return next((p for p in peers if not podlib.is_disruptable(p, now)), None)

    def _unshared(self, pod: Pod) -> str:
        """Return which of the pod's volumes its stand-in could not have at the same time, and why."""
        claims = self._context.cluster.volume_claims()
        keys = [podlib.volume_claim_key(pod, volume) for volume in pod.spec.volumes if not volume.ephemeral]
        return why_no_surge_with(claims[key] for key in keys if key in claims)

    async def _deployment(self, replica_set: str, namespace: str) -> Deployment | None:
        """Return the Deployment that owns a ReplicaSet; None when there is none."""
        try:
            owner = _controller(await self._context.client.get(ReplicaSet, replica_set, namespace))
            if owner is None or owner.kind != "Deployment":
                return None
            return await self._context.client.get(Deployment, owner.name, namespace)
        except NotFound:
            return None

    async def _roll(self, node: Node, pod: Pod, deployment: Deployment) -> Deployment:
        """Start a rollout, unless the Deployment has changed since it was read; the next look will tell."""
        mark = {labels.SURGED_FOR: node.metadata.uid}
        document = {"spec": {"template": {"metadata": {"annotations": mark}}}}
        patch = merge(document, resource_version=deployment.metadata.resource_version)
        try:
            rolled = await self._context.client.patch(
                Deployment, deployment.name, patch, namespace=deployment.namespace
            )
        except (Conflict, NotFound):
            return deployment
        self._rolled.labels(node.metadata.labels.get(labels.NODEPOOL, "")).inc()
        log.info("rolled out a deployment ahead of a drain", Deployment=deployment.key, Node=node.name)
        self._context.recorder.publish(
            deployment,
            "Normal",
            "SurgeBeforeEviction",
            f"Rolling out so that pod {pod.name} has a stand-in before node {node.name} goes",
            dedupe=(deployment.metadata.uid, node.name),
        )
        return rolled

    def _tell_impossible(self, pod: Pod, why: str) -> None:
        self._context.recorder.publish(
            pod,
            "Warning",
            "SurgeImpossible",
            f"Annotation {labels.SURGE} cannot help this pod, it is evicted as any other: {why}",
            dedupe=(pod.metadata.uid,),
        )


def _controller(obj: KubeObject) -> OwnerReference | None:
    return next((o for o in obj.metadata.owner_references if o.controller), None)


def _owner_uid(pod: Pod) -> Iterable[str]:
    owner = _controller(pod)
    return (owner.uid,) if owner is not None else ()
