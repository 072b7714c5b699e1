"""How long the pods of each workload take until they are ready, learned from those that were seen to start.

Counted is from the moment a pod has a node until it is ready for the first time: pulling, initializing,
warming up. Waiting for a node is not the workload's doing and is left out.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from karpenter.apis.conditions import get
from karpenter.apis.core import Pod
from karpenter.base.timestamps import parse_time
from karpenter.model.pods import is_daemon

REMEMBERED = 9
"""Pods per workload: the latest ones, of which the median counts, so that a slow pull or two do not."""
MOST_SECONDS = 3600.0
"""No more is believed: a pod that went unready and came back while nobody watched looks like a slow one."""


class ReadyTimes:
    """The latest times to ready of each workload, by the uid of what controls its pods.

    Holds a few numbers for each workload and a uid for each pod that counted; both go when the pods do. A new
    process learns anew from the pods that it finds.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, deque[float]] = {}
        self._pods: dict[str, set[str]] = {}
        """Pods that counted already, by workload: readiness that comes and goes counts once."""
        self._hours: dict[str, float] | None = {}

    def note(self, pod: Pod) -> None:
        """Take in a pod as it is now."""
        uid = pod.metadata.uid
        owners = _owners(pod)
        if all(uid in self._pods.get(owner, ()) for owner in owners):
            return
        seconds = seconds_to_ready(pod)
        if seconds is None:
            return
        for owner in owners:
            self._pods.setdefault(owner, set()).add(uid)
            self._seconds.setdefault(owner, deque(maxlen=REMEMBERED)).append(seconds)
            self._hours = None

    def forget(self, pod: Pod) -> None:
        """A pod is gone; with its last one a workload is forgotten."""
        for owner in _owners(pod):
            pods = self._pods.get(owner)
            if pods is None:
                continue
            pods.discard(pod.metadata.uid)
            if not pods:
                del self._pods[owner], self._seconds[owner]
                self._hours = None

    def hours(self) -> Mapping[str, float]:
        """Return the usual time to ready of each workload, hours; the same object until something changes."""
        if self._hours is None:
            self._hours = {uid: median(seen) / 3600 for uid, seen in sorted(self._seconds.items())}
        return self._hours


def seconds_to_ready(pod: Pod) -> float | None:
    """Return how long a pod that is ready took from getting its node; None when that cannot be told."""
    scheduled, ready = (get(pod.status.conditions, type) for type in ("PodScheduled", "Ready"))
    if scheduled is None or ready is None or (scheduled.status, ready.status) != ("True", "True"):
        return None
    if not scheduled.last_transition_time or not ready.last_transition_time:
        return None
    if any(status.restart_count for status in pod.status.container_statuses):
        return None  # it has been ready before, or else its crashes would count
    seconds = parse_time(ready.last_transition_time) - parse_time(scheduled.last_transition_time)
    return min(max(0.0, seconds), MOST_SECONDS)


def _owners(pod: Pod) -> Iterable[str]:
    return () if is_daemon(pod) else [o.uid for o in pod.metadata.owner_references if o.uid and o.controller]
