"""Workloads as the pods and claims that their controllers would make of them.

Pods that are given and belong to a workload (by owner reference) count as its replicas; only what is missing
is made. Names follow the controllers' patterns; where those draw letters, ours follow from name and number.
A CronJob counts as one run, whenever that is, unless a Job of it is under way.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from karpenter.apis.core import PersistentVolumeClaim, Pod, PodStatus, PVCSource, Volume
from karpenter.apis.meta import ObjectMeta
from karpenter.cli.planning.checking import convert, finding
from karpenter.cli.planning.inventory import Inventory, Workload
from karpenter.embedded.controllers.rollout import HASH_LABEL, template_hash
from karpenter.embedded.controllers.statefulset import INDEX_LABEL, NAME_LABEL, REVISION_LABEL
from karpenter.model.pods import is_active, pod_key

MOST_PODS = 500_000
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
Owner = tuple[str, str, str]
"""Kind, namespace, name."""


def expand(inventory: Inventory) -> None:
    """Add the missing pods and claims of all workloads to `inventory`."""
    owned = _pods_by_owner(inventory)
    parents = {
        _controller(rs.raw) for key, rs in sorted(inventory.workloads.items()) if key[0] == "ReplicaSet"
    }
    room = MOST_PODS - len(inventory.pods)
    for key, workload in sorted(inventory.workloads.items()):
        if workload.kind == "Deployment" and key in parents:
            continue  # its ReplicaSets are given, and hold the counts
        if workload.kind == "CronJob":
            run = _run(inventory, workload)
            if run is None:
                continue
            workload = run
        present = owned.get(key, [])
        missing = _missing(workload, present)
        room -= missing
        if room < 0:
            problem = f"more than {MOST_PODS} pods in all"
            fix = "plan fewer pods, or less at a time"
            inventory.findings.append(finding(workload.document, _COUNT[key[0]], problem, fix))
            return
        taken = {pod.name for pod in present}
        label = _label(inventory, workload)
        for pod in present:
            inventory.origin[pod_key(pod)] = label
        for pod in _pods_of(inventory, workload, missing, taken):
            inventory.pods[pod_key(pod)] = pod
            inventory.origin[pod_key(pod)] = label


def _controller(raw: dict[str, Any]) -> Owner | None:
    metadata = raw["metadata"]
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller"):
            return str(owner.get("kind")), str(metadata["namespace"]), str(owner.get("name"))
    return None


def _pods_by_owner(inventory: Inventory) -> dict[Owner, list[Pod]]:
    found: dict[Owner, list[Pod]] = defaultdict(list)
    for key in sorted(inventory.pods):
        pod = inventory.pods[key]
        for owner in pod.metadata.owner_references:
            if owner.controller:
                found[(owner.kind, pod.namespace, owner.name)].append(pod)
    return found


def _label(inventory: Inventory, workload: Workload) -> str:
    parent = _controller(workload.raw)
    return f"{parent[0]}/{parent[2]}" if parent in inventory.workloads else f"{workload.kind}/{workload.name}"


_COUNT = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"), "spec.replicas"),
    "Job": "spec.parallelism",
    "CronJob": "spec.jobTemplate.spec.parallelism",
}


def _run(inventory: Inventory, cron: Workload) -> Workload | None:
    """Return the Job of a CronJob's next run; None when it is suspended, or a Job of it is under way."""
    ours = ("CronJob", cron.namespace, cron.name)
    for key, job in sorted(inventory.workloads.items()):
        if key[0] == "Job" and _controller(job.raw) == ours and not _is_over(job):
            return None  # this is the run
    if cron.spec.get("suspend"):
        inventory.note_once(f"CronJob/{cron.name}: is suspended; left out of the plan")
        return None
    inventory.note_once(f"CronJob/{cron.name}: planned for one run")
    template, name = cron.spec["jobTemplate"], f"{cron.name}-run"
    metadata = {
        **(template.get("metadata") or {}),
        "name": name,
        "namespace": cron.namespace,
        "uid": f"job/{cron.namespace}/{name}",
        "ownerReferences": [{"kind": "CronJob", "name": cron.name, "controller": True}],
    }
    raw = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}
    return Workload(cron.document, raw, cron.template)


def _is_over(job: Workload) -> bool:
    return any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True"
        for c in (job.raw.get("status") or {}).get("conditions") or []
    )


def _missing(workload: Workload, present: list[Pod]) -> int:
    """Return how many pods the controller would start now."""
    active = sum(is_active(pod) for pod in present)
    if workload.kind == "StatefulSet":
        return int(workload.spec.get("replicas", 1))  # by number; those present are passed over
    if workload.kind != "Job":
        return max(0, int(workload.spec.get("replicas", 1)) - active)
    spec, status = workload.spec, workload.raw.get("status") or {}
    if _is_over(workload) or spec.get("suspend"):
        return 0
    parallel = int(spec.get("parallelism", 1))
    completions = spec.get("completions", 1 if "parallelism" not in spec else None)
    done = max(int(status.get("succeeded") or 0), sum(p.status.phase == "Succeeded" for p in present))
    wanted = parallel if completions is None else min(parallel, int(completions) - done)
    return max(0, wanted - active)


def _pods_of(inventory: Inventory, workload: Workload, count: int, taken: set[str]) -> Iterator[Pod]:
    if workload.kind == "StatefulSet":
        yield from _numbered(inventory, workload, count, taken)
        return
    labels: dict[str, str] = {}
    owner, prefix = workload.owner(), workload.name
    if workload.kind == "Deployment":
        digest = template_hash(workload.spec["template"])
        labels[HASH_LABEL] = digest
        prefix = f"{workload.name}-{digest}"
        owner = msgspec.structs.replace(
            owner, kind="ReplicaSet", name=prefix, uid=f"replicaset/{workload.namespace}/{prefix}"
        )
    elif workload.kind == "Job":
        labels = {
            **dict.fromkeys(("batch.kubernetes.io/controller-uid", "controller-uid"), workload.uid),
            **dict.fromkeys(("batch.kubernetes.io/job-name", "job-name"), workload.name),
        }
    indexed = workload.kind == "Job" and workload.spec.get("completionMode") == "Indexed"
    first = _first(workload, labels)
    base = msgspec.structs.replace(first.metadata, owner_references=[owner])
    for number in range(count):
        stem = f"{prefix}-{number}" if indexed else prefix
        name = _drawn(stem, number, taken)
        meta = msgspec.structs.replace(base, name=name, uid=f"pod/{workload.namespace}/{name}")
        if indexed:
            meta = msgspec.structs.replace(meta, labels={**meta.labels, _JOB_INDEX: str(number)})
        yield msgspec.structs.replace(first, metadata=meta)


def _drawn(stem: str, number: int, taken: set[str]) -> str:
    """Return `stem` with five letters that follow from it and `number`, other than those `taken`."""
    attempt = 0
    while True:
        value = int.from_bytes(hashlib.sha256(f"{stem}/{number}/{attempt}".encode()).digest()[:8], "big")
        letters = []
        for _ in range(5):
            value, index = divmod(value, len(_ALPHABET))
            letters.append(_ALPHABET[index])
        name = f"{stem[:58]}-{''.join(letters)}" if len(stem) > 57 else f"{stem}-{''.join(letters)}"
        if name not in taken:
            taken.add(name)
            return name
        attempt += 1


def _first(workload: Workload, labels: dict[str, str]) -> Pod:
    """Return a pod of the template that has no name yet."""
    template = workload.template
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(
            namespace=workload.namespace,
            labels={**template.metadata.labels, **labels},
            annotations=template.metadata.annotations,
            owner_references=[workload.owner()],
        ),
        spec=template.spec,
        status=PodStatus(phase="Pending"),
    )


def _numbered(inventory: Inventory, workload: Workload, count: int, taken: set[str]) -> Iterator[Pod]:
    """Yield a StatefulSet's pods, each with claims of its own, which are added too."""
    start = int((workload.spec.get("ordinals") or {}).get("start") or 0)
    revision = f"{workload.name}-{template_hash(workload.spec['template'])}"
    claims = _claim_templates(inventory, workload)
    own = {claim.name for claim in claims}
    for number in range(start, start + count):
        name = f"{workload.name}-{number}"
        if name in taken:
            continue
        labels = {NAME_LABEL: name, INDEX_LABEL: str(number), REVISION_LABEL: revision}
        pod = _first(workload, labels)
        volumes = [v for v in pod.spec.volumes if v.name not in own]
        for claim in claims:
            claimed = f"{claim.name}-{name}"
            volumes.append(Volume(name=claim.name, persistent_volume_claim=PVCSource(claim_name=claimed)))
            key = f"{workload.namespace}/{claimed}"
            if key not in inventory.volume_claims:
                inventory.volume_claims[key] = _named(claim, claimed, workload.namespace)
        yield msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(pod.metadata, name=name, uid=f"pod/{workload.namespace}/{name}"),
            spec=msgspec.structs.replace(pod.spec, volumes=volumes) if claims else pod.spec,
        )


def _claim_templates(inventory: Inventory, workload: Workload) -> list[PersistentVolumeClaim]:
    claims = []
    for raw in workload.spec.get("volumeClaimTemplates") or []:
        claim, findings = convert(workload.document, raw, PersistentVolumeClaim)
        inventory.findings += findings
        if claim is not None:
            claims.append(claim)
    return claims


def _named(claim: PersistentVolumeClaim, name: str, namespace: str) -> PersistentVolumeClaim:
    meta: ObjectMeta = claim.metadata
    uid = f"persistentvolumeclaim/{namespace}/{name}"
    return msgspec.structs.replace(
        claim, metadata=msgspec.structs.replace(meta, name=name, namespace=namespace, uid=uid)
    )


def origin_of(inventory: Inventory, pod: Pod) -> str:
    """Return what people call the thing a pod belongs to: its workload, or itself."""
    known = inventory.origin.get(pod_key(pod))
    if known is not None:
        return known
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return f"{owner.kind}/{owner.name}"
    return f"Pod/{pod.name}"
