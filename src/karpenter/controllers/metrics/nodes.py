"""What nodes have, what is asked of them, and how well the cluster is used."""

import re

from karpenter.base.quantity import Resources, add, subtract, total
from karpenter.base.timestamps import parse_time
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.reading import OnRead
from karpenter.controllers.metrics.series import Series
from karpenter.model import pods as podlib
from karpenter.model.snapshot import NodeView

_REFUSED = re.compile(r"[^a-z0-9_]")

_AMOUNTS = {
    "karpenter_nodes_allocatable": "What pods can use of a node.",
    "karpenter_nodes_total_pod_requests": "What pods (not DaemonSets') ask of a node.",
    "karpenter_nodes_total_pod_limits": "Limits of pods (not DaemonSets') on a node.",
    "karpenter_nodes_total_daemon_requests": "What DaemonSet pods ask of a node.",
    "karpenter_nodes_total_daemon_limits": "Limits of DaemonSet pods on a node.",
    "karpenter_nodes_system_overhead": "What the system keeps of a node.",
}


class NodeMetrics:
    """Rebuilt when it is read."""

    def __init__(self, context: Context) -> None:
        self._context = context
        keys = sorted(key for key in context.well_known_labels if "/" in key)
        self._keys = [(key, _label_name(key)) for key in keys]
        names = ["node_name", "phase", "managed", *(name for _, name in self._keys)]
        self._names = list(dict.fromkeys(names))
        metrics = context.metrics
        self._amounts = {
            name: Series(metrics, name, text, [*self._names, "resource_type"])
            for name, text in _AMOUNTS.items()
        }
        self._age = Series(metrics, "karpenter_nodes_current_lifetime_seconds", "Age.", self._names)
        self._used = Series(
            metrics, "karpenter_cluster_utilization_percent", "Requested of allocatable.", ["resource_type"]
        )
        self._count = Series(metrics, "karpenter_cluster_state_node_count", "Nodes known.", [])
        self.controller = OnRead("metrics.node", self._refresh, context)

    def _refresh(self) -> None:
        views = [view for view in self._context.cluster.nodes() if view.node is not None]
        now = self._context.clock.now()
        values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in self._amounts}
        ages: dict[tuple[str, ...], float] = {}
        requested: Resources = {}
        allocatable: Resources = {}
        for view in views:
            row = self._labels(view)
            for name, amounts in _amounts_of(view).items():
                for resource, amount in amounts.items():
                    values[name][(*row, resource)] = _shown(resource, amount)
            created = view.node.metadata.creation_timestamp if view.node else None
            ages[row] = now - parse_time(created) if created else 0.0
            requested, allocatable = add(requested, view.requested), add(allocatable, view.allocatable)
        for name, series in self._amounts.items():
            series.replace(values[name])
        self._age.replace(ages)
        self._count.replace({(): float(len(views))})
        self._used.replace(
            {(r,): 100.0 * requested.get(r, 0) / amount for r, amount in allocatable.items() if amount}
        )

    def _labels(self, view: NodeView) -> tuple[str, ...]:
        assert view.node is not None
        values = {
            "node_name": view.name,
            "phase": view.node.status.phase,
            "managed": str(view.managed).lower(),
        }
        for key, name in self._keys:
            values[name] = view.labels.get(key, "") or values.get(name, "")
        return tuple(values[name] for name in self._names)


def _label_name(key: str) -> str:
    """Return a node label's name as a metric label, upstream's way: what follows the slash.

    Clouds may define any label, so what Prometheus would refuse in a name is replaced as well.
    """
    name = _REFUSED.sub("_", key.rpartition("/")[2].lower())
    return f"_{name}" if name[:1].isdigit() else name


def _amounts_of(view: NodeView) -> dict[str, Resources]:
    workload = [pod for pod in view.pods if not podlib.is_daemon(pod)]
    daemons = [pod for pod in view.pods if podlib.is_daemon(pod)]
    return {
        "karpenter_nodes_allocatable": view.allocatable,
        "karpenter_nodes_total_pod_requests": subtract(view.requested, view.daemon_requested),
        "karpenter_nodes_total_pod_limits": total(podlib.limits(pod) for pod in workload),
        "karpenter_nodes_total_daemon_requests": view.daemon_requested,
        "karpenter_nodes_total_daemon_limits": total(podlib.limits(pod) for pod in daemons),
        "karpenter_nodes_system_overhead": {
            name: amount - view.allocatable.get(name, 0)
            for name, amount in view.capacity.items()
            if name != "nodes"
        },
    }


def _shown(resource: str, amount: int) -> float:
    return amount / 1000.0 if resource == "cpu" else float(amount)
