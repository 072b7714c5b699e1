"""Which nodes may be disrupted at all, and for each other one the reason why not, as data."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.model import pods as podlib
from karpenter.model.pdbs import PdbLimits
from karpenter.model.snapshot import NodeView, Snapshot

Blocker = Literal[
    "queued",
    "noNode",
    "notInitialized",
    "deleting",
    "nominated",
    "doNotDisrupt",
    "noNodePool",
    "podDoNotDisrupt",
    "podDisruptionBudget",
]


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node may not be disrupted."""

    node: str
    blocker: Blocker
    message: str
    """For people, in upstream's words."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may be disrupted."""

    node: NodeView
    pool: NodePool
    reschedulable: tuple[Pod, ...]
    """Pods that would need another place, by key."""
    price: float
    """USD per hour; 0 when it is not known."""

    @property
    def empty(self) -> bool:
        """Nothing on it would need another place."""
        return not self.reschedulable

    @property
    def disruption_cost(self) -> float:
        """What disrupting its pods costs; 1 for none (upstream's formula)."""
        return 1.0 + sum(max(0.0, podlib.eviction_cost(pod)) for pod in self.reschedulable)

    @property
    def savings_ratio(self) -> float:
        """USD per hour saved per unit of disruption."""
        return self.price / self.disruption_cost


def find_candidates(
    snapshot: Snapshot, *, queued: frozenset[str], prices: Mapping[str, float]
) -> tuple[list[Candidate], list[Blocked]]:
    """Return the nodes that may be disrupted and the ones that may not, each by name.

    `queued` are provider ids already being disrupted; `prices` are USD per hour by node name. Nodes that are
    not ours are in neither list.
    """
    pools = {pool.name: pool for pool in snapshot.nodepools}
    limits = PdbLimits(snapshot.pdbs)
    candidates: list[Candidate] = []
    blocked: list[Blocked] = []
    for node in snapshot.nodes:
        if not node.managed:
            continue
        found = _why_not(node, pools, limits, queued, snapshot.taken_at)
        if found is not None:
            blocked.append(Blocked(node=node.name, blocker=found[0], message=found[1]))
            continue
        candidates.append(
            Candidate(
                node=node,
                pool=pools[node.nodepool],
                reschedulable=tuple(pod for pod in node.pods if podlib.is_reschedulable(pod)),
                price=prices.get(node.name, 0.0),
            )
        )
    return candidates, blocked


def _why_not(
    node: NodeView,
    pools: Mapping[str, NodePool],
    limits: PdbLimits,
    queued: frozenset[str],
    now: float,
) -> tuple[Blocker, str] | None:
    """Return the first thing that keeps the node from being disrupted; None when nothing does."""
    if node.provider_id in queued:
        return "queued", "is being disrupted already"
    if node.node is None:
        return "noNode", "Nodeclaim does not have an associated node"
    if not node.initialized:
        return "notInitialized", "Node isn't initialized"
    if node.marked_for_deletion:
        return "deleting", "Node is deleting or marked for deletion"
    if node.nominated_until > now:
        return "nominated", "Node is nominated for a pending pod"
    if _protected(node):
        return "doNotDisrupt", f'Disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
    if not node.nodepool:
        return "noNodePool", f"Node doesn't have required label (label={labels.NODEPOOL})"
    if node.nodepool not in pools:
        return "noNodePool", f"NodePool not found (NodePool={node.nodepool})"
    return _pod_blocks(node.pods, limits, now)


def _protected(node: NodeView) -> bool:
    return any(
        owner is not None and owner.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true"
        for owner in (node.node, node.claim)
    )


def _pod_blocks(pods: Iterable[Pod], limits: PdbLimits, now: float) -> tuple[Blocker, str] | None:
    for pod in pods:
        if not podlib.is_disruptable(pod, now):
            text = f'Pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
            return "podDoNotDisrupt", text
    for pod in pods:
        why = limits.blocking(pod, now)
        if why:
            return "podDisruptionBudget", f"{why[0].upper()}{why[1:]} (Pod={pod.key})"
    return None
