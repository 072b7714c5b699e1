"""autoscaling.x-k8s.io/v1beta1: CapacityBuffer, room that is kept free for pods to come."""

from typing import ClassVar

import msgspec

from karpenter.apis.core import IntOrString
from karpenter.apis.meta import Condition, KubeObject, Object, Resource, required_text

ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"
"""The strategy we know: the capacity is there, and idle."""


class PodTemplateRef(Object, frozen=True):
    """A PodTemplate of the same namespace."""

    name: str = required_text()


class ScalableRef(Object, frozen=True):
    """A workload of the same namespace whose pods say what one unit of room is."""

    api_group: str = ""
    kind: str = required_text()
    name: str = required_text()


class CapacityBufferSpec(Object, frozen=True):
    """spec of a CapacityBuffer."""

    provisioning_strategy: str = ACTIVE_CAPACITY
    pod_template_ref: PodTemplateRef | None = None
    scalable_ref: ScalableRef | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: dict[str, IntOrString] = {}


class CapacityBufferStatus(Object, frozen=True):
    """status of a CapacityBuffer."""

    pod_template_ref: PodTemplateRef | None = None
    replicas: int | None = None
    pod_template_generation: int | None = None
    provisioning_strategy: str = ""
    conditions: list[Condition] = []


class CapacityBuffer(KubeObject, frozen=True):
    """autoscaling.x-k8s.io/v1beta1 CapacityBuffer."""

    resource: ClassVar[Resource] = Resource(
        group="autoscaling.x-k8s.io",
        version="v1beta1",
        plural="capacitybuffers",
        kind="CapacityBuffer",
        namespaced=True,
    )
    spec: CapacityBufferSpec = msgspec.field(default_factory=CapacityBufferSpec)
    status: CapacityBufferStatus = msgspec.field(default_factory=CapacityBufferStatus)
