"""Claims, volumes and storage classes for tests, in one line each."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from karpenter.apis.core import (
    EphemeralSource,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    Pod,
    PVCSource,
    Volume,
    VolumeClaimTemplateSpec,
    VolumeNodeAffinity,
    VolumeResources,
)
from karpenter.apis.meta import ObjectMeta, OwnerReference, SelectorRequirement
from karpenter.apis.workloads import AllowedTopology, StorageClass
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.testing.builders import a_pod

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def a_claim(
    name: str = "data",
    volume: str = "",
    storage_class: str | None = None,
    *,
    complete: bool = True,
    phase: str = "",
    deleted: str | None = None,
    owner: Pod | None = None,
    access_modes: Sequence[str] = (),
) -> PersistentVolumeClaim:
    """Return a claim in `default`, bound to `volume` if given; `owner` is the pod of an ephemeral volume."""
    owners = [] if owner is None else [_controller(owner)]
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            annotations={BIND_COMPLETED: "yes"} if volume and complete else {},
            deletion_timestamp=deleted,
            owner_references=owners,
        ),
        spec=PersistentVolumeClaimSpec(
            volume_name=volume,
            storage_class_name=storage_class,
            access_modes=list(access_modes),
            resources=VolumeResources(requests={"storage": "1Gi"}),
        ),
        status=PersistentVolumeClaimStatus(phase=phase or ("Bound" if volume else "Pending")),
    )


def a_volume(
    name: str = "pv",
    *terms: NodeSelectorTerm,
    annotations: Mapping[str, str] | None = None,
    deleted: str | None = None,
    spec: Mapping[str, object] | None = None,
) -> PersistentVolume:
    """Return a PersistentVolume that may be used where one of `terms` holds (anywhere without);
    `spec` replaces fields."""
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=list(terms))) if terms else None
    fields = {"node_affinity": affinity, **(spec or {})}
    return PersistentVolume(
        metadata=ObjectMeta(name=name, annotations=dict(annotations or {}), deletion_timestamp=deleted),
        spec=msgspec.structs.replace(PersistentVolumeSpec(), **fields),
    )


def a_storage_class(
    name: str = "fast",
    provisioner: str = "fast.example.com",
    *,
    topologies: Iterable[Sequence[tuple[str, Sequence[str]]]] = (),
    mode: str | None = "WaitForFirstConsumer",
    default: bool = False,
    created: str | None = None,
) -> StorageClass:
    """Return a storage class; each of `topologies` is one alternative: keys and their values."""
    return StorageClass(
        metadata=ObjectMeta(
            name=name, annotations={DEFAULT_CLASS: "true"} if default else {}, creation_timestamp=created
        ),
        provisioner=provisioner,
        volume_binding_mode=mode,
        allowed_topologies=[
            AllowedTopology(
                match_label_expressions=[
                    SelectorRequirement(key=key, operator="", values=list(values)) for key, values in term
                ]
            )
            for term in topologies
        ],
    )


def a_user(*claims: str, name: str = "pod", node_name: str = "") -> Pod:
    """Return a pod that uses claims by name."""
    volumes = [Volume(name=c, persistent_volume_claim=PVCSource(claim_name=c)) for c in claims]
    return a_pod(name, node_name=node_name, spec={"volumes": volumes})


def an_ephemeral_volume(name: str = "scratch", storage_class: str | None = None) -> Volume:
    """Return a generic ephemeral volume."""
    spec = PersistentVolumeClaimSpec(storage_class_name=storage_class)
    return Volume(
        name=name, ephemeral=EphemeralSource(volume_claim_template=VolumeClaimTemplateSpec(spec=spec))
    )


def storage(*objects: object, nodes: tuple[NodeView, ...] = ()) -> Snapshot:
    """Return a snapshot of claims, volumes and storage classes."""
    return Snapshot(
        taken_at=0.0,
        nodes=nodes,
        pending=(),
        nodepools=(),
        volume_claims={o.key: o for o in objects if isinstance(o, PersistentVolumeClaim)},
        volumes={o.key: o for o in objects if isinstance(o, PersistentVolume)},
        storage_classes={o.key: o for o in objects if isinstance(o, StorageClass)},
    )


def _controller(pod: Pod) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True)
