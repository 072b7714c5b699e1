"""One look at the cluster for disruption: who may go, what budgets leave, and the question for simulations.

Nodes of commands that wait, or that are being carried out, count as going: their pods need a place in every
simulation, and they use up budgets. So what is decided later is consistent with what was decided before.
A look is kept while nothing has changed: a pass over a quiet cluster costs next to nothing.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.karpenter import NodePool
from karpenter.cloudprovider import UnevaluatedNodePool
from karpenter.controllers.context import Context
from karpenter.controllers.provisioning.demand import demand_of, problem_of
from karpenter.controllers.provisioning.validation import pod_error
from karpenter.disruption.budgets import PoolBudget, Reason, pool_budget
from karpenter.disruption.candidates import Candidate, find_candidates
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView, Snapshot

log = structlog.get_logger()

REASONS: tuple[Reason, ...] = ("Empty", "Underutilized", "Drifted")

Budgets = Mapping[Reason, Mapping[str, PoolBudget]]
"""What budgets come to, by reason and pool."""


class View(NamedTuple):
    """The cluster as disruption sees it at one moment."""

    snapshot: Snapshot
    """Nodes being disrupted are marked for deletion."""
    candidates: tuple[Candidate, ...]
    eventual: tuple[Candidate, ...]
    blocked: tuple[Verdict, ...]
    budgets: Budgets
    unconsolidated_at: float
    changed_at: float
    """When something last changed that consolidation should know of."""
    valid_until: float
    """Epoch seconds; then something is different even if nobody does anything."""

    @property
    def remaining(self) -> dict[Reason, dict[str, int]]:
        """How many more nodes may be disrupted, by reason and pool."""
        return {
            reason: {pool: budget.remaining for pool, budget in pools.items()}
            for reason, pools in self.budgets.items()
        }

    @property
    def who(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of those that may go, gracefully or in the end."""
        return tuple(c.node.name for c in self.candidates), tuple(c.node.name for c in self.eventual)


class _Shown(NamedTuple):
    """What a view was made from."""

    objects: tuple[object, ...]
    """Immutable; another one of the same content counts as a change."""
    values: tuple[object, ...]

    def is_same(self, other: "_Shown") -> bool:
        """Tell whether nothing has changed."""
        return (
            self.values == other.values
            and len(self.objects) == len(other.objects)
            and all(a is b for a, b in zip(self.objects, other.objects, strict=True))
        )


class Survey:
    """Takes looks."""

    def __init__(self, context: Context, underway: Callable[[], frozenset[str]]) -> None:
        """Prepare; `underway` tells the provider ids of nodes that are being disrupted, or wait for it."""
        self._context = context
        self._underway = underway
        self._catalogues: dict[str, tuple[InstanceType, ...]] = {}
        self._last: tuple[_Shown, View] | None = None

    @property
    def catalogues(self) -> Mapping[str, tuple[InstanceType, ...]]:
        """What each pool could buy when it was last asked, by its name."""
        return self._catalogues

    async def look(self, *, underway: frozenset[str] | None = None) -> View:
        """Ask the cloud what pools can buy, and look at the cluster.

        With `underway`, only these nodes (provider ids) are seen as being disrupted.
        """
        await self._refresh_catalogues()
        if underway is None:
            return self.glance()
        return self._view(considered(self._context.cluster.snapshot(), underway), underway)

    def glance(self) -> View:
        """Look at the cluster, with what pools could buy when they were last asked."""
        cluster = self._context.cluster
        snapshot, underway = cluster.snapshot(), self._underway()
        shown = _Shown(
            (snapshot.nodes, snapshot.nodepools, *snapshot.pdbs, *self._catalogues.values()),
            (len(snapshot.pdbs), underway, cluster.unconsolidated_at),
        )
        seen = considered(snapshot, underway)
        if self._last is not None:
            before, view = self._last
            if view.valid_until > snapshot.taken_at and shown.is_same(before):
                return view._replace(snapshot=seen)
        view = self._view(seen, underway)
        self._last = shown, view
        return view

    def problem(self, view: View) -> Problem:
        """Return the provisioner's own problem for `view`: what simulations start from."""
        snapshot = view.snapshot
        rules = self._context.provider.volume_rules
        virtual = [pod for pod in snapshot.headroom if not pod_error(pod, snapshot, rules)]
        pods = (*demand_of(self._context, snapshot).pods, *virtual)
        return problem_of(self._context, snapshot, sorted(pods, key=pod_key), self._catalogues, {})

    def _view(self, snapshot: Snapshot, underway: frozenset[str]) -> View:
        found = find_candidates(
            snapshot,
            queued=underway,
            catalogues=self._catalogues,
            reservation_label=self._context.provider.reservation_label,
        )
        return View(
            snapshot=snapshot,
            candidates=found.candidates,
            eventual=found.eventual,
            blocked=found.blocked,
            budgets=budgets_of(snapshot),
            unconsolidated_at=self._context.cluster.unconsolidated_at,
            changed_at=self._context.cluster.changed_at,
            valid_until=_valid_until(snapshot),
        )

    async def _refresh_catalogues(self) -> None:
        fresh: dict[str, tuple[InstanceType, ...]] = {}
        for pool in self._context.cluster.managed_pools():
            types = await self._catalogue(pool)
            if types:
                fresh[pool.name] = types
                self._context.cluster.note_catalogue(pool.name, types)
        self._catalogues = fresh

    async def _catalogue(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return await self._context.provider.instance_types(pool)
        except UnevaluatedNodePool:
            return ()
        except Exception as error:  # a cloud may fail in any way; other pools must not suffer
            log.error("failed listing instance types", NodePool=pool.name, error=str(error))
            return ()


def considered(snapshot: Snapshot, underway: frozenset[str]) -> Snapshot:
    """Return `snapshot` with the nodes of these provider ids marked for deletion."""
    if not underway:
        return snapshot
    nodes = tuple(
        replace(node, marked_for_deletion=True)
        if node.provider_id in underway and not node.marked_for_deletion
        else node
        for node in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes)


def budgets_of(snapshot: Snapshot) -> Budgets:
    """Return what the budgets of all pools come to."""
    nodes: dict[str, list[NodeView]] = {pool.name: [] for pool in snapshot.nodepools}
    for node in snapshot.nodes:
        if node.nodepool in nodes:
            nodes[node.nodepool].append(node)
    return {
        reason: {
            pool.name: pool_budget(pool, nodes[pool.name], reason, snapshot.taken_at)
            for pool in snapshot.nodepools
        }
        for reason in REASONS
    }


def _valid_until(snapshot: Snapshot) -> float:
    """Return when time alone may have changed who may go: nominations, budgets' hours, protected pods."""
    now = snapshot.taken_at
    if any(budget.schedule for pool in snapshot.nodepools for budget in pool.spec.disruption.budgets):
        return now
    ends = [node.nominated_until for node in snapshot.nodes if node.nominated_until > now]
    for node in snapshot.nodes:
        for owner in (node.node, node.claim, *node.pods):
            value = owner.metadata.annotations.get(labels.DO_NOT_DISRUPT) if owner is not None else None
            if value is not None and value not in ("true", "false"):
                return now
    return min(ends, default=float("inf"))
