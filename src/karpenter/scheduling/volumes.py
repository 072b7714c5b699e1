"""What a pod's volumes demand of its node: places, as alternatives of requirements, and attachments."""

from collections.abc import Iterator
from itertools import product

from karpenter.apis import labels
from karpenter.apis.core import PersistentVolume, Pod
from karpenter.model.pods import volume_claim_key
from karpenter.model.requirements import Requirement, Requirements
from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.attachments import (
    attached,
    attachments,
    learned_volume_limits,
    limits_of_node,
    limits_of_type,
    over_limit,
    union,
)

__all__ = [
    "VolumeProblem",
    "alternatives",
    "attached",
    "attachments",
    "claim_keys",
    "learned_volume_limits",
    "limits_of_node",
    "limits_of_type",
    "over_limit",
    "union",
]

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_MAX_ALTERNATIVES = 64


class VolumeProblem(Exception):
    """A volume that keeps its pod from running anywhere, whatever is bought."""


def claim_keys(pod: Pod) -> list[str]:
    """Return the `namespace/name` of the claims that `pod` uses, in order of its volumes."""
    return [key for volume in pod.spec.volumes if (key := volume_claim_key(pod, volume))]


def alternatives(pod: Pod, snapshot: Snapshot) -> list[Requirements]:
    """Return what a node must be for all of `pod`'s volumes: one of these, at least one.

    Raises:
        VolumeProblem: when a claim is missing, lost, or cannot be bound to where the pod goes.
    """
    per_volume = [options for key in claim_keys(pod) if (options := list(_options(key, snapshot)))]
    combined = [Requirements()]
    for options in per_volume:
        merged = [left.merge(right) for left, right in product(combined, options)]
        combined = [r for r in merged if not r.impossible()] or merged
        if len(combined) > _MAX_ALTERNATIVES:
            raise VolumeProblem(
                f"volumes allow more than {_MAX_ALTERNATIVES} combinations of places; "
                "use fewer volumes or simpler topologies"
            )
    return combined


def _options(key: str, snapshot: Snapshot) -> Iterator[Requirements]:
    claim = snapshot.volume_claims.get(key)
    if claim is None:
        raise VolumeProblem(f"persistentvolumeclaim {key} not found")
    if claim.deleting:
        raise VolumeProblem(f"persistentvolumeclaim {key} is being deleted")
    if claim.status.phase == "Lost":
        raise VolumeProblem(f"persistentvolumeclaim {key} is lost")
    if claim.spec.volume_name:
        volume = snapshot.volumes.get(claim.spec.volume_name)
        if volume is None or volume.deleting:
            raise VolumeProblem(
                f"persistentvolume {claim.spec.volume_name} of persistentvolumeclaim {key} is gone"
            )
        if _BIND_COMPLETED not in claim.metadata.annotations:
            raise VolumeProblem(f"persistentvolumeclaim {key} is not fully bound yet")
        yield from _of_volume(volume)
        return
    if not claim.spec.storage_class_name:
        raise VolumeProblem(f"unbound persistentvolumeclaim {key} must define a storage class")
    storage_class = snapshot.storage_classes.get(claim.spec.storage_class_name)
    if storage_class is None:
        raise VolumeProblem(
            f"storageclass {claim.spec.storage_class_name} of persistentvolumeclaim {key} not found"
        )
    if (storage_class.volume_binding_mode or "Immediate") == "Immediate":
        raise VolumeProblem(f"persistentvolumeclaim {key} with immediate volume binding is not bound yet")
    for topology in storage_class.allowed_topologies:
        yield Requirements.of(
            *(Requirement.of(e.key, "In", e.values or ()) for e in topology.match_label_expressions)
        )


def _of_volume(volume: PersistentVolume) -> Iterator[Requirements]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return
    pinned_to_host = volume.spec.local is not None or volume.spec.host_path is not None
    for term in affinity.required.node_selector_terms:
        # A local volume cannot follow, but its pod may be planned: its claim is remade elsewhere.
        yield Requirements.from_specs(
            e for e in term.match_expressions if not (pinned_to_host and e.key == labels.KUBERNETES_HOSTNAME)
        )
