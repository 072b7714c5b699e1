"""What a pod's volumes demand of its node: places, as alternatives of requirements, and attachments."""

from itertools import product

from karpenter.apis import labels
from karpenter.apis.core import PersistentVolume, PersistentVolumeClaim, Pod, Volume
from karpenter.apis.workloads import StorageClass
from karpenter.model.pods import is_active, pod_key, term_expressions, volume_claim_key
from karpenter.model.requirements import Requirement, Requirements
from karpenter.model.snapshot import Snapshot
from karpenter.model.volumerules import VolumeRules
from karpenter.scheduling.attachments import (
    attached,
    attachments,
    learned_volume_limits,
    limits_of_node,
    limits_of_type,
    over_limit,
    union,
)
from karpenter.scheduling.intree import driver_of_provisioner, driver_of_source
from karpenter.scheduling.storageclasses import class_of

__all__ = [
    "VolumeProblem",
    "alternatives",
    "attached",
    "attachments",
    "claim_keys",
    "exclusive_users",
    "learned_volume_limits",
    "limits_of_node",
    "limits_of_type",
    "over_limit",
    "union",
    "volume_error",
]

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_MAX_ALTERNATIVES = 64


class VolumeProblem(Exception):
    """A volume that keeps its pod from running anywhere, whatever is bought."""


def claim_keys(pod: Pod) -> list[str]:
    """Return the `namespace/name` of the claims that `pod` uses, in order of its volumes."""
    return [key for volume in pod.spec.volumes if (key := volume_claim_key(pod, volume))]


# --- is the claim in order? -----------------------------------------------------------------------------


def exclusive_users(snapshot: Snapshot) -> dict[str, str]:
    """Return which running pod has a claim that only one pod at a time may use: pod key by claim key.

    Pods that are going, or whose node is, give it up by themselves.
    """
    exclusive = {k for k, c in snapshot.volume_claims.items() if "ReadWriteOncePod" in c.spec.access_modes}
    if not exclusive:
        return {}
    return {
        key: pod_key(pod)
        for node in snapshot.nodes
        if not node.marked_for_deletion
        for pod in node.pods
        if pod.spec.volumes and pod.spec.node_name and is_active(pod)
        for key in claim_keys(pod)
        if key in exclusive
    }


def volume_error(pod: Pod, volume: Volume, snapshot: Snapshot, rules: VolumeRules | None = None) -> str:
    """Return why one of the pod's volumes keeps it from running on any node; empty when it does not."""
    key = volume_claim_key(pod, volume)
    if not key:
        return ""
    claim = snapshot.volume_claims.get(key)
    if claim is None:
        return f"persistentvolumeclaim {key} not found"
    if claim.deleting:
        return f"persistentvolumeclaim {key} is being deleted"
    if claim.status.phase == "Lost":
        return f"persistentvolumeclaim {key} has lost its volume"
    if volume.ephemeral is not None and not _made_for(claim, pod):
        return f"persistentvolumeclaim {key} was not created for the ephemeral volume of this pod; rename one"
    if claim.spec.volume_name:
        return _bound_error(claim, snapshot, rules or VolumeRules())
    return _unbound_error(claim, snapshot, rules or VolumeRules())


def _made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    owners = claim.metadata.owner_references
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in owners)


def _bound_error(claim: PersistentVolumeClaim, snapshot: Snapshot, rules: VolumeRules) -> str:
    name = claim.spec.volume_name
    volume = snapshot.volumes.get(name)
    if volume is None:
        return f"persistentvolume {name} of persistentvolumeclaim {claim.key} not found"
    if volume.deleting:
        return f"persistentvolume {name} of persistentvolumeclaim {claim.key} is being deleted"
    if _BIND_COMPLETED not in claim.metadata.annotations:
        return f"persistentvolumeclaim {claim.key} is not fully bound to persistentvolume {name} yet"
    driver = driver_of_source(volume.spec)
    if driver in _drivers(rules.unsupported_provisioners):
        return f"persistentvolume {name}: driver {driver} does not work on nodes of this cloud provider"
    return ""


def _unbound_error(claim: PersistentVolumeClaim, snapshot: Snapshot, rules: VolumeRules) -> str:
    storage_class = class_of(claim.spec.storage_class_name, snapshot.storage_classes)
    if storage_class is None:
        name = claim.spec.storage_class_name
        if not name:
            return f"unbound persistentvolumeclaim {claim.key} must define a storage class"
        return f"storageclass {name} of persistentvolumeclaim {claim.key} not found"
    if (storage_class.volume_binding_mode or "Immediate") == "Immediate":
        return f"persistentvolumeclaim {claim.key} with immediate volume binding is not yet bound"
    driver = driver_of_provisioner(storage_class.provisioner)
    if driver in _drivers(rules.unsupported_provisioners):
        return (
            f"storageclass {storage_class.name}: provisioner {storage_class.provisioner} does not work on "
            "nodes of this cloud provider"
        )
    for topology in storage_class.allowed_topologies:
        for expression in topology.match_label_expressions:
            if expression.key in rules.unsupported_topology_keys:
                return (
                    f"storageclass {storage_class.name}: allowedTopologies uses key {expression.key}, which "
                    "nodes of this cloud provider do not have"
                )
    return ""


def _drivers(provisioners: frozenset[str]) -> frozenset[str]:
    return frozenset(driver_of_provisioner(p) for p in provisioners)


# --- where may it be? -----------------------------------------------------------------------------------


def alternatives(pod: Pod, snapshot: Snapshot) -> list[Requirements]:
    """Return what a node must be for all of `pod`'s volumes: one of these, at least one.

    They constrain the node, not the pod: spread and affinity count as if they were not there.

    Raises:
        VolumeProblem: when a claim is not in order, or no place can have all volumes.
    """
    combined = [Requirements()]
    names: list[str] = []
    for volume in pod.spec.volumes:
        error = volume_error(pod, volume, snapshot)
        if error:
            raise VolumeProblem(error)
        options = _options(pod, volume, snapshot)
        if options is None:
            continue
        names.append(volume.name)
        merged = dict.fromkeys(left.merge(right) for left, right in product(combined, options))
        combined = [r for r in merged if not r.impossible()]
        if not combined:
            raise VolumeProblem(f"volumes {', '.join(names)} have no place in common")
        if len(combined) > _MAX_ALTERNATIVES:
            raise VolumeProblem(
                f"volumes {', '.join(names)} allow more than {_MAX_ALTERNATIVES} combinations of places; "
                "use fewer volumes or simpler topologies"
            )
    return combined


def _options(pod: Pod, volume: Volume, snapshot: Snapshot) -> list[Requirements] | None:
    """Return the places one volume may be in; None when it does not care."""
    claim = snapshot.volume_claims.get(volume_claim_key(pod, volume))
    if claim is None:
        return None
    if claim.spec.volume_name:
        return _of_volume(snapshot.volumes[claim.spec.volume_name])
    storage_class = class_of(claim.spec.storage_class_name, snapshot.storage_classes)
    return _of_class(storage_class) if storage_class is not None else None


def _of_volume(volume: PersistentVolume) -> list[Requirements] | None:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    local = volume.spec.local is not None or volume.spec.host_path is not None
    # A term that asks for nothing matches no node, by Kubernetes' rules.
    terms = [e for t in affinity.required.node_selector_terms if (e := term_expressions(t))]
    if not terms:
        raise VolumeProblem(f"persistentvolume {volume.name}: its node affinity matches no node")
    # A local volume cannot follow, but its pod may be planned: its claim is remade elsewhere.
    return [Requirements.from_specs(e for e in term if not (local and e.key in _HOST_KEYS)) for term in terms]


_HOST_KEYS = frozenset({labels.KUBERNETES_HOSTNAME, labels.NODE_NAME_FIELD})


def _of_class(storage_class: StorageClass) -> list[Requirements] | None:
    topologies = [t.match_label_expressions for t in storage_class.allowed_topologies]
    if not topologies:
        return None
    places = [
        Requirements.of(*(Requirement.of(e.key, "In", e.values or ()) for e in term))
        for term in topologies
        if term
    ]
    if not places:
        raise VolumeProblem(f"storageclass {storage_class.name}: its allowedTopologies match no node")
    return places
