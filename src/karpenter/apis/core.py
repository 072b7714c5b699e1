"""core/v1: the slices of pods, nodes, volumes and namespaces that an autoscaler reads."""

from typing import Annotated, ClassVar

import msgspec

from karpenter.apis.meta import (
    Condition,
    KubeObject,
    LabelSelector,
    Object,
    Resource,
    SelectorRequirement,
    required_text,
)

IntOrString = int | str
Quantity = Annotated[str, msgspec.Meta(description="Kubernetes quantity")]


class Taint(Object, frozen=True):
    """core/v1 Taint."""

    key: str
    value: str = ""
    effect: str = required_text()
    time_added: str | None = None

    def matches(self, other: "Taint") -> bool:
        """Tell whether both are the same taint as Kubernetes sees it: key and effect."""
        return self.key == other.key and self.effect == other.effect

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Object, frozen=True):
    """core/v1 Toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorTerm(Object, frozen=True):
    """One alternative of a node selector."""

    match_expressions: list[SelectorRequirement] = []
    match_fields: list[SelectorRequirement] = []


class NodeSelector(Object, frozen=True):
    """Alternatives of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Object, frozen=True):
    """A node selector term with a weight."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Object, frozen=True):
    """core/v1 NodeAffinity."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Object, frozen=True):
    """core/v1 PodAffinityTerm."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Object, frozen=True):
    """A pod affinity term with a weight."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Object, frozen=True):
    """core/v1 PodAffinity and PodAntiAffinity, which have the same shape."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object, frozen=True):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Object, frozen=True):
    """core/v1 TopologySpreadConstraint."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class ResourceClaimRef(Object, frozen=True):
    """A container's use of one of the pod's resource claims."""

    name: str


class ResourceRequirements(Object, frozen=True):
    """Requests, limits and claims of a container or a pod."""

    requests: dict[str, IntOrString] = {}
    limits: dict[str, IntOrString] = {}
    claims: list[ResourceClaimRef] = []


class ContainerPort(Object, frozen=True):
    """core/v1 ContainerPort."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class Container(Object, frozen=True):
    """The parts of a container that scheduling looks at (and its image, for printing)."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = []
    restart_policy: str | None = None


class PVCSource(Object, frozen=True):
    """A volume that uses a claim by name."""

    claim_name: str
    read_only: bool = False


class VolumeClaimTemplateSpec(Object, frozen=True):
    """The claim an ephemeral volume creates."""

    spec: "PersistentVolumeClaimSpec | None" = None


class EphemeralSource(Object, frozen=True):
    """A generic ephemeral volume: its claim is named `<pod>-<volume>`."""

    volume_claim_template: VolumeClaimTemplateSpec | None = None


class Volume(Object, frozen=True):
    """A pod's volume; kinds that never constrain placement are not kept."""

    name: str = ""
    persistent_volume_claim: PVCSource | None = None
    ephemeral: EphemeralSource | None = None
    aws_elastic_block_store: dict[str, object] | None = None
    azure_disk: dict[str, object] | None = None
    azure_file: dict[str, object] | None = None
    cinder: dict[str, object] | None = None
    gce_persistent_disk: dict[str, object] | None = None
    portworx_volume: dict[str, object] | None = None
    rbd: dict[str, object] | None = None
    vsphere_volume: dict[str, object] | None = None


class PodResourceClaim(Object, frozen=True):
    """A dynamic resource claim of a pod."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(Object, frozen=True):
    """A reason, by name, why the pod must not be scheduled yet."""

    name: str


class PodSpec(Object, frozen=True):
    """core/v1 PodSpec."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    resources: ResourceRequirements | None = None
    overhead: dict[str, IntOrString] = {}
    volumes: list[Volume] = []
    host_network: bool = False
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduler_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    resource_claims: list[PodResourceClaim] = []
    scheduling_gates: list[SchedulingGate] = []
    runtime_class_name: str | None = None


class ContainerStatus(Object, frozen=True):
    """Enough of a container's status for in-place resize."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    allocated_resources: dict[str, IntOrString] = {}
    resources: ResourceRequirements | None = None


class PodStatus(Object, frozen=True):
    """core/v1 PodStatus."""

    phase: str = ""
    reason: str = ""
    conditions: list[Condition] = []
    nominated_node_name: str = ""
    start_time: str | None = None
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    """What the kubelet has granted to the pod as a whole (pod-level resources, resized in place)."""
    allocated_resources: dict[str, IntOrString] = {}


class Pod(KubeObject, frozen=True):
    """core/v1 Pod."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="pods", kind="Pod", namespaced=True
    )
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodTemplateSpec(Object, frozen=True):
    """The pod a workload controller stamps out."""

    metadata: "TemplateMeta" = msgspec.field(default_factory=lambda: TemplateMeta())
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class TemplateMeta(Object, frozen=True):
    """Labels and annotations of a template."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplate(KubeObject, frozen=True):
    """core/v1 PodTemplate."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="podtemplates", kind="PodTemplate", namespaced=True
    )
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class NodeSpec(Object, frozen=True):
    """core/v1 NodeSpec."""

    provider_id: str = msgspec.field(default="", name="providerID")
    taints: list[Taint] = []
    unschedulable: bool = False


class NodeStatus(Object, frozen=True):
    """core/v1 NodeStatus."""

    capacity: dict[str, IntOrString] = {}
    allocatable: dict[str, IntOrString] = {}
    conditions: list[Condition] = []
    phase: str = ""


class Node(KubeObject, frozen=True):
    """core/v1 Node."""

    resource: ClassVar[Resource] = Resource(group="", version="v1", plural="nodes", kind="Node")
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Namespace(KubeObject, frozen=True):
    """core/v1 Namespace."""

    resource: ClassVar[Resource] = Resource(group="", version="v1", plural="namespaces", kind="Namespace")


class ServiceSpec(Object, frozen=True):
    """core/v1 ServiceSpec: which pods it is for."""

    selector: dict[str, str] = {}


class Service(KubeObject, frozen=True):
    """core/v1 Service."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="services", kind="Service", namespaced=True
    )
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ReplicationControllerSpec(Object, frozen=True):
    """core/v1 ReplicationControllerSpec: which pods it counts."""

    selector: dict[str, str] = {}


class ReplicationController(KubeObject, frozen=True):
    """core/v1 ReplicationController."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="replicationcontrollers", kind="ReplicationController", namespaced=True
    )
    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)


class VolumeResources(Object, frozen=True):
    """Requested and allowed storage."""

    requests: dict[str, IntOrString] = {}


class PersistentVolumeClaimSpec(Object, frozen=True):
    """core/v1 PersistentVolumeClaimSpec."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []
    resources: VolumeResources | None = None


class PersistentVolumeClaimStatus(Object, frozen=True):
    """core/v1 PersistentVolumeClaimStatus."""

    phase: str = ""


class PersistentVolumeClaim(KubeObject, frozen=True):
    """core/v1 PersistentVolumeClaim."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim", namespaced=True
    )
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class CSISource(Object, frozen=True):
    """A volume of a CSI driver."""

    driver: str
    volume_handle: str = ""


class VolumeNodeAffinity(Object, frozen=True):
    """Which nodes can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Object, frozen=True):
    """core/v1 PersistentVolumeSpec; the kind of a local volume matters, its contents do not."""

    csi: CSISource | None = None
    local: dict[str, str] | None = None
    host_path: dict[str, str] | None = None
    aws_elastic_block_store: dict[str, object] | None = None
    azure_disk: dict[str, object] | None = None
    azure_file: dict[str, object] | None = None
    cinder: dict[str, object] | None = None
    gce_persistent_disk: dict[str, object] | None = None
    portworx_volume: dict[str, object] | None = None
    rbd: dict[str, object] | None = None
    vsphere_volume: dict[str, object] | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    claim_ref: "ObjectReference | None" = None


class PersistentVolume(KubeObject, frozen=True):
    """core/v1 PersistentVolume."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="persistentvolumes", kind="PersistentVolume"
    )
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)


class ObjectReference(Object, frozen=True):
    """core/v1 ObjectReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class EventSource(Object, frozen=True):
    """Who reports an event."""

    component: str = ""


class Event(KubeObject, frozen=True):
    """core/v1 Event."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="events", kind="Event", namespaced=True
    )
    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    source: EventSource = msgspec.field(default_factory=EventSource)
    reporting_component: str = ""
    reporting_instance: str = ""
