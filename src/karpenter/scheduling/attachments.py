"""How many volumes a node can attach, and which of them a pod brings.

A CSI driver tells in the node's CSINode how many volumes it attaches there. A claim counts once per node,
however many pods share it. Claims that are not bound yet count for the driver that will provision them.
"""

from collections.abc import Iterable, Mapping

from karpenter.apis import labels
from karpenter.apis.core import PersistentVolumeClaimSpec, Pod, Volume
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import volume_claim_key
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling.intree import (
    MIGRATED_TO,
    driver_of_provisioner,
    driver_of_source,
    inline_volume,
)
from karpenter.scheduling.storageclasses import NO_PROVISIONER, class_of

LearnedLimits = Mapping[tuple[str, str], int]
"""Volumes by (instance type, CSI driver)."""


def attachments(pod: Pod, snapshot: Snapshot) -> dict[str, frozenset[str]]:
    """Return what `pod` has attached to its node: by CSI driver, the `namespace/name` of claims.

    Disks that the pod names without a claim (the cloud volumes that used to be part of Kubernetes) are in it
    by their own name. Volumes that no driver attaches, and claims nothing is known of, are left out.
    """
    found: dict[str, set[str]] = {}
    for volume in pod.spec.volumes:
        inline = inline_volume(volume)
        if inline is not None:
            found.setdefault(inline[0], set()).add(inline[1])
            continue
        key = volume_claim_key(pod, volume)
        if not key:
            continue
        driver = _driver(key, volume, snapshot)
        if driver:
            found.setdefault(driver, set()).add(key)
    return {driver: frozenset(found[driver]) for driver in sorted(found)}


def attached(node: NodeView, snapshot: Snapshot) -> dict[str, frozenset[str]]:
    """Return what is attached to a node, or will be for its pods, as `attachments` does for one pod.

    A volume counts until it is detached, even when its pod is gone: so kube-scheduler counts.
    """
    there = [{driver: frozenset({_user_of(name, snapshot)})} for driver, name in node.attached_volumes]
    return union([*there, *(attachments(pod, snapshot) for pod in node.pods if pod.spec.volumes)])


def _user_of(volume: str, snapshot: Snapshot) -> str:
    """Return the key of the claim that a PersistentVolume is bound to, its own name when there is none."""
    found = snapshot.volumes.get(volume)
    claim = found.spec.claim_ref if found is not None else None
    return f"{claim.namespace}/{claim.name}" if claim is not None else volume


def union(several: Iterable[Mapping[str, frozenset[str]]]) -> dict[str, frozenset[str]]:
    """Return the attachments of several pods together: what they share counts once."""
    found: dict[str, frozenset[str]] = {}
    for one in several:
        for driver, keys in one.items():
            found[driver] = found.get(driver, frozenset()) | keys
    return {driver: found[driver] for driver in sorted(found)}


def over_limit(
    present: Mapping[str, frozenset[str]], more: Mapping[str, frozenset[str]], limits: Mapping[str, int]
) -> str:
    """Return why `more` cannot be attached beside what is `present`; empty when it can.

    A driver that gets nothing new is not looked at: a node that is over its limit already still takes pods
    without volumes of that driver.
    """
    for driver, keys in more.items():
        limit = limits.get(driver)
        here = present.get(driver, frozenset())
        if limit is not None and not keys <= here and len(keys | here) > limit:
            return f"would exceed volume limit: {len(keys | here)} volumes of {driver}, {limit} allowed"
    return ""


def learned_volume_limits(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """Return what running nodes tell of their instance types: the least limit seen, by (type, driver)."""
    learned: dict[tuple[str, str], int] = {}
    for node in snapshot.nodes:
        name = node.labels.get(labels.INSTANCE_TYPE, "")
        if name and node.initialized:
            for driver, count in node.volume_limits.items():
                key = (name, driver)
                learned[key] = min(count, learned.get(key, count))
    return dict(sorted(learned.items()))


def limits_of_type(instance_type: InstanceType, learned: LearnedLimits) -> dict[str, int]:
    """Return the limits to plan a new node of a type with: what its provider says, else what was learned."""
    seen = {driver: count for (name, driver), count in learned.items() if name == instance_type.name}
    return {**seen, **instance_type.volume_limits}


def limits_of_node(node: NodeView, learned: LearnedLimits) -> dict[str, int]:
    """Return the limits of a node to plan with: its own, and while it starts those learned of its type."""
    if node.initialized:
        return node.volume_limits
    kind = node.labels.get(labels.INSTANCE_TYPE, "")
    seen = {driver: count for (name, driver), count in learned.items() if name == kind}
    return {**seen, **node.volume_limits}


def _driver(key: str, volume: Volume, snapshot: Snapshot) -> str:
    """Return the CSI driver that attaches the claim `key` of a pod's `volume`, or nothing."""
    claim = snapshot.volume_claims.get(key)
    if claim is not None and claim.spec.volume_name:
        bound = snapshot.volumes.get(claim.spec.volume_name)
        if bound is not None:
            return bound.metadata.annotations.get(MIGRATED_TO) or driver_of_source(bound.spec)
    spec = claim.spec if claim is not None else _template(volume)
    storage_class = class_of(spec.storage_class_name, snapshot.storage_classes) if spec is not None else None
    if storage_class is None or storage_class.provisioner == NO_PROVISIONER:
        return ""
    return driver_of_provisioner(storage_class.provisioner)


def _template(volume: Volume) -> PersistentVolumeClaimSpec | None:
    """Return what the claim of a generic ephemeral volume will be, for one that is not made yet."""
    template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
    return template.spec if template is not None else None
