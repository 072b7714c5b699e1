"""Carries out what `rollout` decides for each Deployment."""

from collections.abc import Mapping

import msgspec

from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.kinds import FullDeployment, FullReplicaSet
from karpenter.embedded.controllers.pods import (
    OWNER_INDEX,
    canonical,
    create_unless_there,
    is_finished,
    own_key,
    owned_by,
    owner_index,
    owner_key,
    pod_cache,
)
from karpenter.embedded.controllers.rollout import REVISION, RolloutPlan, plan_rollout
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Cache
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result


class DeploymentController:
    """Keeps Deployments' ReplicaSets and statuses."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._deployments = cache.informer(FullDeployment)
        self._sets = cache.informer(FullReplicaSet)
        self._sets.add_index(OWNER_INDEX, owner_index)
        self._pods = pod_cache(cache)
        self.controller = Controller(
            "deployment", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self.controller.watch(self._deployments, own_key)
        self.controller.watch(self._sets, owner_key("Deployment"))

    async def reconcile(self, key: str) -> Result:
        """Take one Deployment one step further and report."""
        namespace, _, name = key.partition("/")
        deployment = self._deployments.get(name, namespace)
        if deployment is None or deployment.deleting:
            return Result()
        owned = self._sets.by_index(OWNER_INDEX, deployment.metadata.uid)
        busy: set[str] = set()
        waits = False
        if deployment.spec.strategy.type == "Recreate":
            busy = {r.name for r in owned if any(not is_finished(p) for p in owned_by(self._pods, r))}
            # Nothing but the pods' disappearance unblocks a Recreate, and Deployments do not watch pods.
            waits = len(owned) > 1 and bool(busy)
        plan = plan_rollout(deployment, owned, busy, self._clock.now())
        await self._carry_out(deployment, plan)
        if waits:
            return Result(1.0 if plan.look_again is None else min(1.0, plan.look_again))
        return Result(plan.look_again)

    async def _carry_out(self, deployment: FullDeployment, plan: RolloutPlan) -> None:
        namespace = deployment.namespace
        if deployment.metadata.annotations.get(REVISION) != plan.revision:
            annotations = {"metadata": {"annotations": {REVISION: plan.revision}}}
            await self._patch(FullDeployment, deployment.name, namespace, annotations)
        if plan.create is not None:
            path = FullReplicaSet.resource.path(namespace)
            if not await create_unless_there(self._client, path, plan.create):
                await self._resolve_collision(deployment, plan.create["metadata"]["name"])
        for name, replicas in plan.scale:
            await self._patch(FullReplicaSet, name, namespace, {"spec": {"replicas": replicas}})
        for name, wanted in plan.annotate:
            await self._patch(FullReplicaSet, name, namespace, {"metadata": {"annotations": wanted}})
        for name in plan.delete:
            try:
                await self._client.delete(FullReplicaSet, name, namespace=namespace)
            except NotFound:
                continue
        current = msgspec.to_builtins(deployment.status)
        if any(canonical(current.get(field, 0)) != canonical(value) for field, value in plan.status.items()):
            await self._patch(FullDeployment, deployment.name, namespace, {"status": plan.status}, "status")

    async def _resolve_collision(self, deployment: FullDeployment, name: str) -> None:
        """Take another hash when the name belongs to somebody else's ReplicaSet."""
        try:
            found = await self._client.get(FullReplicaSet, name, deployment.namespace)
        except NotFound:
            return
        if any(owner.uid == deployment.metadata.uid for owner in found.metadata.owner_references):
            return  # ours; the watch will tell
        status = {"status": {"collisionCount": deployment.status.collision_count + 1}}
        await self._patch(FullDeployment, deployment.name, deployment.namespace, status, "status")

    async def _patch(
        self,
        kind: type[FullDeployment] | type[FullReplicaSet],
        name: str,
        namespace: str,
        document: Mapping[str, object],
        subresource: str = "",
    ) -> None:
        try:
            await self._client.patch(
                kind, name, merge(dict(document)), namespace=namespace, subresource=subresource
            )
        except NotFound:
            return
