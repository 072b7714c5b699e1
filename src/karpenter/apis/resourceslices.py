"""resource.k8s.io/v1: the slices of it that we read."""

from typing import ClassVar

import msgspec

from karpenter.apis.meta import KubeObject, Object, Resource


class ResourcePool(Object, frozen=True):
    """Which part of a driver's devices a slice lists."""

    name: str = ""
    generation: int = 0
    """Slices of an older generation than the newest are out of date."""
    resource_slice_count: int = 0
    """How many slices of this generation make the pool whole."""


class ResourceSliceSpec(Object, frozen=True):
    """resource.k8s.io/v1 ResourceSliceSpec, without the devices."""

    driver: str = ""
    node_name: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)


class ResourceSlice(KubeObject, frozen=True):
    """resource.k8s.io/v1 ResourceSlice."""

    resource: ClassVar[Resource] = Resource(
        group="resource.k8s.io", version="v1", plural="resourceslices", kind="ResourceSlice"
    )
    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)
