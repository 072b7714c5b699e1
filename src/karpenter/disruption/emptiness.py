"""Taking empty nodes away: those without a pod that would need another place, left alone for long enough.

Only really empty nodes count. (Upstream also takes nodes whose pods all have a non-positive eviction cost.)
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from karpenter.apis.conditions import is_true
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command

KeptFor = Literal["static", "never", "notEmpty", "tooFresh", "headroom", "budget"]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node stays."""

    node: str
    reason: KeptFor
    message: str


def empty_nodes(
    candidates: Iterable[Candidate], remaining: Mapping[str, int]
) -> tuple[Command | None, list[Kept]]:
    """Return the command that takes all empty nodes the budgets allow, and why the others stay.

    `remaining` is what each pool's budget still allows for `Empty`. Where a budget binds, the nodes that save
    most per disruption go first (ties by name).
    """
    left = dict(remaining)
    chosen: list[Candidate] = []
    kept: list[Kept] = []
    for candidate in sorted(candidates, key=lambda c: (-c.savings_ratio, c.node.name)):
        why = why_kept(candidate)
        pool = candidate.pool.name
        if why is None and left.get(pool, 0) <= 0:
            why = Kept(
                node=candidate.node.name,
                reason="budget",
                message=f"NodePool {pool!r} allows no more disruptions for reason Empty now",
            )
        if why is not None:
            kept.append(why)
            continue
        left[pool] -= 1
        chosen.append(candidate)
    return (Command(reason="Empty", candidates=tuple(chosen)) if chosen else None), kept


def why_kept(candidate: Candidate) -> Kept | None:
    """Return why the node is not to be taken for being empty, budgets aside; None when it may be."""
    node, pool = candidate.node, candidate.pool

    def kept(reason: KeptFor, message: str) -> Kept:
        return Kept(node=node.name, reason=reason, message=message)

    if pool.static:
        return kept("static", f"NodePool {pool.name!r} keeps a fixed number of nodes")
    if pool.spec.disruption.consolidate_after == "Never":
        return kept("never", f'NodePool "{pool.name}" has consolidation disabled')
    if not candidate.empty:
        count = len(candidate.reschedulable)
        return kept("notEmpty", f"Node is not empty: {count} pod(s) would need another place")
    if node.claim is None or not is_true(node.claim.status.conditions, "Consolidatable"):
        after = pool.spec.disruption.consolidate_after
        return kept("tooFresh", f"Pods came or went less than consolidateAfter ({after}) ago")
    if node.headroom_pods:
        return kept("headroom", f'Node "{node.name}" has buffer pods')
    return None
