"""Claims and volumes: binding what fits, making what a class can make, reclaiming what is given back.

A class that waits for its first consumer is served once the scheduler has written the chosen node on the
claim; the volume made for it can then be reached from that node's zone only, as zonal disks are.
"""

from typing import Any

import msgspec

from karpenter.apis.core import Node
from karpenter.apis.labels import ZONE
from karpenter.apis.workloads import StorageClass
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.quantity import to_units
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.kinds import FullClaim, FullVolume
from karpenter.embedded.controllers.pods import create_unless_there, own_key
from karpenter.embedded.scheduler.predicates import label_selector_holds, node_selector_holds
from karpenter.embedded.scheduler.volumes import SELECTED_NODE, WAIT, allowed_selector
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Requeue, Result

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


class ReclaimingClass(StorageClass, frozen=True):
    """storage.k8s.io/v1 StorageClass with its reclaim policy."""

    reclaim_policy: str = "Delete"


def storage_of(claim: FullClaim) -> int:
    """Return how many bytes a claim asks for."""
    text = ((claim.spec.resources or {}).get("requests") or {}).get("storage", "0")
    return to_units("storage", str(text))


def matching_volume(claim: FullClaim, volumes: list[FullVolume], node: Node | None) -> FullVolume | None:
    """Return the smallest free volume that does for the claim (and can be reached from `node`)."""
    wanted = storage_of(claim)
    fitting: list[tuple[int, str, FullVolume]] = []
    for volume in volumes:
        spec, reference = volume.spec, volume.spec.claim_ref
        if volume.deleting or spec.storage_class_name != (claim.spec.storage_class_name or ""):
            continue
        size = to_units("storage", str(spec.capacity.get("storage", "0")))
        if reference is not None:
            ours = (reference.namespace, reference.name) == (claim.namespace, claim.name)
            if ours and reference.uid in ("", claim.metadata.uid):
                return volume
            continue
        if size < wanted or not set(claim.spec.access_modes) <= set(spec.access_modes):
            continue
        if claim.spec.selector is not None and not label_selector_holds(
            claim.spec.selector, volume.metadata.labels
        ):
            continue
        required = spec.node_affinity.required if spec.node_affinity else None
        if (
            node is not None
            and required is not None
            and not node_selector_holds(required, node.metadata.labels, node.name)
        ):
            continue
        fitting.append((size, volume.name, volume))
    return min(fitting, key=lambda each: each[:2])[2] if fitting else None


def volume_for(claim: FullClaim, storage_class: ReclaimingClass, node: Node | None) -> dict[str, Any]:
    """Return the volume a class makes for a claim, reachable where `node` (or the class) says."""
    name = f"pvc-{claim.metadata.uid}"
    required: list[dict[str, Any]] = []
    zone = node.metadata.labels.get(ZONE) if node is not None else None
    selector = allowed_selector(storage_class)
    if zone is not None:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        required = [{"matchExpressions": [expression]}]
    elif selector is not None:
        required = msgspec.to_builtins(selector)["nodeSelectorTerms"]
        for term in required:
            for expression in term["matchExpressions"]:
                expression.setdefault("operator", "In")
    spec: dict[str, Any] = {
        "capacity": {"storage": ((claim.spec.resources or {}).get("requests") or {}).get("storage", "1Gi")},
        "accessModes": claim.spec.access_modes or ["ReadWriteOnce"],
        "volumeMode": claim.spec.volume_mode,
        "storageClassName": storage_class.name,
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.metadata.uid,
        },
        "csi": {"driver": storage_class.provisioner, "volumeHandle": name},
    }
    if required:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": required}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: storage_class.provisioner}},
        "spec": spec,
    }


class VolumeController:
    """Binds claims (keys `namespace/name`) and reclaims volumes (keys without a slash)."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._claims = cache.informer(FullClaim)
        self._volumes = cache.informer(FullVolume)
        self._classes = cache.informer(ReclaimingClass)
        self._nodes = cache.informer(Node)
        self.controller = Controller(
            "volumes", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self.controller.watch(self._claims, self._claim_keys)
        self.controller.watch(self._volumes, self._volume_keys)
        self.controller.watch(self._classes, lambda change: self._unbound())

    def _unbound(self) -> list[str]:
        return [claim.key for claim in self._claims.items() if claim.status.phase != "Bound"]

    def _claim_keys(self, change: Change[FullClaim]) -> list[str]:
        claim = change.object
        if change.type == "DELETED":
            return [claim.spec.volume_name] if claim.spec.volume_name else []
        return [claim.key]

    def _volume_keys(self, change: Change[FullVolume]) -> list[str]:
        keys = list(own_key(change))
        return keys if change.type == "MODIFIED" else keys + self._unbound()

    async def reconcile(self, key: str) -> Result:
        """See to one claim or one volume."""
        namespace, slash, name = key.partition("/")
        try:
            if slash:
                await self._serve(namespace, name)
            else:
                await self._reclaim(key)
        except NotFound:
            return Result()
        return Result()

    async def _serve(self, namespace: str, name: str) -> None:
        claim = self._claims.get(name, namespace)
        if claim is None or claim.deleting or (claim.status.phase == "Bound" and claim.spec.volume_name):
            return
        if claim.spec.volume_name:
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                return
        else:
            class_name = claim.spec.storage_class_name or ""
            storage_class = self._classes.get(class_name) if class_name else None
            node_name = claim.metadata.annotations.get(SELECTED_NODE, "")
            waits = storage_class is not None and storage_class.volume_binding_mode == WAIT
            if waits and not node_name:
                await self._set_phase(claim, "Pending")
                return
            node = self._nodes.get(node_name) if node_name else None
            found = matching_volume(claim, self._volumes.items(), node)
            if found is None:
                if storage_class is None or storage_class.provisioner == "kubernetes.io/no-provisioner":
                    await self._set_phase(claim, "Pending")
                    return
                document = volume_for(claim, storage_class, node)
                await create_unless_there(self._client, FullVolume.resource.path(), document)
                raise Requeue(f"volume {document['metadata']['name']} was just made")
            volume = found
        await self._bind(claim, volume)

    async def _bind(self, claim: FullClaim, volume: FullVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is not None and reference.uid not in ("", claim.metadata.uid):
            return  # promised to another claim
        if reference is None or not reference.uid:
            document = {
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "name": claim.name,
                        "namespace": claim.namespace,
                        "uid": claim.metadata.uid,
                    }
                }
            }
            patch = merge(document, resource_version=volume.metadata.resource_version)
            await self._client.patch(FullVolume, volume.name, patch)
        await self._client.patch(
            FullVolume, volume.name, merge({"status": {"phase": "Bound"}}), subresource="status"
        )
        await self._client.patch(
            FullClaim,
            claim.name,
            merge(
                {
                    "metadata": {"uid": claim.metadata.uid, "annotations": {BIND_COMPLETED: "yes"}},
                    "spec": {"volumeName": volume.name},
                }
            ),
            namespace=claim.namespace,
        )
        status = {
            "phase": "Bound",
            "accessModes": volume.spec.access_modes,
            "capacity": volume.spec.capacity,
        }
        await self._client.patch(
            FullClaim, claim.name, merge({"status": status}), namespace=claim.namespace, subresource="status"
        )

    async def _set_phase(self, claim: FullClaim, phase: str) -> None:
        if claim.status.phase != phase:
            await self._client.patch(
                FullClaim,
                claim.name,
                merge({"status": {"phase": phase}}),
                namespace=claim.namespace,
                subresource="status",
            )

    async def _reclaim(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or volume.deleting:
            return
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            if not volume.status.phase:
                await self._volume_phase(volume, "Available")
            return
        claim = self._claims.get(reference.name, reference.namespace)
        if claim is not None and claim.metadata.uid == reference.uid:
            if not claim.spec.volume_name:
                self.controller.enqueue(claim.key)
            return
        if claim is None and volume.status.phase in ("", "Available", "Pending"):
            # Perhaps only our cache has not seen the claim yet; its arrival brings us back.
            try:
                await self._client.get(FullClaim, reference.name, reference.namespace)
                raise Requeue(f"claim {reference.name} is not in the cache yet")
            except NotFound:
                pass
        if volume.spec.persistent_volume_reclaim_policy == "Delete":
            try:
                await self._client.delete(FullVolume, name, uid=volume.metadata.uid)
            except Conflict:
                return
        elif volume.status.phase != "Released":
            await self._volume_phase(volume, "Released")

    async def _volume_phase(self, volume: FullVolume, phase: str) -> None:
        await self._client.patch(
            FullVolume, volume.name, merge({"status": {"phase": phase}}), subresource="status"
        )
