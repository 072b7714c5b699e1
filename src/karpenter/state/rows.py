"""One row of the snapshot: a Node, its NodeClaim, or both, made into a NodeView. Pure.

Which of the two speaks (labels, taints, size) depends on how far the machine has come; see `view_of`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from karpenter.apis import conditions
from karpenter.apis import labels as known
from karpenter.apis.core import Node, Pod, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.workloads import CSINode, VolumeAttachment
from karpenter.base.quantity import Resources, maximum, resources_of, total
from karpenter.model import taints
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import is_daemon, pod_key
from karpenter.model.requirements import Requirements
from karpenter.model.sizes import sizes
from karpenter.model.snapshot import NodeView


def view_of(
    node: Node | None,
    claim: NodeClaim | None,
    *,
    pods: Sequence[Pod],
    requests: Mapping[str, Resources],
    managed: bool,
    marked: bool,
    nominated_until: float,
    planned: "PlannedSize | None" = None,
    storage: "Storage | None" = None,
    headroom_pods: int = 0,
) -> NodeView:
    """Return the row of a machine.

    Until the Node is registered the claim's labels, annotations and taints count; until it is initialized
    the claim fills in resources that the Node lacks, and startup and ephemeral taints are left out, since
    they will go. A cordoned node has the taint of one at once. `planned` is what is known of a claim that
    is not launched. `requests` gives what each of `pods` takes, by pod key; `storage` what its
    drivers can attach and have attached.
    """
    if node is None and claim is None:
        raise ValueError("a row needs a Node or a NodeClaim")
    registered = _has_label(node, claim, known.REGISTERED)
    initialized = _has_label(node, claim, known.INITIALIZED)
    claim_speaks = claim is not None and (node is None or not registered)
    speaker = claim if claim_speaks or node is None else node
    assert speaker is not None
    labels = dict(speaker.metadata.labels)
    if planned is not None:
        labels = {**planned.labels, **labels}
    bound = tuple(sorted(pods, key=pod_key))
    return NodeView(
        name=node.name if node is not None else speaker.name,
        provider_id=node.spec.provider_id if node is not None else _provider_id(claim),
        node=node,
        claim=claim,
        nodepool=speaker.metadata.labels.get(known.NODEPOOL, ""),
        labels=labels,
        taints=_taints(node, claim, claim_speaks=claim_speaks, settled=initialized or claim is None),
        capacity={**_size(node, claim, "capacity", initialized, planned), "nodes": 1},
        allocatable=_size(node, claim, "allocatable", initialized, planned),
        pods=bound,
        requested=total(requests[pod_key(p)] for p in bound),
        daemon_requested=total(requests[pod_key(p)] for p in bound if is_daemon(p)),
        managed=managed,
        registered=registered,
        initialized=initialized,
        marked_for_deletion=marked or is_deleted(node, claim),
        volume_limits=dict(storage.limits) if storage is not None else {},
        attached_volumes=storage.attached if storage is not None else (),
        nominated_until=nominated_until,
        headroom_pods=headroom_pods,
    )


class Storage(NamedTuple):
    """What the CSI drivers of a node say."""

    limits: Mapping[str, int]
    """How many volumes each attaches, where it says so."""
    attached: tuple[tuple[str, str], ...]
    """(driver, PersistentVolume) of each attachment there is, sorted."""

    @staticmethod
    def of(csi_node: CSINode | None, attachments: Iterable[VolumeAttachment] = ()) -> "Storage":
        """Return what a node's CSINode and the VolumeAttachments to it say."""
        drivers = sorted(csi_node.spec.drivers, key=lambda d: d.name) if csi_node is not None else []
        named = [(a.spec.attacher, a.spec.source.persistent_volume_name) for a in attachments]
        return Storage(
            limits={
                driver.name: driver.allocatable.count
                for driver in drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            },
            attached=tuple(sorted((driver, volume) for driver, volume in named if volume)),
        )


class PlannedSize:
    """What can be relied on of a claim that is not launched: the least that any type it allows would give.

    The least, resource by resource, because pods planned onto it must fit whatever the cloud picks; never
    less than the claim asks for, because every type it lists was chosen to hold that. For limits the most
    counts instead (`most`): whatever is launched must stay within them.
    """

    def __init__(self, claim: NodeClaim, types: Iterable[InstanceType]) -> None:
        """Work it out from the claim's requirements and its pool's catalogue (empty: unknown)."""
        wanted = Requirements.from_specs(claim.spec.requirements)
        requests = resources_of(claim.spec.resources.requests)
        named = wanted.get(known.INSTANCE_TYPE)
        fitting = [
            t
            for listed in types
            if named.has(listed.name) and not listed.requirements.intersects(wanted)
            for t in _machines(listed, wanted)
            if all(amount <= t.allocatable.get(name, 0) for name, amount in requests.items())
        ]
        own = {key: value for key in wanted if (value := wanted.single_value(key)) and key not in _NOT_LABELS}
        self.labels = {**_common_labels(fitting), **own}
        self.allocatable = maximum(_least([t.allocatable for t in fitting]), requests)
        self.capacity = maximum(_least([t.capacity for t in fitting]), requests)
        self.most: Resources = {**maximum(_most([t.capacity for t in fitting]), requests), "nodes": 1}


def _machines(kind: InstanceType, wanted: Requirements) -> Sequence[InstanceType]:
    """Return what a node of a type may be under `wanted`, size by size."""
    if not kind.has_overrides:
        return (kind,)
    return [s for s in sizes(kind) if any(not wanted.intersects(o.requirements) for o in s.offerings)]


_NOT_LABELS = frozenset({known.REGISTERED, known.INITIALIZED, known.KUBERNETES_HOSTNAME})


def _common_labels(types: Sequence[InstanceType]) -> dict[str, str]:
    """Return the labels of which all `types` have the same one value."""
    common = {key: types[0].requirements.single_value(key) for key in types[0].requirements} if types else {}
    for kind in types:
        own = kind.requirements
        # Most labels are gone after a few types.
        common = {key: value for key, value in common.items() if value and own.single_value(key) == value}
    return common


def _least(sizes: Sequence[Mapping[str, int]]) -> Resources:
    if not sizes:
        return {}
    shared = set(sizes[0]).intersection(*sizes[1:])
    return {name: min([size[name] for size in sizes]) for name in sorted(shared)}


def _most(sizes: Sequence[Mapping[str, int]]) -> Resources:
    names = sorted({name for size in sizes for name in size})
    return {name: max([size.get(name, 0) for size in sizes]) for name in names}


def is_deleted(node: Node | None, claim: NodeClaim | None) -> bool:
    """Tell whether the machine is on its way out, whoever sent it."""
    if claim is not None:
        return claim.deleting or conditions.is_true(claim.status.conditions, "InstanceTerminating")
    return node is not None and node.deleting


def is_too_early(node: Node) -> bool:
    """Tell whether a node of ours, without its claim, is no capacity yet.

    It lacks an id or a type, or is not registered: then its claim, launched as far as the cloud knows and not
    as far as the watch told, has a row of its own, and the machine must not count twice.
    """
    labels: Mapping[str, str] = node.metadata.labels
    if known.NODEPOOL not in labels:
        return False
    if any(taint.matches(taints.UNREGISTERED) for taint in node.spec.taints):
        return True
    return not node.spec.provider_id or (
        known.INSTANCE_TYPE not in labels and known.INITIALIZED not in labels
    )


def _has_label(node: Node | None, claim: NodeClaim | None, label: str) -> bool:
    """A machine without a claim has been through all stages long ago."""
    if claim is None:
        return True
    return node is not None and node.metadata.labels.get(label) == "true"


def _provider_id(claim: NodeClaim | None) -> str:
    return claim.status.provider_id if claim is not None else ""


def _taints(
    node: Node | None, claim: NodeClaim | None, *, claim_speaks: bool, settled: bool
) -> tuple[Taint, ...]:
    if claim is not None and (claim_speaks or node is None):
        present: Sequence[Taint] = claim.spec.taints
    else:
        present = node.spec.taints if node is not None else ()
    if node is not None and node.spec.unschedulable:
        present = taints.merge(present, [taints.UNSCHEDULABLE])
    if settled:
        return tuple(present)
    startup = claim.spec.startup_taints if claim is not None else []
    return tuple(
        t for t in present if not taints.is_ephemeral(t) and not any(t.matches(known) for known in startup)
    )


def _size(
    node: Node | None, claim: NodeClaim | None, which: str, initialized: bool, planned: PlannedSize | None
) -> Resources:
    of_node = resources_of(getattr(node.status, which)) if node is not None else {}
    if initialized or claim is None:
        return of_node
    of_claim = resources_of(getattr(claim.status, which))
    if planned is not None and not of_claim:
        of_claim = planned.allocatable if which == "allocatable" else planned.capacity
    return {**of_claim, **{name: amount for name, amount in of_node.items() if amount}}
