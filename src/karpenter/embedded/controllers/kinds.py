"""The workload kinds as their controllers need them: templates stay raw, so that nothing in them is lost.

The structs of `karpenter.apis` drop what an autoscaler does not read; a controller that stamps out pods must
not. Here a template is `msgspec.Raw`: the very bytes the user wrote.
"""

from typing import Any, ClassVar

import msgspec

from karpenter.apis.core import IntOrString, NodeSelector
from karpenter.apis.meta import Condition, KubeObject, LabelSelector, Object, Resource

EMPTY = msgspec.Raw(b"{}")


class RollingUpdate(Object, frozen=True):
    """How far a rollout may deviate from the desired count (or, for StatefulSets, where it stops)."""

    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    partition: int = 0


class Strategy(Object, frozen=True):
    """A Deployment's strategy, or a StatefulSet's or DaemonSet's update strategy."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class WorkloadCondition(Condition, frozen=True):
    """A condition of apps/v1, which also says when it was last confirmed."""

    last_update_time: str | None = None


class WorkloadStatus(Object, frozen=True):
    """The counts of apps/v1 statuses, all kinds together."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    updated_replicas: int = 0
    fully_labeled_replicas: int = 0
    current_replicas: int = 0
    observed_generation: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int = 0
    conditions: list[WorkloadCondition] = []


class DeploymentSpec(Object, frozen=True):
    """apps/v1 DeploymentSpec."""

    replicas: int = 1
    selector: LabelSelector | None = None
    template: msgspec.Raw = EMPTY
    strategy: Strategy = msgspec.field(default_factory=Strategy)
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False


class FullDeployment(KubeObject, frozen=True):
    """apps/v1 Deployment with its whole template."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True
    )
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class ReplicaSetSpec(Object, frozen=True):
    """apps/v1 ReplicaSetSpec."""

    replicas: int = 1
    selector: LabelSelector | None = None
    template: msgspec.Raw = EMPTY
    min_ready_seconds: int = 0


class FullReplicaSet(KubeObject, frozen=True):
    """apps/v1 ReplicaSet with its whole template."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="replicasets", kind="ReplicaSet", namespaced=True
    )
    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class Ordinals(Object, frozen=True):
    """Where a StatefulSet starts to count."""

    start: int = 0


class ClaimRetention(Object, frozen=True):
    """Whether a StatefulSet's claims go with it."""

    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class StatefulSetSpec(Object, frozen=True):
    """apps/v1 StatefulSetSpec."""

    replicas: int = 1
    selector: LabelSelector | None = None
    template: msgspec.Raw = EMPTY
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: Strategy = msgspec.field(default_factory=Strategy)
    volume_claim_templates: list[msgspec.Raw] = []
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    ordinals: Ordinals | None = None
    persistent_volume_claim_retention_policy: ClaimRetention | None = None


class FullStatefulSet(KubeObject, frozen=True):
    """apps/v1 StatefulSet with its whole templates."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="statefulsets", kind="StatefulSet", namespaced=True
    )
    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class DaemonSetSpec(Object, frozen=True):
    """apps/v1 DaemonSetSpec."""

    selector: LabelSelector | None = None
    template: msgspec.Raw = EMPTY
    update_strategy: Strategy = msgspec.field(default_factory=Strategy)
    min_ready_seconds: int = 0


class DaemonSetStatus(Object, frozen=True):
    """apps/v1 DaemonSetStatus."""

    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    updated_number_scheduled: int = 0
    observed_generation: int = 0


class FullDaemonSet(KubeObject, frozen=True):
    """apps/v1 DaemonSet with its whole template."""

    resource: ClassVar[Resource] = Resource(
        group="apps", version="v1", plural="daemonsets", kind="DaemonSet", namespaced=True
    )
    spec: DaemonSetSpec = msgspec.field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)


class JobSpec(Object, frozen=True):
    """batch/v1 JobSpec."""

    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    selector: LabelSelector | None = None
    template: msgspec.Raw = EMPTY


class UncountedPods(Object, frozen=True):
    """Finished pods (uids) that are in the counts but still carry the tracking finalizer."""

    succeeded: list[str] = []
    failed: list[str] = []


class JobStatus(Object, frozen=True):
    """batch/v1 JobStatus."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    uncounted: UncountedPods = msgspec.field(default_factory=UncountedPods, name="uncountedTerminatedPods")
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[Condition] = []


class Job(KubeObject, frozen=True):
    """batch/v1 Job."""

    resource: ClassVar[Resource] = Resource(
        group="batch", version="v1", plural="jobs", kind="Job", namespaced=True
    )
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class JobTemplate(Object, frozen=True):
    """The Job a CronJob stamps out."""

    metadata: msgspec.Raw = EMPTY
    spec: msgspec.Raw = EMPTY


class CronJobSpec(Object, frozen=True):
    """batch/v1 CronJobSpec."""

    schedule: str = ""
    concurrency_policy: str = "Allow"
    suspend: bool = False
    starting_deadline_seconds: int | None = None
    successful_jobs_history_limit: int = 3
    failed_jobs_history_limit: int = 1
    job_template: JobTemplate = msgspec.field(default_factory=JobTemplate)


class CronJobStatus(Object, frozen=True):
    """batch/v1 CronJobStatus."""

    active: list[dict[str, Any]] = []
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(KubeObject, frozen=True):
    """batch/v1 CronJob."""

    resource: ClassVar[Resource] = Resource(
        group="batch", version="v1", plural="cronjobs", kind="CronJob", namespaced=True
    )
    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)
    status: CronJobStatus = msgspec.field(default_factory=CronJobStatus)


class ClaimSpec(Object, frozen=True):
    """core/v1 PersistentVolumeClaimSpec as the volume controller needs it."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []
    resources: dict[str, Any] = {}
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"


class ClaimStatus(Object, frozen=True):
    """core/v1 PersistentVolumeClaimStatus."""

    phase: str = ""


class FullClaim(KubeObject, frozen=True):
    """core/v1 PersistentVolumeClaim."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim", namespaced=True
    )
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class ClaimReference(Object, frozen=True):
    """Which claim a volume belongs to."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeAffinity(Object, frozen=True):
    """Which nodes reach a volume."""

    required: NodeSelector | None = None


class VolumeSpec(Object, frozen=True):
    """core/v1 PersistentVolumeSpec as the volume controller needs it."""

    capacity: dict[str, IntOrString] = {}
    access_modes: list[str] = []
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    persistent_volume_reclaim_policy: str = "Retain"
    node_affinity: VolumeAffinity | None = None


class FullVolume(KubeObject, frozen=True):
    """core/v1 PersistentVolume."""

    resource: ClassVar[Resource] = Resource(
        group="", version="v1", plural="persistentvolumes", kind="PersistentVolume"
    )
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)
