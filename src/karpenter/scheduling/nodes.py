"""Existing and in-flight nodes as a table: what is free on each, and which pods each may take."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from karpenter.apis import labels
from karpenter.apis.core import Toleration
from karpenter.model import taints
from karpenter.model.pods import host_ports
from karpenter.model.problem import Problem
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.classes import TOLERATE_PREFERENCES, PodClass, Port, Variant
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.space import Axis, Daemon, conflicting, how_many
from karpenter.scheduling.topology import Profile, Topology

_ALL = (Toleration(operator="Exists"),)


class NodeTable:
    """The nodes of a problem: initialized ones first, then by name. `free` shrinks as pods are placed."""

    def __init__(
        self,
        problem: Problem,
        axis: Axis,
        daemons: Sequence[Daemon],
        classes: Sequence[PodClass],
        topology: Topology,
        drives: Drives,
        most: Mapping[tuple[int, str], int] | None = None,
    ) -> None:
        """Lay out the nodes of `problem`; labels that no class asks for are not looked at.

        `most` has how many pods of a class, by number, a node may take, where that matters.
        """
        turn = {name: i for i, name in enumerate(problem.first)}
        self.nodes = sorted(
            problem.nodes, key=lambda n: (turn.get(n.name, len(turn)), not n.initialized, n.name)
        )
        self._most: dict[int, dict[int, int]] = {}
        for row, node in enumerate(self.nodes if most else ()):
            for (number, name), pods in (most or {}).items():
                if name == node.name:
                    self._most.setdefault(number, {})[row] = pods
        asked = {key for c in classes for v in c.variants for key in v.requirements}
        self._keys = sorted(asked | {key for c in classes for key in c.profile.wide.keys})
        rows = [
            axis.vector({**n.allocatable, **drives.free_on(n, problem.snapshot)}) - axis.vector(n.requested)
            for n in self.nodes
        ]
        self.free: Amounts = np.array(rows, dtype=np.int64).reshape(len(rows), len(axis.names))
        self._subtract_daemons(axis, daemons)
        self._open: Mask = np.all(self.free >= 0, axis=1)
        self._ports: dict[int, set[Port]] = {}
        self._crowd = topology.table()
        for node in self.nodes:
            self._crowd.append(topology.occupancy(node.pods), 1)
        signatures: dict[tuple[object, ...], int] = {}
        codes = [signatures.setdefault(_signature(n, self._keys), len(signatures)) for n in self.nodes]
        self._codes = np.array(codes, dtype=np.int64)
        first = {code: i for i, code in reversed(list(enumerate(codes)))}
        self._examples = [self.nodes[first[code]] for code in range(len(signatures))]
        self._masks: dict[Variant, Mask] = {}
        self._within_reach: dict[tuple[Variant, ...], bool] = {}

    def _subtract_daemons(self, axis: Axis, daemons: Sequence[Daemon]) -> None:
        """Keep room for daemons that will run on a node and do not run there yet."""
        if not daemons:
            return
        keys = sorted({key for d in daemons for wanted in d.alternatives for key in wanted})
        known: dict[tuple[object, ...], Amounts] = {}
        for row, node in enumerate(self.nodes):
            signature = _signature(node, keys)
            if signature not in known:
                here = node_requirements(node, keys)
                known[signature] = sum(
                    (axis.vector(d.requests) for d in daemons if _runs(d, node, here)),
                    start=axis.vector({}),
                )
            self.free[row] -= np.maximum(known[signature] - axis.vector(node.daemon_requested), 0)

    def room_for(
        self,
        ask: Ask,
        variant: Variant,
        *,
        wishes: Sequence[int] = (),
        nowhere_else: bool = False,
        founding: bool = False,
    ) -> Amounts:
        """Return, by node, how many pods of `ask` it can take under `variant`.

        `wishes`: preferences about the other pods of a node that count as rules. `nowhere_else`: no node can
        be bought for it, so that rules are read as kube-scheduler reads them, one pod at a time. `founding`:
        they are the first of a group that must be near itself.
        """
        counts = how_many(self.free, ask.wanted) * (self._open & self._mask(variant))
        if not ask.profile.alone and counts.any():
            # Taints do not matter to what a spread measures by, unless it says so.
            only = self._mask(msgspec.structs.replace(variant, tolerations=_ALL)) if nowhere_else else None
            allowed = self._crowd.allowance(ask.profile, wishes=wishes, only=only, founding=founding)
            counts = np.minimum(counts, allowed)
        if ask.ports:
            counts = np.minimum(counts, 1)
            for row in np.flatnonzero(counts).tolist():
                if conflicting(frozenset(self._taken(row)), ask.ports):
                    counts[row] = 0
        for row, most in self._most.get(ask.origins[0].pod_class, {}).items():
            counts[row] = min(counts[row], most)
        return counts

    def admits(self, variant: Variant) -> bool:
        """Tell whether some node would take pods of `variant`, had it room."""
        return bool((self._open & self._mask(variant)).any())

    def within_reach(self, variants: tuple[Variant, ...]) -> bool:
        """Tell whether some node would take pods of one of `variants`, room and company aside."""
        found = self._within_reach.get(variants)
        if found is None:
            found = self._within_reach[variants] = bool(self.nodes) and bool(self.suits(variants).any())
        return found

    def suits(self, variants: Iterable[Variant]) -> Mask:
        """Return, by node, whether it takes pods of one of `variants`, room and company aside."""
        found = np.zeros(len(self.nodes), dtype=np.bool_)
        for variant in variants:
            found |= self._open & self._mask(variant)
        return found

    def crowd(self) -> tuple[Amounts, Amounts]:
        """Return, by rule of the topology and node, how many pods it selects there, and how many own it."""
        return self._crowd.counts()

    def takes(self, name: str, variant: Variant) -> bool:
        """Tell whether a node is one that pods of `variant` accept."""
        row = next(row for row, node in enumerate(self.nodes) if node.name == name)
        return bool(self._mask(variant)[row])

    def place(self, row: int, ask: Ask, count: int) -> None:
        """Take the room of `count` pods on one node."""
        self.free[row] -= ask.wanted * count
        most = self._most.get(ask.origins[0].pod_class, {})
        if row in most:
            most[row] -= count
        if ask.ports:
            self._taken(row).update(ask.ports)
        if not ask.profile.alone:
            self._crowd.add(row, ask.profile, count)

    def holds(self, rule: int) -> bool:
        """Tell whether some node holds a pod that `rule` of the topology selects."""
        return self._crowd.anywhere(rule)

    def may_found(self, profile: Profile) -> bool:
        """Tell whether pods that must be near pods like themselves find none here, so that one may begin."""
        near = profile.near
        return bool(near) and all(r in profile.selected and not self.holds(r) for r in near)

    def by_domain(
        self, keys: Sequence[str], counts: Amounts, optional: frozenset[str]
    ) -> dict[tuple[str, ...], int]:
        """Return the sum of `counts`, by node, for each combination of the values of `keys`.

        Nodes without a label are left out, unless it is one of the `optional`: then its value is empty.
        """
        found: dict[tuple[str, ...], int] = {}
        for row in np.flatnonzero(counts).tolist():
            values = tuple(_label(self.nodes[row], key) or "" for key in keys)
            if all(value or key in optional for key, value in zip(keys, values, strict=True)):
                found[values] = found.get(values, 0) + int(counts[row])
        return found

    def total_free(self) -> Amounts:
        """Return what is free on all nodes that can take pods."""
        total: Amounts = self.free[self._open].sum(axis=0)
        return total

    def _taken(self, row: int) -> set[Port]:
        if row not in self._ports:
            self._ports[row] = {port for pod in self.nodes[row].pods for port in host_ports(pod)}
        return self._ports[row]

    def _mask(self, variant: Variant) -> Mask:
        mask = self._masks.get(variant)
        if mask is None:
            fits = np.array(
                [
                    not taints.tolerates(node.taints, variant.tolerations)
                    and not node_requirements(node, self._keys).compatible(variant.requirements)
                    for node in self._examples
                ],
                dtype=np.bool_,
            )
            mask = self._masks[variant] = fits[self._codes]
        return mask


def node_requirements(node: NodeView, keys: Iterable[str]) -> Requirements:
    """Return the labels of `node` among `keys` as requirements; the host name is always known."""
    return Requirements.from_labels({key: value for key in keys if (value := _label(node, key)) is not None})


def _label(node: NodeView, key: str) -> str | None:
    value = node.labels.get(key)
    if key == labels.NODE_NAME_FIELD:
        # Only a Node that exists has the name by which pods may ask for it.
        return node.name if node.node is not None else None
    if value is None and key == labels.KUBERNETES_HOSTNAME:
        return node.name
    if value is None:
        # Nodes may still carry only the retired form of a label that requirements name by its new key.
        return next(
            (node.labels[old] for old, new in labels.ALIASES.items() if new == key and old in node.labels),
            None,
        )
    return value


def _signature(node: NodeView, keys: Sequence[str]) -> tuple[object, ...]:
    return (*(_label(node, key) for key in keys), *((t.key, t.value, t.effect) for t in node.taints))


def _runs(daemon: Daemon, node: NodeView, here: Requirements) -> bool:
    if taints.tolerates(node.taints, (*daemon.pod.spec.tolerations, TOLERATE_PREFERENCES)):
        return False
    return any(not here.compatible(wanted) for wanted in daemon.alternatives)
