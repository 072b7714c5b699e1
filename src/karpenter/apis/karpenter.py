"""karpenter.sh: NodePool and NodeClaim (v1), NodeOverlay (v1alpha1)."""

from typing import ClassVar

import msgspec

from karpenter.apis.core import IntOrString, Taint
from karpenter.apis.meta import Condition, KubeObject, Object, Resource, required_list, required_text


class RequirementSpec(Object, frozen=True):
    """A node selector requirement with upstream's `minValues`."""

    key: str
    operator: str
    values: list[str] = []
    min_values: int | None = None


class NodeClassRef(Object, frozen=True):
    """Which node class a NodePool or NodeClaim uses; resolved by group and kind."""

    group: str = required_text()
    kind: str = required_text()
    name: str = required_text()


class Budget(Object, frozen=True):
    """How many nodes of a pool may be disrupted at once, when, and for which reasons."""

    nodes: str = required_text("10%")
    reasons: list[str] | None = None
    schedule: str | None = None
    duration: str | None = None


class Disruption(Object, frozen=True):
    """spec.disruption of a NodePool."""

    consolidate_after: str = required_text("0s")
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: list[Budget] = msgspec.field(default_factory=lambda: [Budget()])


class NodeClaimTemplateMeta(Object, frozen=True):
    """Labels and annotations that a NodePool gives its claims."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class NodeClaimTemplateSpec(Object, frozen=True):
    """spec.template.spec of a NodePool."""

    requirements: list[RequirementSpec] = required_list()
    node_class_ref: NodeClassRef = msgspec.field(default_factory=NodeClassRef)
    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodeClaimTemplate(Object, frozen=True):
    """spec.template of a NodePool."""

    metadata: NodeClaimTemplateMeta = msgspec.field(default_factory=NodeClaimTemplateMeta)
    spec: NodeClaimTemplateSpec = msgspec.field(default_factory=NodeClaimTemplateSpec)


class NodePoolSpec(Object, frozen=True):
    """spec of a NodePool."""

    template: NodeClaimTemplate = msgspec.field(default_factory=NodeClaimTemplate)
    disruption: Disruption = msgspec.field(default_factory=Disruption)
    limits: dict[str, IntOrString] = {}
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(Object, frozen=True):
    """status of a NodePool."""

    resources: dict[str, IntOrString] = {}
    nodes: int | None = None
    node_class_observed_generation: int = 0
    conditions: list[Condition] = []


class NodePool(KubeObject, frozen=True):
    """karpenter.sh/v1 NodePool."""

    resource: ClassVar[Resource] = Resource(
        group="karpenter.sh", version="v1", plural="nodepools", kind="NodePool"
    )
    spec: NodePoolSpec = msgspec.field(default_factory=NodePoolSpec)
    status: NodePoolStatus = msgspec.field(default_factory=NodePoolStatus)

    @property
    def static(self) -> bool:
        """A static pool keeps `spec.replicas` nodes whatever the demand."""
        return self.spec.replicas is not None


class ResourceRequests(Object, frozen=True):
    """spec.resources of a NodeClaim."""

    requests: dict[str, IntOrString] = {}


class NodeClaimSpec(Object, frozen=True):
    """spec of a NodeClaim; immutable."""

    requirements: list[RequirementSpec] = required_list()
    resources: ResourceRequests = msgspec.field(default_factory=ResourceRequests)
    node_class_ref: NodeClassRef = msgspec.field(default_factory=NodeClassRef)
    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodeClaimStatus(Object, frozen=True):
    """status of a NodeClaim."""

    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    capacity: dict[str, IntOrString] = {}
    allocatable: dict[str, IntOrString] = {}
    conditions: list[Condition] = []
    last_pod_event_time: str | None = None


class NodeClaim(KubeObject, frozen=True):
    """karpenter.sh/v1 NodeClaim: one machine, from the wish to its end."""

    resource: ClassVar[Resource] = Resource(
        group="karpenter.sh", version="v1", plural="nodeclaims", kind="NodeClaim"
    )
    spec: NodeClaimSpec = msgspec.field(default_factory=NodeClaimSpec)
    status: NodeClaimStatus = msgspec.field(default_factory=NodeClaimStatus)


class NodeOverlaySpec(Object, frozen=True):
    """spec of a NodeOverlay."""

    requirements: list[RequirementSpec] = required_list()
    price_adjustment: str | None = None
    price: str | None = None
    capacity: dict[str, IntOrString] = {}
    weight: int | None = None


class NodeOverlayStatus(Object, frozen=True):
    """status of a NodeOverlay."""

    conditions: list[Condition] = []


class NodeOverlay(KubeObject, frozen=True):
    """karpenter.sh/v1alpha1 NodeOverlay."""

    resource: ClassVar[Resource] = Resource(
        group="karpenter.sh", version="v1alpha1", plural="nodeoverlays", kind="NodeOverlay"
    )
    spec: NodeOverlaySpec = msgspec.field(default_factory=NodeOverlaySpec)
    status: NodeOverlayStatus = msgspec.field(default_factory=NodeOverlayStatus)
