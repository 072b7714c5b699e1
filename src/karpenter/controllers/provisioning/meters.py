"""The provisioner's metrics, by upstream's names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.controllers.metrics.series import Series
from karpenter.state.cluster import Cluster

_CONTROLLER = "provisioner"


class Meters:
    """What is measured about passes."""

    def __init__(self, metrics: Metrics, cluster: Cluster, clock: Clock) -> None:
        prefix = "karpenter_scheduler_"
        self._duration = metrics.histogram(
            f"{prefix}scheduling_duration_seconds", "How long a solve took.", ["controller"]
        ).labels(_CONTROLLER)
        self._depth = metrics.gauge(
            f"{prefix}queue_depth", "Pods in the solve going on.", ["controller", "scheduling_id"]
        )
        self._unfinished = metrics.gauge(
            f"{prefix}unfinished_work_seconds",
            "Age of the solve going on.",
            ["controller", "scheduling_id"],
        )
        self.ignored = metrics.gauge(f"{prefix}ignored_pods_count", "Waiting pods that fail validation.")
        self.unschedulable = metrics.gauge(
            f"{prefix}unschedulable_pods_count",
            "Pods that the last solve found no place for.",
            ["controller"],
        ).labels(_CONTROLLER)
        self.refused = Series(
            metrics,
            f"{prefix}refused_pods",
            "Pods without a place by what refuses them somewhere; one may count several times.",
            ["constraint"],
        )
        self.distrusted = metrics.counter(
            f"{prefix}distrusted_plans_total",
            "Plans of the cost search that the checker refused; the plain plan was used.",
        )
        self.decision_seconds = metrics.histogram(
            "karpenter_pods_scheduling_decision_duration_seconds",
            "From when a pod was first seen to the first decision about it.",
        )
        self._zones = Series(
            metrics,
            f"{prefix}pending_pods_by_effective_zone_count",
            "Pods in need of a place by the zone they are tied to; `flexible` or `none` otherwise.",
            ["controller", "zone"],
        )
        metrics.gauge(
            "karpenter_cluster_state_synced", "Whether everything decisions depend on has been read."
        ).set_function(lambda: float(cluster.synced()))
        started = clock.monotonic()
        metrics.gauge(
            "karpenter_cluster_state_unsynced_time_seconds", "For how long not all of it has been read."
        ).set_function(lambda: 0.0 if cluster.synced() else clock.monotonic() - started)
        self._passes = 0

    def zones(self, counts: Mapping[str, int]) -> None:
        """Say how many waiting pods there are by zone."""
        self._zones.replace({(_CONTROLLER, zone): float(count) for zone, count in counts.items()})

    @contextmanager
    def solving(self, clock: Clock, pods: int) -> Iterator[None]:
        """Measure one solve of `pods` pods; a solve that raises counts too."""
        self._passes += 1
        labels = (_CONTROLLER, str(self._passes))
        started = clock.monotonic()
        self._depth.labels(*labels).set(pods)
        self._unfinished.labels(*labels).set_function(lambda: clock.monotonic() - started)
        try:
            yield
        finally:
            self._duration.observe(clock.monotonic() - started)
            self._depth.remove(*labels)
            self._unfinished.remove(*labels)
