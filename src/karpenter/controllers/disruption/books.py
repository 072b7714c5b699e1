"""Keeping the ledger of moves: what restarts cost, what nodes have to remember, what it all came to.

What pods take to get ready is learned from those that are there, and what was moved lately is written on the
NodeClaims that it was moved to (`karpenter.disruption.ledger`). A new process knows both. Only what nothing
but nodes remembered that have gone since, being empty perhaps, is known here alone.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from karpenter.apis.annotations import MOVED_FROM
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.underway import Underway
from karpenter.disruption import ledger, rollouts
from karpenter.disruption.command import Command
from karpenter.disruption.memory import Memory, gathered, merged, render
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.rounds import Objection
from karpenter.disruption.verdicts import Verdict
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.model.snapshot import Snapshot


class Books:
    """The ledger of one operator."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._remembered: Memory = {}
        prefix = "karpenter_voluntary_disruption_"
        self._pods = context.metrics.counter(
            f"{prefix}moved_pods_total", "Pods that had to start again elsewhere.", ["reason"]
        )
        self._paid = context.metrics.counter(
            f"{prefix}restart_cost_dollars_total", "What restarts are held to have cost, USD.", ["reason"]
        )
        self._saved = context.metrics.counter(
            f"{prefix}savings_dollars_per_hour_total",
            "What disruptions have taken off the bill, USD per hour, by what is known of prices.",
            ["reason"],
        )

    def restarts(self) -> Restarts:
        """Return what restarts cost now; nothing where users want upstream's rules."""
        settings = self._context.settings
        if settings.consolidation_search == "upstream":
            return Restarts(hours=0.0)
        return Restarts(
            hours=settings.restart_cost_seconds / 3600,
            payback_hours=settings.payback_seconds / 3600,
            ready_hours=self._context.cluster.ready_times.hours(),
        )

    def objection(self, snapshot: Snapshot) -> Objection:
        """Return what speaks against commands decided on `snapshot`: they do not pay, or a rollout is on."""
        restarts = self.restarts()
        return partial(_objection, snapshot, restarts) if restarts.counted else _none

    def remembered(self, snapshot: Snapshot) -> Memory:
        """Return what was moved within the payback time, by what nodes say and what they ever said."""
        if not self.restarts().counted:
            return {}
        since = snapshot.taken_at - self._context.settings.payback_seconds
        known = merged((self._remembered, gathered(snapshot.nodes)))
        recent = {w: {t: m for t, m in types.items() if m.at > since} for w, types in known.items()}
        self._remembered = {workload: types for workload, types in recent.items() if types}
        return self._remembered

    def annotations(self, command: Command) -> Sequence[Mapping[str, str]]:
        """Return what the replacements of a command have to remember, in its order."""
        found = self._memories(command).replacements
        return [{MOVED_FROM: render(memory)} if memory else {} for memory in found]

    async def note(self, c: Underway) -> None:
        """Let the nodes that take pods of a command remember that; of a resumed one they are not known.

        Raises:
            ApiError, TransportError: it has to be done again; that does no harm.
        """
        rows = {row.name: row for row in self._context.cluster.nodes()}
        for name, memory in self._memories(c.command).nodes.items():
            claim = rows[name].claim
            text = render(memory)
            if claim is None or claim.metadata.annotations.get(MOVED_FROM) == text:
                continue
            try:
                patch = merge({"metadata": {"annotations": {MOVED_FROM: text}}})
                await self._context.client.patch(NodeClaim, claim.name, patch)
            except NotFound:
                continue

    def count(self, c: Underway) -> None:
        """Count a command that is through; what was resumed is not known to have saved anything."""
        command = c.command
        self._pods.labels(c.reason).inc(command.moved)
        restarts = self.restarts()
        self._paid.labels(c.reason).inc(sum(map(restarts.of, command.candidates)))
        if len(command.replacements) == len(c.replacements):
            self._saved.labels(c.reason).inc(max(0.0, command.savings))

    def _memories(self, command: Command) -> ledger.Memories:
        snapshot = self._context.cluster.snapshot()
        nodes = {row.name: row for row in snapshot.nodes}
        found = ledger.Ledger(snapshot, self.restarts(), self.remembered(snapshot))
        return ledger.memories(command, found, nodes)


def _objection(snapshot: Snapshot, restarts: Restarts, command: Command) -> Verdict | None:
    found = ledger.objection(command, restarts, snapshot.taken_at)
    return found if found is not None else rollouts.objection(snapshot, command)


def _none(_: Command) -> None:
    return None
