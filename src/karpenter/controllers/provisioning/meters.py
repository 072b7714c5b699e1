"""The provisioner's metrics, by upstream's names."""

from collections.abc import Iterator
from contextlib import contextmanager

from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics

_CONTROLLER = "provisioner"


class Meters:
    """What is measured about passes."""

    def __init__(self, metrics: Metrics) -> None:
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
        self.decision_seconds = metrics.histogram(
            "karpenter_pods_scheduling_decision_duration_seconds",
            "From when a pod was first seen to the first decision about it.",
        )
        self._passes = 0

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
