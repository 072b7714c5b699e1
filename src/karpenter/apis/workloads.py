"""apps/v1, policy/v1, storage/v1, scheduling/v1 and coordination.k8s.io/v1: the slices we read."""

from typing import ClassVar

import msgspec

from karpenter.apis.core import IntOrString, PodTemplateSpec
from karpenter.apis.meta import Condition, KubeObject, LabelSelector, Object, Resource, SelectorRequirement


class RollingUpdate(Object, frozen=True):
    """How many pods a Deployment's rollout may have too many, and too few: counts or percentages."""

    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None


class RolloutStrategy(Object, frozen=True):
    """apps/v1 DeploymentStrategy."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Object, frozen=True):
    """What Deployments, ReplicaSets, StatefulSets and DaemonSets have in common."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    strategy: RolloutStrategy | None = None
    """A Deployment's."""
    paused: bool = False
    """A Deployment's: changes of the template wait."""


class WorkloadStatus(Object, frozen=True):
    """Counts that tell whether a rollout is finished."""

    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class Workload(KubeObject, frozen=True):
    """The shape shared by the apps/v1 kinds."""

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class Deployment(Workload, frozen=True):
    """apps/v1 Deployment."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True
    )


class ReplicaSet(Workload, frozen=True):
    """apps/v1 ReplicaSet."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="replicasets", kind="ReplicaSet", namespaced=True
    )


class StatefulSet(Workload, frozen=True):
    """apps/v1 StatefulSet."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="statefulsets", kind="StatefulSet", namespaced=True
    )


class DaemonSet(Workload, frozen=True):
    """apps/v1 DaemonSet."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="daemonsets", kind="DaemonSet", namespaced=True
    )


class PodDisruptionBudgetSpec(Object, frozen=True):
    """policy/v1 PodDisruptionBudgetSpec."""

    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Object, frozen=True):
    """policy/v1 PodDisruptionBudgetStatus."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(KubeObject, frozen=True):
    """policy/v1 PodDisruptionBudget."""

    resource: ClassVar[Resource] = Resource(
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        namespaced=True,
    )
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


class AllowedTopology(Object, frozen=True):
    """One alternative of a storage class's allowed topologies."""

    match_label_expressions: list[SelectorRequirement] = []


class StorageClass(KubeObject, frozen=True):
    """storage.k8s.io/v1 StorageClass."""

    resource: ClassVar[Resource] = Resource(
        group="storage.k8s.io", version="v1", plural="storageclasses", kind="StorageClass"
    )
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[AllowedTopology] = []


class CSINodeAllocatable(Object, frozen=True):
    """How many volumes of a driver a node takes."""

    count: int | None = None


class CSINodeDriver(Object, frozen=True):
    """A CSI driver on a node."""

    name: str
    node_id: str = msgspec.field(default="", name="nodeID")
    allocatable: CSINodeAllocatable | None = None


class CSINodeSpec(Object, frozen=True):
    """storage.k8s.io/v1 CSINodeSpec."""

    drivers: list[CSINodeDriver] = []


class CSINode(KubeObject, frozen=True):
    """storage.k8s.io/v1 CSINode."""

    resource: ClassVar[Resource] = Resource(
        group="storage.k8s.io", version="v1", plural="csinodes", kind="CSINode"
    )
    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class VolumeAttachmentSource(Object, frozen=True):
    """What is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Object, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentSpec."""

    node_name: str = ""
    attacher: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(KubeObject, frozen=True):
    """storage.k8s.io/v1 VolumeAttachment."""

    resource: ClassVar[Resource] = Resource(
        group="storage.k8s.io", version="v1", plural="volumeattachments", kind="VolumeAttachment"
    )
    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)


class LeaseSpec(Object, frozen=True):
    """coordination.k8s.io/v1 LeaseSpec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True):
    """coordination.k8s.io/v1 Lease."""

    resource: ClassVar[Resource] = Resource(
        group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True
    )
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
