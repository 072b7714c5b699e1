"""The cluster as the scheduler sees it: one row per node, kept up to date as pods come and go.

Amounts are int64 matrices `[row, resource]`; how many pods a selector picks is a vector `[row]` per selector
in use (`counting`), so that spreading and pod affinity are sums over topology codes. Everything is updated
in place by `place` and `remove`, which are exact inverses: preemption asks "what if" by doing and undoing.
"""

from collections.abc import Callable, Hashable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from karpenter.apis.core import Node, Taint
from karpenter.base.quantity import to_units
from karpenter.embedded.scheduler.counting import PodCounts
from karpenter.embedded.scheduler.podclass import HOSTNAME, Matcher, PodClass, Term
from karpenter.embedded.scheduler.predicates import NOT_READY, HostPort

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


MASKS_KEPT = 4096
"""How many per-node answers are kept at most."""


class Placed(msgspec.Struct):
    """A pod that sits on a node (or is assumed to)."""

    key: str
    node: str
    pod_class: PodClass
    terminating: bool = False
    start_time: str = ""
    volumes: tuple[tuple[str, str], ...] = ()  # (driver, volume) pairs that count against attach limits


class NodeRow:
    """One node: what of it matters to scheduling, and the pods on it."""

    def __init__(self, row: int, name: str) -> None:
        self.row = row
        self.name = name
        self.labels: Mapping[str, str] = {}
        self.taints: list[Taint] = []
        self.unschedulable = False
        self.pods: dict[str, Placed] = {}
        self.ports: dict[tuple[str, int], list[HostPort]] = {}
        self.volume_limits: dict[str, int] = {}


class _Mask:
    """A cached value per row that depends on nothing but the node itself."""

    def __init__(self, capacity: int) -> None:
        self.values: Ints = np.zeros(capacity, np.int64)
        self.seen: Ints = np.full(capacity, -1, np.int64)


class ClusterModel:
    """Nodes, the pods on them, and counts of both."""

    def __init__(self) -> None:
        capacity = 16
        self.columns: dict[str, int] = {"cpu": 0, "memory": 1, "pods": 2}
        self.rows: list[NodeRow | None] = [None] * capacity
        self.nodes: dict[str, NodeRow] = {}
        self.alloc: Ints = np.zeros((capacity, 4), np.int64)
        self.used: Ints = np.zeros((capacity, 4), np.int64)
        self.nonzero: Ints = np.zeros((capacity, 2), np.int64)
        self.live: Bools = np.zeros(capacity, np.bool_)
        self.epoch: Ints = np.zeros(capacity, np.int64)
        """Moves whenever labels, taints or schedulability of the row's node change."""
        self.pods: dict[str, Placed] = {}
        self.nominated: dict[str, tuple[str, PodClass]] = {}
        """Pod key to the node it is promised, while it is not placed; change it by `nominate`."""
        self._promised: dict[int, Ints] = {}  # priority to amounts per row
        self.counting = PodCounts(capacity)
        self._codes: dict[str, tuple[Ints, dict[str, int]]] = {}
        self._masks: dict[Hashable, _Mask] = {}
        self._taint_codes: dict[tuple[str, str], int] = {}
        self._ticks = 0
        self._waiting: dict[str, list[Placed]] = {}  # pods seen before their node

    # --- classes and counts ------------------------------------------------------------------------

    @property
    def classes(self) -> dict[bytes, PodClass]:
        """The known classes by signature."""
        return self.counting.classes

    def intern(self, pod_class: PodClass) -> PodClass:
        """Return the one class of this signature, registering it when it is new."""
        return self.counting.intern(pod_class)

    def release(self, pod_class: PodClass) -> None:
        """Forget a class no pod is of any more."""
        self.counting.release(pod_class)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Note a namespace's labels (None: it is gone)."""
        self.counting.set_namespace(name, labels)

    def picked(self, matcher: Matcher, pod_class: PodClass) -> bool:
        """Tell whether `matcher` picks pods of the class."""
        return self.counting.picked(matcher, pod_class)

    def count(self, matchers: list[Matcher], *, terminating: bool) -> Ints:
        """Return how many pods on each row all of `matchers` pick, with or without terminating pods."""
        return self.counting.count(matchers, terminating=terminating)

    def holders(self, pod_class: PodClass, kind: str) -> list[tuple[Term, Ints]]:
        """Return the terms of `kind` that pick pods of the class, each with its holders per row."""
        return self.counting.holders(pod_class, kind)

    # --- nodes -------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> bool:
        """Add or update a node; tells whether anything changed that scheduling looks at."""
        entry = self.nodes.get(node.name)
        new = entry is None
        if entry is None:
            entry = self._add_row(node.name)
        taints = [t for t in node.spec.taints if t.effect != ""]
        if not any(c.type == "Ready" for c in node.status.conditions):
            # Admission taints nodes that have never reported; with a client's eyes we cannot rely on it.
            taints = [*taints, Taint(NOT_READY, "", "NoSchedule")]
        changed = new
        if (
            new
            or entry.labels != node.metadata.labels
            or entry.taints != taints
            or entry.unschedulable != node.spec.unschedulable
        ):
            changed = True
            self._ticks += 1
            self.epoch[entry.row] = self._ticks
            entry.labels = node.metadata.labels
            entry.taints = taints
            entry.unschedulable = node.spec.unschedulable
            for key, (codes, values) in self._codes.items():
                codes[entry.row] = _code(values, self._topology(entry, key))
        amounts = np.zeros(self.alloc.shape[1], np.int64)
        for name, quantity in node.status.allocatable.items():
            column = self._column(name)
            if column >= len(amounts):
                amounts = np.pad(amounts, (0, self.alloc.shape[1] - len(amounts)))
            amounts[column] = to_units(name, str(quantity))
        if not np.array_equal(self.alloc[entry.row], amounts):
            self.alloc[entry.row] = amounts
            changed = True
        if new:
            for placed in self._waiting.pop(node.name, []):
                self._attach(entry, placed)
            for promised_node, pod_class in self.nominated.values():
                if promised_node == node.name:
                    self._promise(promised_node, pod_class, 1)
        return changed

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods wait for it, should it come back."""
        entry = self.nodes.pop(name, None)
        if entry is None:
            return
        for placed in list(entry.pods.values()):
            self._detach(entry, placed)
            self._waiting.setdefault(name, []).append(placed)
        row = entry.row
        self.rows[row] = None
        self.live[row] = False
        self.alloc[row] = self.used[row] = self.nonzero[row] = 0
        for promised in self._promised.values():
            promised[row] = 0
        for codes, _ in self._codes.values():
            codes[row] = -1

    def codes(self, topology_key: str) -> tuple[Ints, int]:
        """Return each row's domain of a topology key as a small number (-1: none), and how many there are."""
        found = self._codes.get(topology_key)
        if found is None:
            values: dict[str, int] = {}
            codes = np.full(len(self.rows), -1, np.int64)
            for node in self.nodes.values():
                codes[node.row] = _code(values, self._topology(node, topology_key))
            found = self._codes[topology_key] = (codes, values)
        return found[0], len(found[1])

    def _topology(self, node: NodeRow, key: str) -> str | None:
        return node.labels.get(key, node.name if key == HOSTNAME else None)

    def per_node(self, key: Hashable, value: Callable[[NodeRow], int]) -> Ints:
        """Return `value` of every node as a vector, asking again only for nodes that changed."""
        mask = self._masks.get(key)
        if mask is None:
            if len(self._masks) >= MASKS_KEPT:
                self._masks.clear()  # all can be had again; which are still asked for is not tracked
            mask = self._masks[key] = _Mask(len(self.rows))
        for row in np.flatnonzero(self.live & (mask.seen != self.epoch)).tolist():
            node = self.rows[row]
            assert node is not None
            mask.values[row] = value(node)
            mask.seen[row] = self.epoch[row]
        return mask.values

    def code_of(self, taint: tuple[str, str]) -> int:
        """Return a small number that stands for a taint's key and value."""
        return self._taint_codes.setdefault(taint, len(self._taint_codes))

    def coded(self, code: int) -> tuple[str, str]:
        """Return the taint that `code_of` gave the number for."""
        return list(self._taint_codes)[code]

    def _add_row(self, name: str) -> NodeRow:
        row = next((i for i, entry in enumerate(self.rows) if entry is None), -1)
        if row < 0:
            row = len(self.rows)
            self._grow_rows()
        entry = NodeRow(row, name)
        self.rows[row] = entry
        self.nodes[name] = entry
        self.live[row] = True
        return entry

    def _grow_rows(self) -> None:
        extra = len(self.rows)
        self.rows.extend([None] * extra)
        self.alloc = np.pad(self.alloc, ((0, extra), (0, 0)))
        self.used = np.pad(self.used, ((0, extra), (0, 0)))
        self.nonzero = np.pad(self.nonzero, ((0, extra), (0, 0)))
        self._promised = {p: np.pad(m, ((0, extra), (0, 0))) for p, m in self._promised.items()}
        self.live = np.pad(self.live, (0, extra))
        self.epoch = np.pad(self.epoch, (0, extra))
        self._codes = {
            key: (np.pad(codes, (0, extra), constant_values=-1), values)
            for key, (codes, values) in self._codes.items()
        }
        self.counting.grow(extra)
        for mask in self._masks.values():
            mask.values = np.pad(mask.values, (0, extra))
            mask.seen = np.pad(mask.seen, (0, extra), constant_values=-1)

    def _column(self, resource: str) -> int:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = len(self.columns)
            if column >= self.alloc.shape[1]:
                extra = self.alloc.shape[1]
                self.alloc = np.pad(self.alloc, ((0, 0), (0, extra)))
                self.used = np.pad(self.used, ((0, 0), (0, extra)))
                self._promised = {p: np.pad(m, ((0, 0), (0, extra))) for p, m in self._promised.items()}
        return column

    def request_vector(self, pod_class: PodClass) -> tuple[Ints, Ints]:
        """Return the columns a class asks for and how much of each."""
        vector = pod_class.vector
        if vector is None:
            pairs = sorted((self._column(name), amount) for name, amount in pod_class.requests.items())
            vector = np.array([c for c, _ in pairs], np.int64), np.array([a for _, a in pairs], np.int64)
            pod_class.vector = vector
        return vector

    # --- pods --------------------------------------------------------------------------------------

    def place(self, placed: Placed) -> None:
        """Put a pod on its node; a pod already there is replaced."""
        self.remove(placed.key)
        self.pods[placed.key] = placed
        entry = self.nodes.get(placed.node)
        if entry is None:
            self._waiting.setdefault(placed.node, []).append(placed)
        else:
            self._attach(entry, placed)

    def remove(self, key: str) -> Placed | None:
        """Take a pod off its node and return it; None when it was on none."""
        placed = self.pods.pop(key, None)
        if placed is None:
            return None
        entry = self.nodes.get(placed.node)
        if entry is not None and key in entry.pods:
            self._detach(entry, placed)
        elif placed.node in self._waiting:
            rest = [p for p in self._waiting[placed.node] if p.key != key]
            if rest:
                self._waiting[placed.node] = rest
            else:
                del self._waiting[placed.node]
        return placed

    def _attach(self, entry: NodeRow, placed: Placed) -> None:
        entry.pods[placed.key] = placed
        for port in placed.pod_class.ports:
            entry.ports.setdefault((port.protocol, port.port), []).append(port)
        self._move(entry.row, placed, 1)

    def _detach(self, entry: NodeRow, placed: Placed) -> None:
        del entry.pods[placed.key]
        for port in placed.pod_class.ports:
            entry.ports[(port.protocol, port.port)].remove(port)
        self._move(entry.row, placed, -1)

    def _move(self, row: int, placed: Placed, sign: int) -> None:
        pod_class = placed.pod_class
        columns, amounts = self.request_vector(pod_class)
        self.used[row, columns] += sign * amounts
        self.nonzero[row, 0] += sign * pod_class.nonzero[0]
        self.nonzero[row, 1] += sign * pod_class.nonzero[1]
        self.counting.move(row, pod_class, terminating=placed.terminating, sign=sign)

    # --- promises ----------------------------------------------------------------------------------

    def nominate(self, key: str, node: str, pod_class: PodClass | None) -> None:
        """Promise a node to a pod that is not placed yet ("" takes the promise back)."""
        old = self.nominated.pop(key, None)
        if old is not None:
            self._promise(old[0], old[1], -1)
        if node and pod_class is not None:
            self.nominated[key] = (node, pod_class)
            self._promise(node, pod_class, 1)

    def _promise(self, node: str, pod_class: PodClass, sign: int) -> None:
        entry = self.nodes.get(node)
        if entry is None:
            return
        columns, amounts = self.request_vector(pod_class)
        promised = self._promised.get(pod_class.priority)
        if promised is None:
            promised = self._promised[pod_class.priority] = np.zeros_like(self.used)
        promised[entry.row, columns] += sign * amounts

    def reserved(self, key: str, pod_class: PodClass) -> Ints | None:
        """Return what each row has promised to other pods at least as important (None: nothing)."""
        if not self.nominated:
            return None
        matrices = [m for priority, m in self._promised.items() if priority >= pod_class.priority]
        if not matrices:
            return None
        own = self.nominated.get(key)
        entry = self.nodes.get(own[0]) if own is not None else None
        if entry is None:
            return matrices[0] if len(matrices) == 1 else sum(matrices[1:], matrices[0])
        total = sum(matrices[1:], matrices[0].copy())
        columns, amounts = self.request_vector(pod_class)
        total[entry.row, columns] -= amounts
        return total


def _code(values: dict[str, int], value: str | None) -> int:
    return -1 if value is None else values.setdefault(value, len(values))
