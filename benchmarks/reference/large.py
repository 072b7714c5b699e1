"""A large cluster to consolidate: 2,000 nodes that have lost half of their pods, 40,000 being left."""

from time import process_time

from benchmarks.reference.consolidated import unbound
from benchmarks.workloads import deployments, machines, problem
from msgspec.structs import replace

from karpenter.apis.karpenter import Budget as DisruptionBudget
from karpenter.base.collector import uncollected
from karpenter.base.randomness import seeded
from karpenter.cli.planning.consolidating import searches_named
from karpenter.disruption.aftermath import Aftermath, after_plan
from karpenter.disruption.converging import Converger, Rules, types_of
from karpenter.model.problem import Budget, Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling import least_cost, solve

_PODS = 80_000
_DEPLOYMENTS = 200
_LEAST_CORES, _MOST_CORES = 32, 48
_SEED = 1
_BOUND_STEPS = 200
_IDLE_SECONDS = 2.0
_SECONDS = 60.0


def large(methods: tuple[str, ...] = (), pods: int = _PODS) -> int:
    """Make the cluster, consolidate it, print how that goes; return the exit code."""
    types = [kind for kind in machines(cores=_MOST_CORES) if kind.capacity["cpu"] >= _LEAST_CORES * 1000]
    whole = problem(deployments(_DEPLOYMENTS, pods), types)
    (offer,) = whole.pools
    disruption = replace(offer.pool.spec.disruption, budgets=[DisruptionBudget(nodes="100%")])
    pool = replace(offer.pool, spec=replace(offer.pool.spec, disruption=disruption))
    whole = replace(whole, pools=(replace(offer, pool=pool),))

    def ask(snapshot: Snapshot) -> Problem:
        return replace(whole, snapshot=snapshot, pods=snapshot.pending, nodes=snapshot.nodes)

    empty = replace(whole.snapshot, nodepools=(pool,))
    plan = solve(whole)
    state = after_plan(Aftermath(snapshot=empty, prices={}), plan, whole.pods, types_of(whole))
    state = replace(state, snapshot=replace(state.snapshot, pending=(), nodes=_halved(state.snapshot.nodes)))
    left = sum(len(node.pods) for node in state.snapshot.nodes)
    least = least_cost(unbound(ask, state.snapshot), Budget(steps=_BOUND_STEPS))
    print(
        f"{len(state.snapshot.nodes)} nodes, {left} pods, ${state.cost:.2f}/h; bound ${least:.2f}/h",
        flush=True,
    )
    found = Converger(
        state,
        ask,
        {pool.name: offer.instance_types},
        searches_named(methods),
        Rules(remembered=False),
        monotonic=process_time,
    )
    evicted = 0
    with uncollected():
        for step in found.steps():
            evicted += step.command.moved
            print(
                f"  {step.seconds:6.2f} s  {step.command.method:9} -{len(step.command.candidates)} "
                f"+{len(step.launched)} nodes, {step.command.moved} pods: ${step.cost_after:.2f}/h",
                flush=True,
            )
    slow = "" if found.seconds <= _SECONDS else "!"
    slow_idle = "" if found.last_seconds <= _IDLE_SECONDS else "!"
    print(
        f"{len(found.state.snapshot.nodes)} nodes, ${found.state.cost:.2f}/h, "
        f"{100 * (found.state.cost / least - 1):.1f} % above the bound; {found.commands} commands, "
        f"{evicted} pods evicted; {found.seconds:.1f} s of CPU (wanted: {_SECONDS:.0f}){slow}, "
        f"last pass {found.last_seconds:.2f} s (wanted: {_IDLE_SECONDS:.0f}){slow_idle}"
    )
    return 1 if slow or slow_idle else 0


def _halved(nodes: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
    """Return the nodes without half of their pods."""
    chance = seeded(_SEED)
    return tuple(
        replace(node, pods=(), requested={}).with_pods(p for p in node.pods if chance.random() < 0.5)
        for node in nodes
    )
