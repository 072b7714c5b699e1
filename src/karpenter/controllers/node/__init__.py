"""What happens to Nodes: their repair, their draining and their end."""

from karpenter.controllers.context import Context
from karpenter.controllers.node import health
from karpenter.controllers.node.blockers import Blockers
from karpenter.controllers.node.eviction import EvictionQueue
from karpenter.controllers.node.surge import Surges
from karpenter.controllers.node.termination import Termination
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return the node controllers."""
    blockers = Blockers(context)
    evictions = EvictionQueue(context, blockers)
    surges = Surges(context, blockers)
    termination = Termination(context, evictions, blockers, surges)
    return [evictions.controller, termination.controller, surges.controller, *health.build(context)]
