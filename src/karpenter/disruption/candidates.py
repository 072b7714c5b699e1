"""Which nodes may be disrupted at all, and for each other one the first reason why not, as a verdict."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.disruption import obstacles
from karpenter.disruption.obstacles import Obstacle
from karpenter.disruption.verdicts import Verdict
from karpenter.model import pods as podlib
from karpenter.model.instancetype import InstanceType
from karpenter.model.pdbs import PdbLimits
from karpenter.model.prices import price_of
from karpenter.model.snapshot import NodeView, Snapshot


class Candidate(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A node that may be disrupted."""

    node: NodeView
    pool: NodePool
    reschedulable: tuple[Pod, ...]
    """Pods that would need another place, by key."""
    price: float
    """USD per hour; 0 when it is not known."""
    instance_type: InstanceType | None = None
    """None when the cloud lists its type no more."""
    zone: str = ""
    """By its label; empty without."""
    capacity_type: str = ""
    """By its label; empty without."""
    stuck: frozenset[str] = frozenset()
    """Keys of those of `reschedulable` that nothing will move: do-not-disrupt, or a budget that can never
    allow it. Only nodes that may be disrupted eventually have any."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def empty(self) -> bool:
        """Nothing on it would need another place."""
        return not self.reschedulable

    @property
    def movable(self) -> tuple[Pod, ...]:
        """Pods that would need another place and can be made to go there, by key."""
        if not self.stuck:
            return self.reschedulable
        return tuple(pod for pod in self.reschedulable if podlib.pod_key(pod) not in self.stuck)

    @cached_property
    def disruption_cost(self) -> float:
        """What disrupting its pods costs; 1 for none (upstream's formula)."""
        return disruption_cost(self.reschedulable)

    @property
    def savings_ratio(self) -> float:
        """USD per hour saved per unit of disruption."""
        return self.price / self.disruption_cost


class Found(NamedTuple):
    """What a look at all nodes of ours came to; each by name of the node."""

    candidates: tuple[Candidate, ...]
    """Nodes that may be disrupted gracefully."""
    eventual: tuple[Candidate, ...]
    """These and those that only pods object for, which their terminationGracePeriod overrules in the end."""
    blocked: tuple[Verdict, ...]
    """Why the nodes that are not in `candidates` are not."""


def disruption_cost(pods: Iterable[Pod]) -> float:
    """Return what disrupting a node with these reschedulable pods costs; 1 for none (upstream's formula)."""
    return 1.0 + sum(max(0.0, podlib.eviction_cost(pod)) for pod in pods)


def find_candidates(
    snapshot: Snapshot,
    *,
    queued: frozenset[str],
    catalogues: Mapping[str, Sequence[InstanceType]],
    reservation_label: str = "",
) -> Found:
    """Look at every node of ours. Nodes that are not ours are not spoken of.

    Args:
        snapshot: the cluster.
        queued: provider ids of nodes already being disrupted.
        catalogues: the instance types of each pool, by its name, whether they can be bought now or not.
        reservation_label: the label under which nodes and offerings carry their reservation's id.
    """
    pools = {pool.name: pool for pool in snapshot.nodepools}
    kinds = {name: {kind.name: kind for kind in types} for name, types in catalogues.items()}
    limits = PdbLimits(snapshot.pdbs, snapshot.stand_ins)
    found: tuple[list[Candidate], list[Candidate], list[Verdict]] = ([], [], [])
    graceful, eventual, blocked = found
    for node in snapshot.nodes:
        if not node.managed:
            continue
        reason = obstacles.of_node(node, pools, kinds, queued, snapshot.taken_at)
        if reason is not None:
            blocked.append(_verdict(node, reason))
            continue
        reason = obstacles.of_pods(node.pods, limits, snapshot.taken_at)
        if reason is None:
            candidate = _candidate(node, pools[node.nodepool], kinds[node.nodepool], reservation_label)
            graceful.append(candidate)
            eventual.append(candidate)
            continue
        blocked.append(_verdict(node, reason))
        if node.claim is not None and node.claim.spec.termination_grace_period is not None:
            candidate = _candidate(node, pools[node.nodepool], kinds[node.nodepool], reservation_label)
            stuck = obstacles.stuck(candidate.reschedulable, limits, snapshot.taken_at)
            eventual.append(msgspec.structs.replace(candidate, stuck=stuck))
    return Found(tuple(graceful), tuple(eventual), tuple(blocked))


def _candidate(
    node: NodeView, pool: NodePool, kinds: Mapping[str, InstanceType], reservation_label: str
) -> Candidate:
    kind = kinds.get(node.labels.get(labels.INSTANCE_TYPE, ""))
    return Candidate(
        node=node,
        pool=pool,
        reschedulable=tuple(pod for pod in node.pods if podlib.is_reschedulable(pod)),
        price=price_of(kind, node.labels, reservation_label) or 0.0,
        instance_type=kind,
        zone=node.labels.get(labels.ZONE, ""),
        capacity_type=node.labels.get(labels.CAPACITY_TYPE, ""),
    )


def _verdict(node: NodeView, obstacle: Obstacle) -> Verdict:
    return Verdict(
        node=node.name, method=None, code=obstacle.code, message=obstacle.message, remedy=obstacle.remedy
    )
