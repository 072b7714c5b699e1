"""The disruption loop: every ten seconds, look for nodes to take away; wait, look again, then do it.

Between decision and action lie fifteen seconds, so that a pod that was about to come has come; what no longer
holds then is dropped.
"""

import structlog

from karpenter.apis.karpenter import NodePool
from karpenter.cloudprovider import CloudProviderError, UnevaluatedNodePool
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.controllers.metrics.series import Series
from karpenter.disruption.annotations import notes
from karpenter.disruption.budgets import PoolBudget, Reason, budget_problems, pool_budget
from karpenter.disruption.candidates import Candidate, Found, find_candidates
from karpenter.disruption.command import Command
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.simulation import Simulator
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Problem, SolveOptions
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.runtime import Result, Singleton

log = structlog.get_logger()

_POLL_SECONDS = 10.0
_UNCONSOLIDATABLE_SECONDS = 900.0
_ANNOTATION_SECONDS = 3600.0  # what is said stays true; more often would only be noise
_UNSYNCED_SECONDS = 1.0
VALIDATION_SECONDS = 15.0

_REASONS: tuple[Reason, ...] = ("Empty", "Underutilized", "Drifted")
_IDLE = Result(requeue_after=_POLL_SECONDS)


class DisruptionLoop:
    """One pass after another."""

    def __init__(self, context: Context, queue: CommandQueue) -> None:
        self._context = context
        self._queue = queue
        metrics = context.metrics
        self._eligible = metrics.gauge(
            "karpenter_voluntary_disruption_eligible_nodes", "Nodes that could be disrupted.", ["reason"]
        )
        self._seconds = metrics.histogram(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
            "Time to decide, waiting included.",
            ["reason", "consolidation_type"],
        )
        self._failed = metrics.counter(
            "karpenter_voluntary_disruption_failed_validations_total",
            "Nodes dropped on second look.",
            ["consolidation_type"],
        )
        names = ["nodepool", "reason"]
        self._allowed = Series(
            metrics, "karpenter_nodepools_allowed_disruptions", "What budgets allow.", names
        )
        self._consuming = Series(
            metrics, "karpenter_nodepools_nodes_consuming_budgets", "Nodes going or not ready.", names
        )
        self.controller = Singleton(
            "disruption", self._pass, clock=context.clock, rng=context.rng, metrics=metrics
        )

    async def _pass(self) -> Result:
        if not self._context.cluster.synced():
            return Result(requeue_after=_UNSYNCED_SECONDS)
        snapshot = self._context.cluster.snapshot()
        await self._queue.clean_up(snapshot.nodes)
        started = self._context.clock.monotonic()
        catalogues = await self._catalogues(snapshot)
        found = self._found(snapshot, catalogues)
        self._tell_blocked(snapshot, found.blocked)
        self._tell_pods(snapshot)
        budgets = self._budgets(snapshot)
        decision = self._decided(snapshot, found.candidates, budgets)
        self._eligible.labels("empty").set(decision.eligible)
        self._tell_kept(snapshot, decision.verdicts, budgets)
        command = next(iter(decision.commands), None)
        if command is not None:
            command = await self._validated(command)
        self._seconds.labels("empty", "empty").observe(self._context.clock.monotonic() - started)
        if command is None:
            return _IDLE
        await self._queue.start(command, "empty")
        return Result(requeue_after=0.0)

    async def _validated(self, command: Command) -> Command | None:
        """Wait, look again, and return what still holds of `command`."""
        await self._context.clock.sleep(VALIDATION_SECONDS)
        snapshot = self._context.cluster.snapshot()
        chosen = {candidate.node.provider_id for candidate in command.candidates}
        found = self._found(snapshot, await self._catalogues(snapshot))
        still = tuple(c for c in found.candidates if c.node.provider_id in chosen)
        decision = self._decided(snapshot, still, self._budgets(snapshot))
        again = next(iter(decision.commands), None)
        lost = len(chosen) - (len(again.candidates) if again else 0)
        if lost:
            self._failed.labels("empty").inc(lost)
        return again

    async def _catalogues(self, snapshot: Snapshot) -> dict[str, tuple[InstanceType, ...]]:
        return {pool.name: await self._catalogue(pool) for pool in snapshot.nodepools}

    def _found(self, snapshot: Snapshot, catalogues: dict[str, tuple[InstanceType, ...]]) -> Found:
        return find_candidates(
            snapshot,
            queued=self._queue.underway,
            catalogues=catalogues,
            reservation_label=self._context.provider.reservation_label,
        )

    def _decided(
        self, snapshot: Snapshot, candidates: tuple[Candidate, ...], budgets: dict[str, PoolBudget]
    ) -> Decision:
        nobody = Problem(
            snapshot=snapshot,
            pods=(),
            nodes=(),
            pools=(),
            options=SolveOptions(well_known_labels=frozenset()),
        )
        return Emptiness()(
            Round(
                snapshot=snapshot,
                candidates=candidates,
                eventual=candidates,
                remaining={"Empty": _remaining(budgets)},
                simulator=Simulator(nobody),
            )
        )

    async def _catalogue(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """Return what the cloud lists for a pool; nothing, and its nodes are left alone, when it cannot."""
        try:
            return await self._context.provider.instance_types(pool)
        except UnevaluatedNodePool:
            return ()
        except CloudProviderError as error:
            log.error("failed listing instance types", NodePool=pool.name, error=str(error))
            return ()

    def _budgets(self, snapshot: Snapshot) -> dict[str, PoolBudget]:
        """Return what each pool's budgets come to for `Empty`, and export all of them."""
        found: dict[str, PoolBudget] = {}
        allowed: dict[tuple[str, ...], float] = {}
        consuming: dict[tuple[str, ...], float] = {}
        for pool in snapshot.nodepools:
            for reason in _REASONS:
                budget = pool_budget(pool, snapshot.nodes, reason, snapshot.taken_at)
                allowed[(pool.name, reason)] = budget.allowed
                consuming[(pool.name, reason)] = budget.disrupting
                if reason == "Empty":
                    found[pool.name] = budget
            for problem in budget_problems(pool, snapshot.taken_at):
                self._context.recorder.publish(
                    pool,
                    "Warning",
                    "DisruptionBlocked",
                    f"No disruptions: {problem}",
                    dedupe=(pool.metadata.uid, problem),
                    dedupe_seconds=60.0,
                )
        self._allowed.replace(allowed)
        self._consuming.replace(consuming)
        return found

    def _tell_blocked(self, snapshot: Snapshot, blocked: tuple[Verdict, ...]) -> None:
        nodes = {node.name: node for node in snapshot.nodes}
        for entry in blocked:
            if entry.code != "queued":
                self._tell_node(nodes[entry.node], "DisruptionBlocked", entry.message, 120.0)

    def _tell_kept(
        self, snapshot: Snapshot, kept: tuple[Verdict, ...], budgets: dict[str, PoolBudget]
    ) -> None:
        """Say which pools' budgets or policies keep nodes that would otherwise go."""
        nodes = {node.name: node for node in snapshot.nodes}
        pools = {pool.name: pool for pool in snapshot.nodepools}
        for entry in kept:
            node = nodes[entry.node]
            if entry.code in ("never", "headroom"):
                self._tell_node(node, "Unconsolidatable", entry.message, _UNCONSOLIDATABLE_SECONDS)
            elif entry.code == "budget" and budgets[node.nodepool].allowed == 0:
                pool = pools[node.nodepool]
                self._context.recorder.publish(
                    pool,
                    "Normal",
                    "DisruptionBlocked",
                    "No allowed disruptions for disruption reason Empty due to blocking budget",
                    dedupe=(pool.metadata.uid, "Empty"),
                    dedupe_seconds=60.0,
                )

    def _tell_pods(self, snapshot: Snapshot) -> None:
        for node in snapshot.nodes:
            for note in notes(node.pods, snapshot.taken_at) if node.managed else ():
                self._context.recorder.publish(
                    note.pod,
                    note.type,
                    note.reason,
                    note.message,
                    dedupe=(note.pod.metadata.uid, note.message),
                    dedupe_seconds=_ANNOTATION_SECONDS,
                )

    def _tell_node(self, view: NodeView, reason: str, message: str, seconds: float) -> None:
        for obj in (view.node, view.claim):
            if obj is not None:
                self._context.recorder.publish(
                    obj, "Normal", reason, message, dedupe=(obj.metadata.uid, message), dedupe_seconds=seconds
                )


def _remaining(budgets: dict[str, PoolBudget]) -> dict[str, int]:
    return {pool: budget.remaining for pool, budget in budgets.items()}
