"""How long pods take from wish to work, by upstream's names.

What is over is observed when a pod's status tells of it; what still lasts is measured every ten seconds.
Pods that were bound or ready when we first saw them say nothing: how long they took is not ours to tell.
"""

from karpenter.apis.conditions import get, is_true
from karpenter.apis.core import Pod
from karpenter.base.timestamps import parse_time
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.series import Series
from karpenter.kube.informer import Change
from karpenter.model.pods import is_terminal, pod_key
from karpenter.runtime import Result, Singleton

_PERIOD_SECONDS = 10.0
_NAMES = ("name", "namespace")


class PodMeters:
    """Watches pods; the milestones that only the provisioner knows are in the cluster's ledger."""

    def __init__(self, context: Context) -> None:
        self._context = context
        metrics = context.metrics
        self._bound = metrics.histogram(
            "karpenter_pods_bound_duration_seconds", "From a pod's creation until it was bound."
        )
        self._started = metrics.summary(
            "karpenter_pods_startup_duration_seconds", "From a pod's creation until it was ready."
        )
        prefix = "karpenter_pods_provisioning_"
        self._provisioning_bound = metrics.histogram(
            f"{prefix}bound_duration_seconds", "From when a place was found for a pod until it was bound."
        )
        self._provisioning_started = metrics.histogram(
            f"{prefix}startup_duration_seconds", "From when a place was found for a pod until it was ready."
        )
        self._unbound = Series(
            metrics,
            f"{prefix}unbound_time_seconds",
            "Time of pods that are not bound since a place was found.",
            _NAMES,
        )
        self._unstarted = Series(
            metrics,
            f"{prefix}unstarted_time_seconds",
            "Time of pods that are not ready since a place was found.",
            _NAMES,
        )
        self._undecided = Series(
            metrics,
            f"{prefix}scheduling_undecided_time_seconds",
            "Time of undecided pods since they were first seen.",
            _NAMES,
        )
        self._pods = context.cache.informer(Pod)
        self._pods.subscribe(self._on_pod)

    def controllers(self) -> list[Singleton]:
        """Return what refreshes the gauges; nothing when users do not want series for each pod."""
        c = self._context
        if not c.settings.observability:
            return []
        return [Singleton("metrics.pod.timing", self._refresh, clock=c.clock, rng=c.rng, metrics=c.metrics)]

    def _on_pod(self, change: Change[Pod]) -> None:
        pod, old = change.object, change.old
        if change.type == "DELETED" or old is None or old.status.conditions == pod.status.conditions:
            return
        if _became(pod, old, "PodScheduled"):
            bound = _since(pod, "PodScheduled")
            self._bound.observe(max(0.0, bound - _created(pod)))
            if (found := self._schedulable(pod)) is not None:
                self._provisioning_bound.observe(max(0.0, bound - found))
        if _became(pod, old, "Ready"):
            ready = _since(pod, "Ready")
            self._started.observe(max(0.0, ready - _created(pod)))
            if (found := self._schedulable(pod)) is not None:
                self._provisioning_started.observe(max(0.0, ready - found))
            # A pod starts once: when it is ready again after a failed probe, nothing is measured from here.
            self._context.cluster.pod_times.forget([pod_key(pod)])

    def _schedulable(self, pod: Pod) -> float | None:
        times = self._context.cluster.pod_times.get(pod_key(pod))
        return times.schedulable if times is not None else None

    async def _refresh(self) -> Result:
        now = self._context.clock.now()
        unbound: dict[tuple[str, ...], float] = {}
        unstarted: dict[tuple[str, ...], float] = {}
        ledger = self._context.cluster.pod_times
        for key, since in ledger.schedulable():
            namespace, name = key.split("/", 1)
            pod = self._pods.get(name, namespace)
            if pod is None or is_terminal(pod):
                continue
            unstarted[name, namespace] = now - since
            if not pod.spec.node_name:
                unbound[name, namespace] = now - since
        self._unbound.replace(unbound)
        self._unstarted.replace(unstarted)
        self._undecided.replace(
            {(key.split("/", 1)[1], key.split("/", 1)[0]): age for key, age in ledger.undecided(now).items()}
        )
        return Result(_PERIOD_SECONDS)


def _became(pod: Pod, old: Pod, type: str) -> bool:
    return is_true(pod.status.conditions, type) and not is_true(old.status.conditions, type)


def _since(pod: Pod, type: str) -> float:
    """Return since when a condition of the pod has its status, epoch seconds."""
    condition = get(pod.status.conditions, type)
    return parse_time((condition and condition.last_transition_time) or "1970-01-01T00:00:00Z")


def _created(pod: Pod) -> float:
    return parse_time(pod.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
