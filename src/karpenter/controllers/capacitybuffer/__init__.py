"""CapacityBuffers: room that is kept free for pods to come (feature gate CapacityBuffer)."""

from karpenter.controllers.capacitybuffer.resolution import Resolution
from karpenter.controllers.capacitybuffer.upkeep import watch_room
from karpenter.controllers.context import Context
from karpenter.runtime import Controller, Singleton

__all__ = ["GATE", "build"]

GATE = "CapacityBuffer"


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controllers; none while the gate is closed."""
    if not context.settings.feature_gates.get(GATE, False):
        return []
    watch_room(context)
    return [Resolution(context).controller]
