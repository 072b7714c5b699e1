"""What would happen if some nodes were gone: the pods on them are planned anew, by the very same solver.

Pods that wait anyway, and those of nodes that are going already, get their places first, once for all
simulations; whatever they need to be bought is the provisioner's business.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from karpenter.apis.core import Pod
from karpenter.disruption.candidates import Candidate
from karpenter.model.pods import pod_key
from karpenter.model.problem import Budget, Plan, PlannedClaim, Problem
from karpenter.model.reasons import Unschedulable
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling import solve


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pods of the missing nodes would go."""

    claims: tuple[PlannedClaim, ...]
    """What would have to be bought."""
    placements: dict[str, tuple[str, ...]]
    """Pods (keys, sorted) that fit on existing nodes, by node name."""
    stranded: tuple[Unschedulable, ...]
    """Pods without a place, by key. Unless there are none, the nodes cannot go."""
    price: float
    """USD per hour of `claims`."""


class Simulator:
    """Answers what-if questions about one snapshot."""

    def __init__(self, base: Problem, *, monotonic: Callable[[], float] | None = None) -> None:
        """Prepare.

        Args:
            base: the provisioner's own problem: pods that wait and those of nodes already going, the nodes
                that stay, the pools with what is left of their limits.
            monotonic: a clock, where budgets in seconds are given.
        """
        self._monotonic = monotonic
        self._base = base
        self._usable = {node.name for node in base.nodes if node.initialized}
        self._coming = _coming(base)
        self._settled = _settled(base, self._coming)

    @property
    def problem(self) -> Problem:
        """The provisioner's problem."""
        return self._base

    def without(
        self,
        gone: Sequence[Candidate],
        *,
        closed: frozenset[str] = frozenset(),
        budget: Budget | None = None,
    ) -> Outcome:
        """Return where the pods of `gone` would go.

        Nodes that are not initialized take none of them, nor do those named in `closed`. `budget` is for
        making what must be bought cheaper.
        """
        names = {candidate.node.name for candidate in gone}
        staying = tuple(node for node in self._settled.nodes if node.name not in names)
        usable = self._usable - closed
        problem = replace(
            self._base,
            snapshot=replace(self._settled, nodes=staying),
            pods=tuple(sorted((pod for c in gone for pod in self._moving(c)), key=pod_key)),
            nodes=tuple(node for node in staying if node.name in usable),
        )
        plan = solve(problem, budget, monotonic=self._monotonic)
        return _outcome(plan)

    def _moving(self, gone: Candidate) -> tuple[Pod, ...]:
        return (*gone.reschedulable, *self._coming.get(gone.node.name, ()))


def _outcome(plan: Plan) -> Outcome:
    return Outcome(
        claims=plan.claims,
        placements=plan.placements,
        stranded=plan.unschedulable,
        price=plan.cost,
    )


def _coming(base: Problem) -> dict[str, tuple[Pod, ...]]:
    """Return which of the pods of `base` find room on which of its nodes."""
    if not base.pods:
        return {}
    pods = {pod_key(pod): pod for pod in base.pods}
    return {name: tuple(pods[key] for key in keys) for name, keys in solve(base).placements.items()}


def _settled(base: Problem, coming: Mapping[str, tuple[Pod, ...]]) -> Snapshot:
    """Return the snapshot of `base` once its pods have left their nodes and those that can have come."""
    if not base.pods:
        return base.snapshot
    leaving = {pod_key(pod) for pod in base.pods}

    def after(node: NodeView) -> NodeView:
        staying = tuple(pod for pod in node.pods if pod_key(pod) not in leaving)
        node = replace(node, pods=staying) if len(staying) < len(node.pods) else node
        return node.with_pods(coming.get(node.name, ()))

    return replace(base.snapshot, nodes=tuple(after(node) for node in base.snapshot.nodes))
