"""The disruption loop: every ten seconds, look for nodes to take away; wait, look again, then do it.

Between decision and action lie fifteen seconds, so that a pod that was about to come has come; what no longer
holds then is dropped.
"""

from karpenter.apis import labels
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.disruption.budgets import Reason, budget_problems, pool_budget
from karpenter.disruption.candidates import Blocked, Candidate, find_candidates
from karpenter.disruption.command import Command
from karpenter.disruption.emptiness import empty_nodes, why_kept
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.runtime import Result, Singleton

_POLL_SECONDS = 10.0
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
        self._allowed = metrics.gauge(
            "karpenter_nodepools_allowed_disruptions", "What budgets allow.", ["nodepool", "reason"]
        )
        self._consuming = metrics.gauge(
            "karpenter_nodepools_nodes_consuming_budgets", "Nodes going or not ready.", ["nodepool", "reason"]
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
        candidates, blocked = await self._candidates(snapshot)
        self._tell_blocked(snapshot, blocked)
        eligible = [candidate for candidate in candidates if why_kept(candidate) is None]
        self._eligible.labels("empty").set(len(eligible))
        command, _ = empty_nodes(candidates, self._remaining(snapshot))
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
        candidates, _ = await self._candidates(snapshot)
        still = [candidate for candidate in candidates if candidate.node.provider_id in chosen]
        again, _ = empty_nodes(still, self._remaining(snapshot))
        lost = len(chosen) - (len(again.candidates) if again else 0)
        if lost:
            self._failed.labels("empty").inc(lost)
        return again

    async def _candidates(self, snapshot: Snapshot) -> tuple[list[Candidate], list[Blocked]]:
        prices: dict[str, float] = {}
        for pool in snapshot.nodepools:
            known = {
                (kind.name, offering.zone, offering.capacity_type): offering.price
                for kind in await self._context.provider.instance_types(pool)
                for offering in kind.offerings
            }
            for node in snapshot.nodes:
                if node.nodepool == pool.name:
                    prices[node.name] = known.get(_place(node), 0.0)
        return find_candidates(snapshot, queued=self._queue.underway, prices=prices)

    def _remaining(self, snapshot: Snapshot) -> dict[str, int]:
        """Return what each pool's budget still allows for `Empty`, and publish all of them."""
        remaining = {}
        for pool in snapshot.nodepools:
            for reason in _REASONS:
                budget = pool_budget(pool, snapshot.nodes, reason, snapshot.taken_at)
                self._allowed.labels(pool.name, reason).set(budget.allowed)
                self._consuming.labels(pool.name, reason).set(budget.disrupting)
                if reason == "Empty":
                    remaining[pool.name] = budget.remaining
            for problem in budget_problems(pool, snapshot.taken_at):
                self._context.recorder.publish(
                    pool,
                    "Warning",
                    "DisruptionBlocked",
                    f"No disruptions: {problem}",
                    dedupe=(pool.metadata.uid, problem),
                    dedupe_seconds=60.0,
                )
        return remaining

    def _tell_blocked(self, snapshot: Snapshot, blocked: list[Blocked]) -> None:
        nodes = {node.name: node for node in snapshot.nodes}
        for entry in blocked:
            view = nodes[entry.node]
            if entry.blocker in ("queued", "noNode", "notInitialized", "deleting"):
                continue
            for obj in (view.node, view.claim):
                if obj is not None:
                    self._context.recorder.publish(
                        obj, "Normal", "DisruptionBlocked", entry.message, dedupe=(obj.metadata.uid,)
                    )


def _place(node: NodeView) -> tuple[str, str, str]:
    own = node.labels
    return (
        own.get(labels.INSTANCE_TYPE, ""),
        own.get(labels.ZONE, ""),
        own.get(labels.CAPACITY_TYPE, ""),
    )
