"""How long nodes are left alone: consolidateAfter, whom it binds, and what to change when it does."""

from collections.abc import Iterable

from karpenter.apis import conditions
from karpenter.apis.karpenter import NodePool
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import format_time, parse_time
from karpenter.model.snapshot import NodeView


def is_consolidatable(node: NodeView) -> bool:
    """Tell whether the node has been left alone for long enough, by its condition."""
    return node.claim is not None and conditions.is_true(node.claim.status.conditions, "Consolidatable")


def settles_at(node: NodeView, pool: NodePool) -> float | None:
    """Return when `consolidateAfter` has passed since pods came or went; None when it does not bind.

    A pool that never consolidates, and one that does so at once, keep nobody waiting.
    """
    after = pool.spec.disruption.consolidate_after
    if after == "Never" or node.claim is None:
        return None
    seconds = parse_duration(after)
    initialized = conditions.get(node.claim.status.conditions, "Initialized")
    since = node.claim.status.last_pod_event_time or (initialized and initialized.last_transition_time)
    return parse_time(since) + seconds if since and seconds > 0 else None


def unsettled(nodes: Iterable[NodeView], pools: Iterable[NodePool], now: float) -> frozenset[str]:
    """Return the names of initialized nodes of ours that are to be left alone still: they take no pods of
    nodes that consolidation takes away, or their time would begin again."""
    by_name = {pool.name: pool for pool in pools}
    found = set()
    for node in nodes:
        pool = by_name.get(node.nodepool)
        if pool is None or not node.managed or not node.initialized:
            continue
        end = settles_at(node, pool)
        if end is not None and now < end:
            found.add(node.name)
    return frozenset(found)


def until(node: NodeView, pool: NodePool, now: float) -> str:
    """Return what would make the node consolidatable sooner or later, as an instruction."""
    end = settles_at(node, pool)
    if end is None or end <= now:
        return "wait for condition Consolidatable of its NodeClaim"
    return f"wait until {format_time(end)}, or lower consolidateAfter of nodepool/{pool.name}"


def never(pool: NodePool) -> str:
    """Return what would let the nodes of a pool be consolidated that keeps them."""
    return f"set consolidateAfter of nodepool/{pool.name} to a duration, such as 30s"


def static(pool: NodePool) -> str:
    """Return what would make a static pool smaller."""
    return f"lower replicas of nodepool/{pool.name}"
