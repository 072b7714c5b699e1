"""KWOKNodeClass: how simulated nodes behave."""

from typing import ClassVar

import msgspec

from karpenter.apis.meta import Object, Resource
from karpenter.base.duration import parse_duration
from karpenter.cloudprovider import NodeClass


class KwokNodeClassSpec(Object, frozen=True):
    """spec of a KWOKNodeClass."""

    node_registration_delay: str = "0s"


class KwokNodeClass(NodeClass, frozen=True):
    """karpenter.kwok.sh/v1alpha1 KWOKNodeClass."""

    resource: ClassVar[Resource] = Resource(
        group="karpenter.kwok.sh", version="v1alpha1", plural="kwoknodeclasses", kind="KWOKNodeClass"
    )
    spec: KwokNodeClassSpec = msgspec.field(default_factory=KwokNodeClassSpec)

    @property
    def registration_delay_seconds(self) -> float:
        """How long a launched machine takes to join the cluster."""
        return parse_duration(self.spec.node_registration_delay)
