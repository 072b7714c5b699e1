"""Metrics of what is there: nodes, pools and pods. Left out by `--disable-cluster-state-observability`."""

from karpenter.controllers.context import Context
from karpenter.controllers.metrics.nodes import NodeMetrics
from karpenter.controllers.metrics.pods import PodMetrics
from karpenter.controllers.metrics.pools import PoolMetrics
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return the metrics controllers, unless they are switched off."""
    if not context.settings.observability:
        return []
    return [NodeMetrics(context).controller, PoolMetrics(context).controller, PodMetrics(context).controller]
