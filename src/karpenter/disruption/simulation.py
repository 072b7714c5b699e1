"""What would happen if some nodes were gone: the pods on them are planned anew, by the very same solver.

Pods that wait anyway, and those of nodes that are going already, get their places first, once for all
simulations; whatever they need to be bought is the provisioner's business.

Simulations are many and clusters large, so what cannot matter to any of them is taken out of the picture
once: running pods that no rule is about count by what they request, not one by one.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from karpenter.apis.core import Pod
from karpenter.base.quantity import Resources
from karpenter.disruption.candidates import Candidate
from karpenter.model.pods import host_ports, is_reschedulable, pod_key, requests
from karpenter.model.problem import Budget, Plan, PlannedClaim, Problem
from karpenter.model.reasons import Unschedulable
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling import Standing, confirmed, rehearse, solve
from karpenter.scheduling.alike import alike
from karpenter.scheduling.topology import Topology


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


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was found quickly, with its question: nobody has checked it."""

    problem: Problem
    plan: Plan

    @property
    def outcome(self) -> Outcome:
        return _outcome(self.plan)


class Simulator:
    """Answers what-if questions about one snapshot. What an answer needs is worked out for the first of them:
    most looks at a cluster ask none."""

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
        self._unbound: dict[str, tuple[Pod, ...]] = {}

    @property
    def problem(self) -> Problem:
        """The provisioner's problem."""
        return self._base

    def movable(self) -> dict[str, tuple[Pod, ...]]:
        """Return the pods that would need another place, without their binding, by their node's name."""
        if not self._unbound:
            self._unbound = {
                node.name: tuple(_unbound(pod) for pod in node.pods if is_reschedulable(pod))
                for node in self._settled.nodes
            }
        return self._unbound

    def standing(self) -> Standing:
        """Return where pods run, for guessing what would be worth a simulation."""
        movable = {name: pods for name, pods in self.movable().items() if name in self._usable}
        everyone = sorted((pod for pods in movable.values() for pod in pods), key=pod_key)
        nodes = tuple(node for node in self._settled.nodes if node.name in self._usable)
        problem = replace(self._base, snapshot=self._bare, pods=tuple(everyone), nodes=nodes)
        return Standing(problem, movable)

    @cached_property
    def coming(self) -> Mapping[str, tuple[Pod, ...]]:
        """Pods in need of a place that find room on existing nodes, by node name."""
        return _coming(self._base)

    @cached_property
    def _settled(self) -> Snapshot:
        return _settled(self._base, self.coming)

    @cached_property
    def _bare(self) -> Snapshot:
        return _without_bystanders(self._base, self._settled, self.movable())

    def without(
        self,
        gone: Sequence[Candidate],
        *,
        closed: frozenset[str] = frozenset(),
        budget: Budget | None = None,
        node_fee: float | None = None,
    ) -> Outcome:
        """Return where the pods of `gone` would go.

        Nodes that are not initialized take none of them, nor do those named in `closed`. `budget` is for
        making what must be bought cheaper. With a `node_fee` every node bought counts so much more, in USD
        per hour, than it costs: a large one asks for as few nodes as can be.
        """
        problem = self._problem_without(gone, closed)
        if node_fee is not None:
            problem = replace(problem, options=replace(problem.options, node_fee=node_fee))
        return _outcome(solve(problem, budget, monotonic=self._monotonic))

    def rehearsed(
        self,
        gone: Sequence[Candidate],
        *,
        closed: frozenset[str] = frozenset(),
        budget: Budget,
        first: Sequence[str] = (),
    ) -> Rehearsal:
        """Return what `without` would, sooner, and unchecked: for choosing what to do in earnest.

        Nodes named in `first` take pods before the others, in this order.
        """
        problem = replace(self._problem_without(gone, closed), first=tuple(first))
        return Rehearsal(problem=problem, plan=rehearse(problem, budget, monotonic=self._monotonic))

    def confirmed(self, rehearsal: Rehearsal, budget: Budget) -> Outcome:
        """Return the outcome of a rehearsal if it can be relied on, else what `without` says."""
        asked = rehearsal.problem
        return _outcome(confirmed(asked, rehearsal.plan, budget, monotonic=self._monotonic))

    def _problem_without(self, gone: Sequence[Candidate], closed: frozenset[str]) -> Problem:
        names = {candidate.node.name for candidate in gone}
        staying = tuple(node for node in self._bare.nodes if node.name not in names)
        usable = self._usable - closed
        moving = tuple(sorted((pod for c in gone for pod in self._moving(c)), key=pod_key))
        least = _least_request(moving)
        return replace(
            self._base,
            snapshot=replace(self._bare, nodes=staying),
            pods=moving,
            nodes=tuple(node for node in staying if node.name in usable and _has_room(node, least)),
        )

    def _moving(self, gone: Candidate) -> tuple[Pod, ...]:
        return (*map(_unbound, gone.reschedulable), *self.coming.get(gone.node.name, ()))


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


def _without_bystanders(base: Problem, settled: Snapshot, movable: Mapping[str, Sequence[Pod]]) -> Snapshot:
    """Return `settled` without the pods that can neither hinder nor attract others, except by their requests.

    What stays: whoever has host ports, volumes or anti-affinity, and whoever a rule of a movable pod selects.
    """
    everyone = tuple(pod for _, pods in sorted(movable.items()) for pod in pods)
    topology = Topology(replace(base, snapshot=settled, pods=everyone))

    def matters(pod: Pod) -> bool:
        affinity = pod.spec.affinity
        return bool(
            (affinity is not None and affinity.pod_anti_affinity is not None)
            or pod.spec.volumes
            or host_ports(pod)
            or topology.counts(pod)
        )

    nodes = []
    for node in settled.nodes:
        kept = tuple(pod for pod in node.pods if matters(pod))
        nodes.append(node if len(kept) == len(node.pods) else replace(node, pods=kept))
    return replace(settled, nodes=tuple(nodes))


def _least_request(pods: Sequence[Pod]) -> Resources:
    """Return what every one of `pods` asks for at least."""
    asked = [requests(group.pods[0]) for group in alike(pods)]
    names = set(asked[0]).intersection(*asked[1:]) if asked else set()
    return {name: min(amounts[name] for amounts in asked) for name in sorted(names)}


def _has_room(node: NodeView, least: Resources) -> bool:
    """Tell whether a node has free what every pod asks for at least; without, it need not be looked at."""
    return all(
        node.allocatable.get(name, 0) - node.requested.get(name, 0) >= amount
        for name, amount in least.items()
    )


def _unbound(pod: Pod) -> Pod:
    """Return `pod` as it was before it was bound: pods of one workload are then alike again."""
    if not pod.spec.node_name:
        return pod
    return replace(pod, spec=replace(pod.spec, node_name=""))
