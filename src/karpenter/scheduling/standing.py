"""Pods where they run: who could move where at a glance, and what each pod is worth.

This is for guessing quickly which nodes are worth taking away. It knows requests, node selection, taints and
the rules over host names, but not those over zones, nor volumes or ports: what looks possible here has to be
tried by the solver, and something that does not may still be.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

import msgspec
import numpy as np

from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import Problem
from karpenter.scheduling.catalogue import Amounts, Mask, Prices
from karpenter.scheduling.classes import classify
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.space import how_many
from karpenter.scheduling.topology import UNLIMITED, Topology


class Move(NamedTuple):
    """Pods of one class that change nodes."""

    pod_class: int
    to: int
    pods: int


class Leaving(NamedTuple):
    """Where the pods of one node could go."""

    moves: tuple[Move, ...]
    left: dict[int, int]
    """How many pods of which class found no room."""
    worth_left: float
    """USD per hour that those cost at least, at the prices of what can be bought."""


class Standing:
    """Nodes and the pods on them that may move, as arrays. Nodes go by their row."""

    def __init__(self, problem: Problem, movable: Mapping[str, Sequence[Pod]]) -> None:
        """Lay out `problem`, whose pods are all those in `movable`, by the name of their node.

        Its nodes still hold them: what they request is in the nodes' sums.
        """
        self._problem = problem
        self._topology, self._drives = Topology(problem), Drives.of(problem)
        self._classes = classify(problem, self._topology, self._drives)
        whole = Pass(problem, self._topology, self._classes, self._drives, {})
        table, rules = whole.nodes, self._topology.rules
        self.names = tuple(node.name for node in table.nodes)
        self.row = {name: i for i, name in enumerate(self.names)}
        wanted = [whole.axis.vector(c.requests) for c in self._classes]
        self._wanted = np.array(wanted, dtype=np.int64).reshape(len(wanted), len(whole.axis.names))
        self._size = np.maximum(table.free.max(axis=0, initial=1), 1)
        self._free: Amounts = table.free
        self._shapes, self._shape = np.unique(self._wanted, axis=0, return_inverse=True)
        self._asked, self._divisors = self._shapes > 0, np.maximum(self._shapes, 1)
        self._counts: Amounts = np.array([how_many(self._free, shape) for shape in self._shapes])
        """[shape, node] How many more pods of a size fit on a node."""
        self._fits = np.array([table.suits(c.variants) for c in self._classes]).reshape(
            len(self._classes), len(self.names)
        )
        self._held: list[dict[int, int]] = [{} for _ in self.names]
        number = {key: i for i, c in enumerate(self._classes) for key in c.pods}
        for name, pods in sorted(movable.items()):
            if name in self.row:
                held = self._held[self.row[name]]
                for pod in pods:
                    i = number[pod_key(pod)]
                    held[i] = held.get(i, 0) + 1
        self._limit = [r.max_skew for r in rules]
        self._anti = [r.kind == "anti" for r in rules]
        self._selected, self._owned = table.crowd()
        for row, held in enumerate(self._held):
            for i, count in held.items():
                self._crowd(i, row, count)
        self.worth: Prices = np.zeros(len(self._classes))
        """[class] USD per hour that a pod costs at least, bought anew with all others; 0 until priced."""
        self._sold: list[tuple[Amounts, Prices]] = []
        """[type, resource] What pods can have of each machine on sale, and its USD per hour, by pool."""
        self._turn: Amounts = np.zeros(len(self.names), dtype=np.int64)

    def copy(self) -> "Standing":
        """Return one on which pods can be moved without a trace on this one."""
        other = copy(self)
        other._free, other._counts = self._free.copy(), self._counts.copy()
        other._selected, other._owned = self._selected.copy(), self._owned.copy()
        other._held = [dict(held) for held in self._held]
        return other

    def price(self, more: Callable[[], bool]) -> None:
        """Work out what pods are worth, as exactly as `more` allows."""
        anew = msgspec.structs.replace(
            self._problem,
            nodes=(),
            pools=tuple(msgspec.structs.replace(offer, remaining={}) for offer in self._problem.pools),
            options=msgspec.structs.replace(self._problem.options, price_remaining=None),
        )
        bare = Pass(anew, self._topology, self._classes, self._drives, {})
        self.worth = bare.relaxation().worths(more)
        for space in bare.spaces:
            sold = space.evaluate(space.unlimited).price
            open_ = np.isfinite(sold) & space.usable
            self._sold.append((space.room[open_], sold[open_]))

    def whole(self, left: Mapping[int, int]) -> float:
        """Return the USD per hour of the cheapest machine on sale with room for so many pods of each class.

        Infinite when there is none, or before prices were worked out. Only room is looked at.
        """
        need = sum((self._wanted[i] * count for i, count in left.items()), start=0 * self._size)
        least = [sold[(room >= need).all(axis=1)].min(initial=np.inf) for room, sold in self._sold]
        return float(min(least, default=np.inf))

    def prefer(self, first: Sequence[str]) -> None:
        """Let pods that leave try these nodes first, in this order, then the others."""
        turn = {name: i for i, name in enumerate(first)}
        self._turn = np.array([turn.get(name, len(turn)) for name in self.names], dtype=np.int64)

    def value(self, row: int) -> float:
        """Return what the movable pods of a node are worth, USD per hour."""
        return float(sum(self.worth[i] * count for i, count in self._held[row].items()))

    def vacating(self, row: int, targets: Mask) -> Leaving | None:
        """Return where all pods of node `row` would fit among the `targets`; None if they do not."""
        elsewhere = targets.copy()
        elsewhere[row] = False
        if any(self._room(i, elsewhere).sum() < count for i, count in self._held[row].items()):
            return None
        found = self.leaving(row, targets)
        return None if found.left else found

    def leaving(self, row: int, targets: Mask) -> Leaving:
        """Return where the pods of node `row` would fit among the `targets`: those preferred, then the
        tightest room."""
        moves: list[Move] = []
        left: dict[int, int] = {}
        targets = targets.copy()
        targets[row] = False
        for i in sorted(self._held[row], key=lambda i: (-float((self._wanted[i] / self._size).max()), i)):
            remaining = self._held[row][i]
            counts = self._room(i, targets)
            rows = np.flatnonzero(counts)
            slack = ((self._free[rows] - self._wanted[i]) / self._size).sum(axis=1)
            for to in rows[np.lexsort((slack, self._turn[rows]))].tolist():
                take = min(remaining, int(counts[to]))
                self._shift(i, to, take)
                moves.append(Move(i, to, take))
                remaining -= take
                if not remaining:
                    break
            if remaining:
                left[i] = remaining
        for move in moves:
            self._shift(move.pod_class, move.to, -move.pods)
        return Leaving(tuple(moves), left, float(sum(self.worth[i] * n for i, n in left.items())))

    def move(self, row: int, leaving: Leaving) -> None:
        """Carry out what `leaving` found; whoever found no room is gone, too."""
        for move in leaving.moves:
            self._shift(move.pod_class, move.to, move.pods)
            held = self._held[move.to]
            held[move.pod_class] = held.get(move.pod_class, 0) + move.pods
        for i, pods in self._held[row].items():
            self._shift(i, row, -pods)
        self._held[row] = {}

    def _room(self, i: int, targets: Mask) -> Amounts:
        """Return, by node, how many more pods of class `i` it takes."""
        counts: Amounts = self._counts[self._shape[i]] * (targets & self._fits[i])
        profile = self._classes[i].profile
        for rule in profile.owned:
            here = self._selected[rule]
            if self._anti[rule]:
                alone = 1 if rule in profile.selected else UNLIMITED
                counts = np.minimum(counts, np.where(here > 0, 0, alone))
            else:
                counts = np.minimum(counts, np.maximum(self._limit[rule] - here, 0))
        for rule in profile.selected:
            if self._anti[rule]:
                counts[self._owned[rule] > 0] = 0
        for rule in profile.near:
            counts[self._selected[rule] == 0] = 0
        return counts

    def _shift(self, i: int, row: int, count: int) -> None:
        self._free[row] -= self._wanted[i] * count
        fit = np.where(self._asked, self._free[row] // self._divisors, UNLIMITED).min(axis=1)
        self._counts[:, row] = np.maximum(fit, 0)
        self._crowd(i, row, count)

    def _crowd(self, i: int, row: int, count: int) -> None:
        profile = self._classes[i].profile
        for rule in profile.selected:
            self._selected[rule, row] += count
        for rule in profile.owned:
            self._owned[rule, row] += count
