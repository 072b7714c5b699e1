"""Static pools: as many nodes as `spec.replicas` says, whatever the demand (feature gate StaticCapacity)."""

from karpenter.controllers.context import Context
from karpenter.controllers.static.deprovisioning import Deprovisioning
from karpenter.controllers.static.provisioning import Provisioning
from karpenter.runtime import Controller, Singleton

__all__ = ["GATE", "build"]

GATE = "StaticCapacity"


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controllers; none while the gate is closed."""
    if not context.settings.feature_gates.get(GATE, False):
        return []
    return [Provisioning(context).controller(), Deprovisioning(context).controller()]
