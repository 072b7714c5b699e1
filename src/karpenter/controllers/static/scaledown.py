"""Which nodes of a static pool go first when it has too many. Pure."""

from collections.abc import Mapping, Sequence

from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import parse_time
from karpenter.model import pods as podlib
from karpenter.model.snapshot import NodeView
from karpenter.model.zones import zone_counts, zone_of


def surplus(
    active: Sequence[NodeClaim], rows: Mapping[str, NodeView], count: int, now: float
) -> list[NodeClaim]:
    """Return the `count` claims to delete, first ones first.

    First those without a machine; then nodes that run nothing but daemons; then the others, those with a pod
    that must not be disrupted last, by what it costs to move their pods and how long they have yet to live.
    Where that leaves a choice the fullest zone gives first, so that the pool stays spread; ties by name.

    Args:
        active: the pool's claims that are to stay as far as anybody knows.
        rows: rows of the snapshot by claim name.
        now: epoch seconds.
    """
    left = {claim.name: (_rank(claim, rows.get(claim.name), now), claim) for claim in active}
    zones = zone_counts(active)
    chosen: list[NodeClaim] = []
    while left and len(chosen) < count:
        name = min(left, key=lambda n: (left[n][0], -zones.get(zone_of(left[n][1]), 0), n))
        claim = left.pop(name)[1]
        zones[zone_of(claim)] -= 1
        chosen.append(claim)
    return chosen


def _rank(claim: NodeClaim, row: NodeView | None, now: float) -> tuple[int, float]:
    """Return where a claim stands in the order: its class, and within that its cost."""
    if not claim.status.provider_id:
        return 0, 0.0
    pods = row.pods if row is not None else ()
    held = any(podlib.do_not_disrupt_active(pod, now) for pod in pods)
    if not held and all(podlib.is_daemon(pod) for pod in pods):
        return 1, 0.0
    return (3 if held else 2), moving_cost(pods) * lifetime_left(claim, now)


def moving_cost(pods: Sequence[Pod]) -> float:
    """Return what it costs to move the pods that need another place; 1 for none."""
    return 1.0 + sum(max(0.0, podlib.eviction_cost(pod)) for pod in pods if podlib.is_reschedulable(pod))


def lifetime_left(claim: NodeClaim, now: float) -> float:
    """Return which part of its `expireAfter` a claim still has before it, 0 to 1; 1 when it never expires."""
    if claim.spec.expire_after == "Never":
        return 1.0
    whole = parse_duration(claim.spec.expire_after)
    if whole <= 0:
        return 0.0
    created = claim.metadata.creation_timestamp
    age = now - parse_time(created) if created else 0.0
    return min(1.0, max(0.0, 1.0 - age / whole))
