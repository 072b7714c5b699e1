"""The cluster at one moment, immutable: what every decision is made from.

`karpenter.state` builds it from informer events; simulations and tests build it by hand. Every tuple has a
documented order, so that the same snapshot always leads to the same decision.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from karpenter.apis.core import Node, PersistentVolume, PersistentVolumeClaim, Pod, Taint
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.workloads import PodDisruptionBudget, StorageClass
from karpenter.base.quantity import Resources, add
from karpenter.model.pods import pod_key, requests


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that exists or is on its way: a Node, a NodeClaim, or both (they share a provider id)."""

    name: str
    """The Node's name, or the NodeClaim's while there is no Node."""
    provider_id: str = ""
    """Empty while the claim is not launched."""
    node: Node | None = None
    claim: NodeClaim | None = None
    nodepool: str = ""
    labels: dict[str, str]
    """The claim's until the node is registered, then the node's."""
    taints: tuple[Taint, ...] = ()
    """Those that count for scheduling: startup and known ephemeral taints are left out until initialized."""
    capacity: Resources
    """Includes `nodes: 1`."""
    allocatable: Resources
    pods: tuple[Pod, ...] = ()
    """Bound and not terminal, by key."""
    requested: Resources = {}
    """Sum over `pods`, with `pods` counted."""
    daemon_requested: Resources = {}
    """The part of `requested` that belongs to DaemonSets."""
    managed: bool = False
    """Has a NodeClaim of a supported node class."""
    registered: bool = False
    initialized: bool = False
    marked_for_deletion: bool = False
    volume_limits: dict[str, int] = {}
    """How many volumes each CSI driver can attach here, from the node's CSINode; drivers without a limit, and
    drivers that are not running yet, are not in it."""
    attached_volumes: tuple[tuple[str, str], ...] = ()
    """(CSI driver, PersistentVolume) by VolumeAttachment: also those whose pod is gone and which are not
    detached yet. Sorted."""
    nominated_until: float = 0.0
    """Epoch seconds; until then pods are expected here and the node is left alone."""
    headroom_pods: int = 0
    """How many virtual pods of capacity buffers have their room here; they are in none of the sums."""

    def with_pods(self, more: Iterable[Pod]) -> "NodeView":
        """Return the node as it will be once `more` pods run on it."""
        coming = tuple(more)
        if not coming:
            return self
        requested = self.requested
        for pod in coming:
            requested = add(requested, requests(pod))
        return replace(self, pods=tuple(sorted((*self.pods, *coming), key=pod_key)), requested=requested)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision may look at."""

    taken_at: float
    """Epoch seconds."""
    nodes: tuple[NodeView, ...]
    """By name."""
    pending: tuple[Pod, ...]
    """Pods that want a node and that we may serve (unschedulable, not bound, not nominated), by key."""
    nodepools: tuple[NodePool, ...]
    """All managed ones, by weight descending, then name descending (upstream's order)."""
    daemons: tuple[Pod, ...] = ()
    """One pod per DaemonSet, as it would run on a new node, by key."""
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    """By key."""
    stand_ins: frozenset[str] = frozenset()
    """Keys of pods whose workload brings up another before they go, whatever their budget forbids."""
    volume_claims: dict[str, PersistentVolumeClaim] = {}
    """By `namespace/name`."""
    volumes: dict[str, PersistentVolume] = {}
    storage_classes: dict[str, StorageClass] = {}
    namespaces: dict[str, dict[str, str]] = {}
    """Labels by namespace."""
    headroom: tuple[Pod, ...] = ()
    """Virtual pods that capacity buffers want room for, of lowest priority, by key; not in `pending`."""
