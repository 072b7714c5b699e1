"""What the live view and scripts need to know of the cluster, worked out from caches; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.quantity import to_units
from karpenter.model import pods as podlib
from karpenter.model.instancetype import InstanceType


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One machine as people see it."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    """USD per hour; None when the type or offering is unknown."""
    cpu_used: float
    """Requested share of allocatable CPU, 0 to 1."""
    memory_used: float
    pods: int
    """Bound pods that are not DaemonSets'."""
    state: str
    """launching, registering, initializing, ready, or terminating."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at a glance."""

    pods: dict[str, int]
    """Workload pods by phase; a pod that is not bound counts as `Pending`."""
    running: int
    """Workload pods that are bound and Ready."""
    nodes: tuple[NodeRow, ...]
    """By name."""
    claims: int
    price: float
    """USD per hour of all nodes with a known price."""

    @property
    def settled(self) -> bool:
        """Nothing is on its way: all pods run, no machine comes or goes, none is empty."""
        total = sum(self.pods.values())
        return (
            self.running == total
            and self.claims == len(self.nodes)
            and all(node.state == "ready" and node.pods for node in self.nodes)
        )


class PriceList:
    """Prices by instance type, zone and capacity type."""

    def __init__(self, instance_types: Iterable[InstanceType]) -> None:
        self._prices = {
            (kind.name, offering.zone, offering.capacity_type): offering.price
            for kind in instance_types
            for offering in kind.offerings
        }

    def of(self, node_labels: Mapping[str, str]) -> float | None:
        """Return the price of a node with `node_labels`, in USD per hour, if it is known."""
        return self._prices.get(
            (
                node_labels.get(labels.INSTANCE_TYPE, ""),
                node_labels.get(labels.ZONE, ""),
                node_labels.get(labels.CAPACITY_TYPE, ""),
            )
        )


def take_picture(
    pods: Sequence[Pod], nodes: Sequence[Node], claims: Sequence[NodeClaim], prices: PriceList
) -> Picture:
    """Return the picture of what the caches hold."""
    workload = [
        pod
        for pod in pods
        if not (podlib.is_terminal(pod) or podlib.is_daemon(pod) or pod.namespace == "kube-system")
    ]
    bound: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and not podlib.is_terminal(pod):
            bound.setdefault(pod.spec.node_name, []).append(pod)
    by_provider = {node.spec.provider_id: node for node in nodes if node.spec.provider_id}
    rows = [_row(claim, by_provider.get(claim.status.provider_id), bound, prices) for claim in claims]
    return Picture(
        pods=dict(
            sorted(
                Counter(
                    (p.status.phase or "Pending") if p.spec.node_name else "Pending" for p in workload
                ).items()
            )
        ),
        running=sum(
            1 for p in workload if p.spec.node_name and conditions.is_true(p.status.conditions, "Ready")
        ),
        nodes=tuple(sorted(rows, key=lambda row: row.name)),
        claims=len(claims),
        price=sum(row.price or 0.0 for row in rows),
    )


def _row(claim: NodeClaim, node: Node | None, bound: Mapping[str, list[Pod]], prices: PriceList) -> NodeRow:
    merged = {**claim.metadata.labels, **(node.metadata.labels if node else {})}
    residents = bound.get(node.name, []) if node else []
    return NodeRow(
        name=node.name if node else claim.name,
        instance_type=merged.get(labels.INSTANCE_TYPE, "?"),
        zone=merged.get(labels.ZONE, "?"),
        capacity_type=merged.get(labels.CAPACITY_TYPE, "?"),
        price=prices.of(merged),
        cpu_used=_share("cpu", node, residents),
        memory_used=_share("memory", node, residents),
        pods=sum(1 for pod in residents if not podlib.is_daemon(pod)),
        state=_state(claim, node),
    )


def _share(resource: str, node: Node | None, residents: Sequence[Pod]) -> float:
    allocatable = to_units(resource, str(node.status.allocatable.get(resource, 0))) if node else 0
    requested = sum(podlib.requests(pod).get(resource, 0) for pod in residents)
    return requested / allocatable if allocatable else 0.0


def _state(claim: NodeClaim, node: Node | None) -> str:
    if claim.deleting or (node is not None and node.deleting):
        return "terminating"
    for condition, state in (
        ("Launched", "launching"),
        ("Registered", "registering"),
        ("Initialized", "initializing"),
    ):
        if not conditions.is_true(claim.status.conditions, condition):
            return state
    return "ready"
