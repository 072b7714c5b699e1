"""What this project's consolidation makes of a cluster in a scenario file, timed."""

import io
import sys
from pathlib import Path
from time import process_time

import msgspec
from msgspec.structs import replace

from karpenter.base.clock import SystemClock
from karpenter.base.collector import uncollected
from karpenter.cli.plan import PlanOptions, Question, question_of
from karpenter.cli.planning.cluster import Ask
from karpenter.cli.planning.consolidating import searches_named
from karpenter.cli.planning.report import node_prices
from karpenter.disruption.aftermath import Aftermath
from karpenter.disruption.converging import Converger, Rules, Step
from karpenter.model.pods import is_reschedulable, pod_key
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling import least_cost
from karpenter.scheduling.catalogue import compiled
from karpenter.scheduling.check import violations

_BOUND_STEPS = 400


class Ours(msgspec.Struct, frozen=True):
    """A consolidation, and how good it could be."""

    nodes_before: int
    cost_before: float
    nodes_after: int
    cost_after: float
    """USD per hour."""
    converged: bool
    commands: int
    evicted: int
    """Pods that had to move, each time they did."""
    seconds: float
    """CPU time of all rounds, the catalogue being compiled already."""
    idle_seconds: float
    """CPU time of the last round, which found nothing."""
    steps: tuple[Step, ...]
    after: Snapshot

    def until(self, cost: float) -> tuple[int, float]:
        """Return the pods evicted and USD per hour saved until the cluster cost no more than `cost`."""
        evicted = 0
        for step in self.steps:
            evicted += step.command.moved
            if step.cost_after <= cost:
                return evicted, self.cost_before - step.cost_after
        return evicted, self.cost_before - self.cost_after


def asked(path: Path) -> Question:
    """Return what a scenario file asks."""
    options = PlanOptions(files=(str(path),), deterministic=True)
    return question_of(options, stdin=io.BytesIO(), err=sys.stderr, clock=SystemClock())


def bound(question: Question) -> float:
    """Return the USD per hour below which nothing holds the pods that run, all nodes bought anew."""
    problem = unbound(question.ask, question.problem.snapshot)
    return least_cost(problem, Budget(steps=_BOUND_STEPS))


def unbound(ask: Ask, snapshot: Snapshot) -> Problem:
    """Return the problem of all pods that could move, without any nodes."""
    pods = (pod for node in snapshot.nodes for pod in node.pods if is_reschedulable(pod))
    loose = tuple(sorted((replace(p, spec=replace(p.spec, node_name="")) for p in pods), key=pod_key))
    bare = ask(replace(snapshot, nodes=(), pending=loose))
    return replace(bare, pods=loose)


def consolidate(
    question: Question, *, free: bool, methods: tuple[str, ...] = (), seconds: float | None = None
) -> Ours:
    """Consolidate until nothing is found; `seconds` of CPU bound each round."""
    snapshot = question.problem.snapshot
    for offer in question.problem.pools:
        compiled(offer.instance_types)
    converger = Converger(
        Aftermath(snapshot=snapshot, prices=node_prices(snapshot, question.catalogues)),
        question.ask,
        question.catalogues,
        searches_named(methods),
        Rules(free_moves=free, remembered=False, budget=Budget(seconds=seconds)),
        monotonic=process_time,
    )
    before = converger.state
    with uncollected():
        steps = tuple(converger.steps())
    return Ours(
        nodes_before=len(snapshot.nodes),
        cost_before=before.cost,
        nodes_after=len(converger.state.snapshot.nodes),
        cost_after=converger.state.cost,
        converged=converger.converged,
        commands=len(steps),
        evicted=sum(step.command.moved for step in steps),
        seconds=converger.seconds,
        idle_seconds=converger.last_seconds,
        steps=steps,
        after=converger.state.snapshot,
    )


def broken_rules(ask: Ask, snapshot: Snapshot) -> list[str]:
    """Return what the independent checker has against where pods run, as if all were placed there at once."""
    moving = {n.name: [p for p in n.pods if is_reschedulable(p)] for n in snapshot.nodes}
    bare = replace(snapshot, nodes=tuple(_emptied(node) for node in snapshot.nodes), pending=())
    placements = {name: tuple(sorted(pod_key(pod) for pod in pods)) for name, pods in moving.items() if pods}
    asked_anew = replace(ask(bare), pods=unbound(ask, snapshot).pods)
    return violations(asked_anew, Plan(claims=(), placements=placements, unschedulable=(), cost=0.0))


def _emptied(node: NodeView) -> NodeView:
    staying = [pod for pod in node.pods if not is_reschedulable(pod)]
    return replace(node, pods=(), requested={}).with_pods(staying)
