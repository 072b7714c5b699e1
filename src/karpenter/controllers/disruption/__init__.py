"""Taking nodes away on our own initiative.

Carried out now: empty nodes, for every consolidation policy. Drift and under-use are marked on NodeClaims,
but nothing is replaced for them yet; those searches fit into the same loop.
"""

from karpenter.controllers.context import Context
from karpenter.controllers.disruption.loop import DisruptionLoop
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return the disruption loop."""
    return [DisruptionLoop(context, CommandQueue(context)).controller]
