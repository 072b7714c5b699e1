"""What the live view and scripts need to know of the cluster, worked out from caches; pure.

Pods are counted as they change, so that a picture costs what there are machines, however many pods run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.quantity import to_units
from karpenter.kube.informer import Change
from karpenter.model import pods as podlib
from karpenter.model.instancetype import InstanceType

TERMINATING = "Terminating"


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
    """Workload pods by phase; not bound counts as `Pending`, deleted and not gone as `Terminating`."""
    running: int
    """Workload pods that are bound and Ready, and not deleted."""
    nodes: tuple[NodeRow, ...]
    """By name."""
    claims: int
    price: float
    """USD per hour of all nodes with a known price."""

    @property
    def wanted(self) -> int:
        """How many workload pods there are that shall stay."""
        return sum(count for phase, count in self.pods.items() if phase != TERMINATING)

    @property
    def booting(self) -> int:
        """Machines that were bought and are not ready yet."""
        return sum(node.state not in ("ready", "terminating") for node in self.nodes)

    @property
    def leaving(self) -> int:
        """Machines that are being given back."""
        return sum(node.state == "terminating" for node in self.nodes)

    @property
    def settled(self) -> bool:
        """Nothing is on its way: all pods run, no machine comes or goes, none is empty."""
        return (
            self.running == sum(self.pods.values())
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
        return self.offer(
            node_labels.get(labels.INSTANCE_TYPE, ""),
            node_labels.get(labels.ZONE, ""),
            node_labels.get(labels.CAPACITY_TYPE, ""),
        )

    def offer(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """Return the price of one offering, in USD per hour, if it is known."""
        return self._prices.get((instance_type, zone, capacity_type))


class _Counted(msgspec.Struct, frozen=True):
    """What one pod adds to the census."""

    phase: str
    """Empty for pods that are no workload."""
    running: bool = False
    node: str = ""
    resident: bool = False
    """It keeps its machine busy: no DaemonSet's."""
    cpu: int = 0
    memory: int = 0


class Census:
    """Pods by phase and by machine, kept up to date change by change."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._counted: dict[str, _Counted] = {}
        self._phases: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._memory: Counter[str] = Counter()
        self.running = 0
        """Workload pods that are bound and Ready, and not deleted."""
        for pod in pods:
            self.take(Change("ADDED", pod, None))

    def take(self, change: Change[Pod]) -> None:
        """Take one change of a pod; suits `Informer.subscribe`."""
        key = change.object.key
        before = self._counted.pop(key, None)
        after = None if change.type == "DELETED" else _counted(change.object)
        if after is not None:
            self._counted[key] = after
        if before != after:
            self._add(before, -1)
            self._add(after, 1)

    def phases(self) -> dict[str, int]:
        """Return the number of workload pods in each phase."""
        return {phase: count for phase, count in sorted(self._phases.items()) if count}

    def on(self, node: str) -> tuple[int, int, int]:
        """Return how many pods other than DaemonSets' are on `node`, and the cpu and memory all request."""
        return self._pods[node], self._cpu[node], self._memory[node]

    def _add(self, pod: _Counted | None, sign: int) -> None:
        if pod is None:
            return
        self.running += sign * pod.running
        if pod.phase:
            self._phases[pod.phase] += sign
        if pod.node:
            self._pods[pod.node] += sign * pod.resident
            self._cpu[pod.node] += sign * pod.cpu
            self._memory[pod.node] += sign * pod.memory


def _counted(pod: Pod) -> _Counted | None:
    if podlib.is_terminal(pod):
        return None
    node = pod.spec.node_name
    resident = not podlib.is_daemon(pod)
    workload = resident and pod.namespace != "kube-system"
    if not node:
        return _Counted("Pending") if workload else None
    phase = TERMINATING if pod.deleting else pod.status.phase or "Pending"
    requested = podlib.requests(pod)
    return _Counted(
        phase if workload else "",
        workload and not pod.deleting and conditions.is_true(pod.status.conditions, "Ready"),
        node,
        resident,
        requested.get("cpu", 0),
        requested.get("memory", 0),
    )


def take_picture(
    census: Census, nodes: Sequence[Node], claims: Sequence[NodeClaim], prices: PriceList
) -> Picture:
    """Return the picture of what the caches hold."""
    by_provider = {node.spec.provider_id: node for node in nodes if node.spec.provider_id}
    rows = [_row(claim, by_provider.get(claim.status.provider_id), census, prices) for claim in claims]
    return Picture(
        pods=census.phases(),
        running=census.running,
        nodes=tuple(sorted(rows, key=lambda row: row.name)),
        claims=len(claims),
        price=sum(row.price or 0.0 for row in rows),
    )


def _row(claim: NodeClaim, node: Node | None, census: Census, prices: PriceList) -> NodeRow:
    merged = {**claim.metadata.labels, **(node.metadata.labels if node else {})}
    pods, cpu, memory = census.on(node.name) if node else (0, 0, 0)
    return NodeRow(
        name=node.name if node else claim.name,
        instance_type=merged.get(labels.INSTANCE_TYPE, "?"),
        zone=merged.get(labels.ZONE, "?"),
        capacity_type=merged.get(labels.CAPACITY_TYPE, "?"),
        price=prices.of(merged),
        cpu_used=_share("cpu", node, cpu),
        memory_used=_share("memory", node, memory),
        pods=pods,
        state=_state(claim, node),
    )


def _share(resource: str, node: Node | None, requested: int) -> float:
    allocatable = to_units(resource, str(node.status.allocatable.get(resource, 0))) if node else 0
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
