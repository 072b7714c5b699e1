"""Metrics of what is there: nodes, pools, pods and conditions.

`--disable-cluster-state-observability` leaves out what has a series for each object.
"""

import platform

from karpenter import __version__
from karpenter.base.metrics import Metrics
from karpenter.controllers.context import Context
from karpenter.controllers.metrics import statuses
from karpenter.controllers.metrics.bound import BoundMetrics
from karpenter.controllers.metrics.nodes import NodeMetrics
from karpenter.controllers.metrics.pods import PodMetrics
from karpenter.controllers.metrics.pools import PoolMetrics
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return the metrics controllers, unless they are switched off."""
    _tell_build(context.metrics)
    if not context.settings.observability:
        return []
    return [
        NodeMetrics(context).controller,
        PoolMetrics(context).controller,
        BoundMetrics(context).controller,
        PodMetrics(context).controller,
        *statuses.build(context),
    ]


def _tell_build(metrics: Metrics) -> None:
    """Export which program this is; upstream's `goversion` and `goarch` would not be true here."""
    build_info = metrics.gauge(
        "karpenter_build_info", "1, with what runs here.", ["version", "pythonversion", "arch"]
    )
    build_info.labels(__version__, platform.python_version(), platform.machine()).set(1)
