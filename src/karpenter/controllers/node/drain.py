"""Which pods of a draining node go now, and which still wait; pure.

Pods go in four groups, each only when the one before is quite gone: ordinary pods, ordinary DaemonSet pods,
critical pods, critical DaemonSet pods. A pod whose grace would reach past the node's deadline goes at once,
whatever its group, so that it gets all of its grace.
"""

from collections.abc import Sequence

import msgspec

from karpenter.apis.core import Pod
from karpenter.base.timestamps import parse_time
from karpenter.model import pods as podlib

_CRITICAL = ("system-cluster-critical", "system-node-critical")


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """What a drain has to do now."""

    waiting: tuple[Pod, ...]
    """Everything the drain still has to see go, by key; empty when the node is drained."""
    evict: tuple[Pod, ...]
    """To be handed to the eviction queue now (forced ones included), by key."""


def plan_drain(pods: Sequence[Pod], now: float, deadline: float | None) -> Drain:
    """Return what draining a node with `pods` takes at `now`.

    `deadline` (epoch seconds) is when its machine goes in any case; None: it waits as long as it takes.
    """
    waiting = sorted((p for p in pods if podlib.is_waiting_eviction(p, now)), key=lambda p: p.key)
    forced = [pod for pod in waiting if needs_force_delete(pod, now, deadline)]
    graceful = [pod for pod in waiting if not needs_force_delete(pod, now, deadline)]
    groups: list[list[Pod]] = [[], [], [], []]
    for pod in graceful:
        critical = pod.spec.priority_class_name in _CRITICAL
        groups[2 * critical + podlib.is_daemon(pod)].append(pod)
    first = next((group for group in groups if group), [])
    chosen = sorted([*forced, *first], key=lambda p: p.key)
    return Drain(waiting=tuple(waiting), evict=tuple(chosen))


def needs_force_delete(pod: Pod, now: float, deadline: float | None) -> bool:
    """Tell whether the pod must be deleted, past budgets and annotations, to be gone by `deadline`."""
    if deadline is None:
        return False
    if pod.metadata.deletion_timestamp is not None:
        return parse_time(pod.metadata.deletion_timestamp) > deadline
    grace = pod.spec.termination_grace_period_seconds
    return grace is not None and now > deadline - grace


def next_look(
    waiting: Sequence[Pod], now: float, deadline: float | None, *, least: float, most: float
) -> float:
    """Return in how many seconds a drain should be looked at again should nothing be heard of its pods.

    That is when a pod has to be forced or a terminating one is given up, within `least` and `most`; `least`
    too while pods are due to end.
    """
    moments = [now + most]
    for pod in waiting:
        if pod.metadata.deletion_timestamp is not None:
            ends = parse_time(pod.metadata.deletion_timestamp)
            moments.append(ends if ends > now else ends + podlib.STUCK_TERMINATING_SECONDS)
        elif deadline is not None:
            moments.append(deadline - (pod.spec.termination_grace_period_seconds or 0))
    return max(least, min(moments) - now)


def grace_seconds(now: float, deadline: float) -> int:
    """Return the grace a forced pod gets: until the deadline, never none at all."""
    return max(int(deadline - now), 1)
