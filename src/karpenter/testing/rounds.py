"""Rounds of disruption for tests: machines of a catalogue, and one look at a cluster of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import Budget, Disruption, NodePool
from karpenter.apis.meta import Condition
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.base.timestamps import format_time, parse_time
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import find_candidates
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Policy, Round
from karpenter.disruption.simulation import Simulator
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, a_view, an_offer

NOW = parse_time("2026-01-01T12:00:00Z")
"""When rounds are looked at; built objects date from twelve hours before."""

_REASONS: tuple[Reason, ...] = ("Empty", "Underutilized", "Drifted")


def a_disrupting_pool(
    name: str = "default",
    *,
    policy: str = "WhenEmptyOrUnderutilized",
    after: str = "0s",
    budgets: Iterable[Budget] = (),
    pool: NodePool | None = None,
) -> NodePool:
    """Return a NodePool with these settings of disruption and, unless given, no budget."""
    pool = pool or a_nodepool(name)
    disruption = Disruption(consolidation_policy=policy, consolidate_after=after, budgets=list(budgets))
    return replace(pool, spec=replace(pool.spec, disruption=disruption))


def a_machine(
    name: str,
    kind: InstanceType,
    *cpu: str | Pod,
    pool: str = "default",
    zone: str = "zone-a",
    capacity_type: str = labels.CAPACITY_ON_DEMAND,
    drifted: float | None = None,
    consolidatable: bool = True,
    touched: float | None = None,
    grace: str | None = None,
    more_labels: Mapping[str, str] | None = None,
) -> NodeView:
    """Return a node bought as `kind`, with a pod for each of `cpu`.

    Args:
        drifted: since when it has been; None: it has not.
        consolidatable: whether it has been left alone for long enough.
        touched: when pods last came or went.
        grace: its terminationGracePeriod.
    """
    pods = [
        a_pod(f"{name}-{i}", cpu=each, memory="64Mi", node_name=name) if isinstance(each, str) else each
        for i, each in enumerate(cpu)
    ]
    own = {
        labels.INSTANCE_TYPE: kind.name,
        labels.ZONE: zone,
        labels.CAPACITY_TYPE: capacity_type,
        labels.ARCH: "amd64",
        labels.OS: "linux",
        **(more_labels or {}),
    }
    size = {"cpu": f"{kind.allocatable['cpu']}m", "memory": str(kind.allocatable["memory"]), "pods": "110"}
    view = a_view(name, labels=own, pods=pods, nodepool=pool, allocatable=size)
    assert view.claim is not None
    conditions = [Condition(type="Initialized", status="True", last_transition_time="2026-01-01T00:00:00Z")]
    if consolidatable:
        conditions.append(Condition(type="Consolidatable", status="True", reason="Consolidatable"))
    if drifted is not None:
        since = format_time(drifted)
        conditions.append(
            Condition(type="Drifted", status="True", reason="NodePoolDrifted", last_transition_time=since)
        )
    status = replace(
        view.claim.status,
        conditions=conditions,
        last_pod_event_time=format_time(touched) if touched is not None else None,
    )
    spec = replace(view.claim.spec, termination_grace_period=grace)
    meta = replace(view.claim.metadata, labels={**view.claim.metadata.labels, **own})
    return replace(view, claim=replace(view.claim, status=status, spec=spec, metadata=meta))


def a_round(
    *views: NodeView,
    types: Sequence[InstanceType] | Mapping[str, Sequence[InstanceType]],
    pools: Iterable[NodePool] | None = None,
    pending: Iterable[Pod] = (),
    pdbs: Iterable[PodDisruptionBudget] = (),
    remaining: Mapping[str, int] | int = 100,
    policy: Policy | None = None,
    objection: Callable[[Command], Verdict | None] | None = None,
    steps: int | None = None,
    queued: Iterable[str] = (),
    reservation_label: str = "",
) -> Round:
    """Return a look at a cluster of `views`.

    Args:
        types: what can be bought, for all pools or by pool.
        remaining: what budgets allow, for all pools or by pool, whatever the reason.
        steps: how often `more` says yes; None: always.
    """
    given = list(pools) if pools is not None else [a_disrupting_pool()]
    catalogues = {
        pool.name: tuple(sorted(types[pool.name] if isinstance(types, Mapping) else types, key=_name))
        for pool in given
    }
    waiting = [*pending, *(pod for view in views if view.marked_for_deletion for pod in view.pods)]
    problem = a_problem(
        waiting, pools=[an_offer(p, catalogues[p.name]) for p in given if not p.static], nodes=views
    )
    snapshot = replace(
        problem.snapshot,
        taken_at=NOW,
        pending=tuple(pending),
        nodepools=tuple(given),
        pdbs=tuple(pdbs),
    )
    options = replace(
        problem.options,
        reservation_label=reservation_label,
        well_known_labels=problem.options.well_known_labels | ({reservation_label} - {""}),
    )
    problem = replace(problem, snapshot=snapshot, options=options)
    found = find_candidates(
        snapshot, queued=frozenset(queued), catalogues=catalogues, reservation_label=reservation_label
    )
    left = dict(remaining) if isinstance(remaining, Mapping) else {pool.name: remaining for pool in given}
    clock = iter(range(steps)) if steps is not None else None
    return Round(
        snapshot=snapshot,
        candidates=found.candidates,
        eventual=found.eventual,
        remaining=dict.fromkeys(_REASONS, left),
        simulator=Simulator(problem),
        catalogues=catalogues,
        policy=policy or Policy(),
        objection=objection or (lambda _: None),
        more=lambda: clock is None or next(clock, None) is not None,
    )


def _name(kind: InstanceType) -> str:
    return kind.name
