"""What a pod's claims demand of a node, worked out from claims, volumes and storage classes."""

from collections.abc import Callable

import msgspec

from karpenter.apis.core import NodeSelector, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim
from karpenter.apis.workloads import StorageClass

SELECTED_NODE = "volume.kubernetes.io/selected-node"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
WAIT = "WaitForFirstConsumer"
_encoder = msgspec.json.Encoder(order="sorted")

Selector = tuple[bytes, NodeSelector]


class VolumePlan(msgspec.Struct, frozen=True):
    """Node selectors that all must hold, what will be attached, and the claims to bind afterwards."""

    bound_affinities: list[Selector] = []
    allowed_topologies: list[Selector] = []
    attachments: tuple[tuple[str, str], ...] = ()
    to_bind: tuple[str, ...] = ()


class VolumeView(msgspec.Struct, frozen=True):
    """How to look up what volumes are made of (names; claims by namespace and name)."""

    claim: Callable[[str, str], PersistentVolumeClaim | None]
    volume: Callable[[str], PersistentVolume | None]
    storage_class: Callable[[str], StorageClass | None]


def plan_volumes(view: VolumeView, namespace: str, claims: tuple[str, ...]) -> VolumePlan | str:
    """Return what the claims demand, or why no node can do as things are."""
    affinities: list[Selector] = []
    topologies: list[Selector] = []
    attachments: list[tuple[str, str]] = []
    to_bind: list[str] = []
    for name in claims:
        claim = view.claim(namespace, name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.deleting:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if claim.spec.volume_name:
            volume = view.volume(claim.spec.volume_name)
            if volume is None:
                return f'persistentvolume "{claim.spec.volume_name}" not found'
            if volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None:
                affinities.append(_keyed(volume.spec.node_affinity.required))
            if volume.spec.csi is not None:
                attachments.append((volume.spec.csi.driver, volume.spec.csi.volume_handle or volume.name))
            continue
        class_name = claim.spec.storage_class_name or ""
        storage_class = view.storage_class(class_name)
        if storage_class is None or storage_class.volume_binding_mode != WAIT:
            return "pod has unbound immediate PersistentVolumeClaims"
        selector = allowed_selector(storage_class)
        if selector is not None:
            topologies.append(_keyed(selector))
        attachments.append((storage_class.provisioner, f"{namespace}/{name}"))
        to_bind.append(name)
    return VolumePlan(affinities, topologies, tuple(attachments), tuple(to_bind))


def allowed_selector(storage_class: StorageClass) -> NodeSelector | None:
    """Return a storage class's allowed topologies as a node selector (None: anywhere)."""
    if not storage_class.allowed_topologies:
        return None
    return NodeSelector(
        node_selector_terms=[
            NodeSelectorTerm(match_expressions=topology.match_label_expressions)
            for topology in storage_class.allowed_topologies
        ]
    )


def _keyed(selector: NodeSelector) -> Selector:
    return _encoder.encode(selector), selector
