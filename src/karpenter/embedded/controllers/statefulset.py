"""StatefulSets: numbered pods with claims of their own, started and replaced in order.

`plan_statefulset` decides one step. Under `OrderedReady` a step touches one pod and waits for everything
before it; under `Parallel` only updates keep an order.
"""

from typing import Any

import msgspec

from karpenter.apis.core import PersistentVolumeClaim, Pod
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.kinds import FullStatefulSet
from karpenter.embedded.controllers.pods import (
    Expectations,
    available_in,
    create_unless_there,
    decode,
    delete_pod,
    is_finished,
    is_ready,
    own_key,
    owned_by,
    owner_key,
    owner_reference,
    pod_cache,
    pod_from,
    watch_pods,
)
from karpenter.embedded.controllers.rollout import scaled_value, template_hash
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Requeue, Result

REVISION_LABEL = "controller-revision-hash"
NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


class OrdinalPlan(msgspec.Struct, frozen=True):
    """Ordinals to create, pods to delete, and the status to report."""

    create: list[int]
    delete: list[Pod]
    status: dict[str, Any]
    look_again: float | None = None


def ordinal_of(statefulset: FullStatefulSet, pod: Pod) -> int:
    """Return the pod's number (-1: its name is none of the set's)."""
    head, _, tail = pod.name.rpartition("-")
    return int(tail) if head == statefulset.name and tail.isdigit() else -1


def revision_of(statefulset: FullStatefulSet) -> str:
    """Return the name of the template's present revision."""
    return f"{statefulset.name}-{template_hash(decode(statefulset.spec.template))}"


def plan_statefulset(statefulset: FullStatefulSet, pods: list[Pod], now: float) -> OrdinalPlan:
    """Decide the next step for a StatefulSet and what it reports."""
    spec = statefulset.spec
    start = spec.ordinals.start if spec.ordinals else 0
    wanted = range(start, start + spec.replicas)
    by_ordinal = {ordinal_of(statefulset, pod): pod for pod in pods}
    by_ordinal.pop(-1, None)
    update = revision_of(statefulset)
    ages = {n: available_in(p, spec.min_ready_seconds, now) for n, p in by_ordinal.items()}
    healthy = {n for n, p in by_ordinal.items() if ages[n] == 0.0 and not p.deleting and not is_finished(p)}
    ordered = spec.pod_management_policy != "Parallel"
    create, delete = _step(statefulset, wanted, by_ordinal, healthy, update, ordered)
    soon = [age for age in ages.values() if age]
    return OrdinalPlan(
        create,
        delete,
        _status(statefulset, wanted, by_ordinal, healthy, update),
        min(soon) if soon else None,
    )


def _step(
    statefulset: FullStatefulSet,
    wanted: range,
    pods: dict[int, Pod],
    healthy: set[int],
    update: str,
    ordered: bool,
) -> tuple[list[int], list[Pod]]:
    create: list[int] = []
    for ordinal in wanted:
        pod = pods.get(ordinal)
        if pod is None:
            create.append(ordinal)
        elif is_finished(pod) and not pod.deleting:
            return [], [pod]  # a finished pod makes room for its successor
        if ordered and ordinal not in healthy:
            return create[:1], []
    surplus = [pods[n] for n in sorted(pods, reverse=True) if n not in wanted]
    if surplus:
        if not ordered:
            return create, [p for p in surplus if not p.deleting]
        return create, [] if any(p.deleting for p in surplus) else surplus[:1]
    return create, _outdated(statefulset, wanted, pods, healthy, update)


def _outdated(
    statefulset: FullStatefulSet, wanted: range, pods: dict[int, Pod], healthy: set[int], update: str
) -> list[Pod]:
    """Return the pods to replace now: from the highest down to the partition, within maxUnavailable."""
    strategy = statefulset.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return []
    rolling = strategy.rolling_update
    partition = rolling.partition if rolling else 0
    allowed = scaled_value(rolling.max_unavailable if rolling else None, len(wanted), 1, up=True)
    unavailable = sum(n not in healthy for n in wanted)
    chosen: list[Pod] = []
    for ordinal in sorted(wanted, reverse=True):
        if ordinal < partition:
            break
        pod = pods.get(ordinal)
        if pod is None or pod.deleting:
            continue
        if pod.metadata.labels.get(REVISION_LABEL) == update:
            continue
        if ordinal not in healthy:
            chosen.append(pod)  # a broken pod of an old template holds nothing up by going
            break
        if unavailable >= max(1, allowed):
            break
        chosen.append(pod)
        unavailable += 1
    return chosen


def _status(
    statefulset: FullStatefulSet, wanted: range, pods: dict[int, Pod], healthy: set[int], update: str
) -> dict[str, Any]:
    alive = [p for p in pods.values() if not p.deleting and not is_finished(p)]
    updated = [p for p in alive if p.metadata.labels.get(REVISION_LABEL) == update]
    current = statefulset.status.current_revision or update
    rolled_out = len(updated) == len(wanted) == len(alive) and all(n in healthy for n in wanted)
    if rolled_out:
        current = update
    return {
        "observedGeneration": statefulset.metadata.generation,
        "replicas": len(alive),
        "readyReplicas": sum(is_ready(p) for p in alive),
        "availableReplicas": len(healthy),
        "currentReplicas": sum(p.metadata.labels.get(REVISION_LABEL) == current for p in alive),
        "updatedReplicas": len(updated),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": 0,
    }


def pod_for(statefulset: FullStatefulSet, ordinal: int) -> dict[str, Any]:
    """Return the pod of one number, using its own claims."""
    template = decode(statefulset.spec.template)
    name = f"{statefulset.name}-{ordinal}"
    claims = claims_for(statefulset, ordinal)
    names = {claim["metadata"]["labels_from"] for claim in claims}
    volumes = [v for v in (template.get("spec") or {}).get("volumes") or [] if v.get("name") not in names]
    volumes += [
        {
            "name": claim["metadata"]["labels_from"],
            "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]},
        }
        for claim in claims
    ]
    spec: dict[str, Any] = {"hostname": name}
    if statefulset.spec.service_name:
        spec["subdomain"] = statefulset.spec.service_name
    if volumes:
        spec["volumes"] = volumes
    labels = {
        NAME_LABEL: name,
        INDEX_LABEL: str(ordinal),
        REVISION_LABEL: revision_of(statefulset),
    }
    return pod_from(template, statefulset, name=name, labels=labels, spec=spec)


def claims_for(statefulset: FullStatefulSet, ordinal: int) -> list[dict[str, Any]]:
    """Return the claims of one number; `metadata.labels_from` is the template's name, not to be sent."""
    selector = statefulset.spec.selector
    labels = dict(selector.match_labels) if selector else {}
    claims = []
    for raw in statefulset.spec.volume_claim_templates:
        template = decode(raw)
        given = template.get("metadata") or {}
        metadata: dict[str, Any] = {
            "name": f"{given.get('name')}-{statefulset.name}-{ordinal}",
            "namespace": statefulset.namespace,
            "labels": {**(given.get("labels") or {}), **labels},
            "labels_from": given.get("name"),
        }
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        retention = statefulset.spec.persistent_volume_claim_retention_policy
        if retention is not None and retention.when_deleted == "Delete":
            metadata["ownerReferences"] = [owner_reference(statefulset)]
        claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata,
                "spec": template.get("spec") or {},
            }
        )
    return claims


class StatefulSetController:
    """Keeps StatefulSets' pods and claims."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._sets = cache.informer(FullStatefulSet)
        self._pods = pod_cache(cache)
        self._expectations = Expectations(clock)
        self._owner = owner_key("StatefulSet")
        self.controller = Controller(
            "statefulset", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self._pods.subscribe(self._observe)
        self.controller.watch(self._sets, own_key)
        watch_pods(self.controller, self._pods, self._owner)

    def _observe(self, change: Change[Pod]) -> None:
        for key in self._owner(change):
            self._expectations.observe(key, change)

    async def reconcile(self, key: str) -> Result:
        """Take one StatefulSet one step further and report."""
        namespace, _, name = key.partition("/")
        statefulset = self._sets.get(name, namespace)
        if statefulset is None:
            return Result()
        plan = plan_statefulset(statefulset, owned_by(self._pods, statefulset), self._clock.now())
        if not statefulset.deleting and self._expectations.satisfied(key):
            await self._carry_out(key, statefulset, plan)
        current = msgspec.to_builtins(statefulset.status)
        if any(current.get(field, 0) != value for field, value in plan.status.items()):
            try:
                await self._client.patch(
                    FullStatefulSet,
                    name,
                    merge({"status": plan.status}),
                    namespace=namespace,
                    subresource="status",
                )
            except NotFound:
                return Result()
        return Result(plan.look_again)

    async def _carry_out(self, key: str, statefulset: FullStatefulSet, plan: OrdinalPlan) -> None:
        for ordinal in plan.create:
            for claim in claims_for(statefulset, ordinal):
                del claim["metadata"]["labels_from"]
                await create_unless_there(
                    self._client, PersistentVolumeClaim.resource.path(statefulset.namespace), claim
                )
            pod = pod_for(statefulset, ordinal)
            if not await create_unless_there(
                self._client, Pod.resource.path(statefulset.namespace), pod
            ) and self._pods.get(pod["metadata"]["name"], statefulset.namespace):
                raise Requeue(f"pod {pod['metadata']['name']} still exists")
        for doomed in plan.delete:
            self._expectations.expect(key, f"-{doomed.metadata.uid}")
            await delete_pod(self._client, doomed)
        retention = statefulset.spec.persistent_volume_claim_retention_policy
        if retention is not None and retention.when_scaled == "Delete":
            for doomed in plan.delete:
                await self._delete_claims(statefulset, ordinal_of(statefulset, doomed))

    async def _delete_claims(self, statefulset: FullStatefulSet, ordinal: int) -> None:
        start = statefulset.spec.ordinals.start if statefulset.spec.ordinals else 0
        if start <= ordinal < start + statefulset.spec.replicas:
            return  # an update, not a scale-down
        for claim in claims_for(statefulset, ordinal):
            try:
                await self._client.delete(
                    PersistentVolumeClaim, claim["metadata"]["name"], namespace=statefulset.namespace
                )
            except NotFound:
                continue
