"""Carrying a disruption out: taint the nodes, say why on their claims, delete the claims.

From the claim's deletion on, termination does the rest; a process that dies in between leaves a taint behind,
which the loop removes when it finds no command for it.
"""

import asyncio
from collections.abc import Iterable

import structlog

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.conditions import document, with_condition, without_condition
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.ending import count_disrupted
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.patch import merge
from karpenter.model.snapshot import NodeView

log = structlog.get_logger()

_DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")


class CommandQueue:
    """Starts commands and cleans up after ones that did not finish."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._underway: set[str] = set()
        metrics = context.metrics
        self._decisions = metrics.counter(
            "karpenter_voluntary_disruption_decisions_total",
            "Disruptions started.",
            ["decision", "reason", "consolidation_type"],
        )
        self._by_pool = metrics.counter(
            "karpenter_voluntary_disruption_decisions_by_nodepool_total",
            "Disruptions started, by NodePool.",
            ["nodepool", "decision", "reason", "consolidation_type"],
        )

    @property
    def underway(self) -> frozenset[str]:
        """Provider ids of the nodes being disrupted."""
        return frozenset(self._underway)

    async def start(self, command: Command, consolidation_type: str) -> None:
        """Carry `command` out; nodes whose claim somebody changed meanwhile are left for the next pass."""
        log.info(
            "disrupting node(s)",
            command=str(command),
            reason=command.reason.lower(),
            decision=command.decision,
            nodes=[candidate.node.name for candidate in command.candidates],
            replacements=len(command.replacements),
            savings=round(command.savings, 4),
        )
        ids = [candidate.node.provider_id for candidate in command.candidates]
        self._underway.update(ids)
        self._context.cluster.mark_for_deletion(ids)
        try:
            outcomes = await asyncio.gather(
                *(self._disrupt(candidate, command) for candidate in command.candidates),
                return_exceptions=True,
            )
        finally:
            self._underway.difference_update(ids)
        failed = [i for i, gone in zip(ids, outcomes, strict=True) if gone is not True]
        self._context.cluster.unmark_for_deletion(failed)  # or the clean-up would pass them by for ever
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        reason = command.reason.lower()
        self._decisions.labels(command.decision, reason, consolidation_type).inc()
        for pool in sorted({candidate.pool.name for candidate in command.candidates}):
            self._by_pool.labels(pool, command.decision, reason, consolidation_type).inc()

    async def _disrupt(self, candidate: Candidate, command: Command) -> bool:
        """Taint, explain and delete one node's claim; tell whether its end has begun."""
        node, claim = candidate.node.node, candidate.node.claim
        assert node is not None
        assert claim is not None
        try:
            await self._taint(node)
            await self._explain(claim, command.reason)
            await self._context.client.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
        except Conflict:
            return False
        except NotFound:
            return True
        self._tell(candidate, command)
        return True

    async def _taint(self, node: Node) -> None:
        if any(taint.matches(_DISRUPTED) for taint in node.spec.taints):
            return
        patch = merge(
            {"spec": {"taints": [*node.spec.taints, _DISRUPTED]}},
            resource_version=node.metadata.resource_version,
        )
        await self._context.client.patch(Node, node.name, patch)

    async def _explain(self, claim: NodeClaim, reason: str) -> None:
        now = self._context.clock.now()
        changed = with_condition(claim, "DisruptionReason", "True", reason, reason, now=now)
        await self._write(claim, changed)

    async def _write(self, claim: NodeClaim, changed: NodeClaim) -> None:
        patch = merge(
            {"status": {"conditions": document(changed.status.conditions)}},
            resource_version=claim.metadata.resource_version,
        )
        await self._context.client.patch(NodeClaim, claim.name, patch, subresource="status")

    def _tell(self, candidate: Candidate, command: Command) -> None:
        node, claim, reason = candidate.node.node, candidate.node.claim, command.reason
        assert node is not None
        assert claim is not None
        publish = self._context.recorder.publish
        publish(node, "Normal", "DisruptionTerminating", f"Disrupting Node: {reason}")
        publish(claim, "Normal", "DisruptionTerminating", f"Disrupting NodeClaim: {reason}")
        policy = candidate.pool.spec.disruption.consolidation_policy
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in policy).lstrip("_")
        count_disrupted(
            self._context,
            claim,
            reason.lower(),
            consolidation_policy=snake,
            pods=len(candidate.reschedulable),
        )

    async def clean_up(self, nodes: Iterable[NodeView]) -> None:
        """Take our taint and reason off nodes that are not being disrupted: somebody died on the way.

        Raises:
            Conflict: when somebody else wrote at the same time; come again.
        """
        for view in nodes:
            if view.marked_for_deletion or view.provider_id in self._underway:
                continue
            if view.node is None or view.claim is None or view.node.deleting:
                continue
            try:
                await self._untaint(view.node)
                if conditions.get(view.claim.status.conditions, "DisruptionReason") is not None:
                    await self._write(view.claim, without_condition(view.claim, "DisruptionReason"))
            except NotFound:
                continue  # gone by itself

    async def _untaint(self, node: Node) -> None:
        kept = [taint for taint in node.spec.taints if not taint.matches(_DISRUPTED)]
        if len(kept) == len(node.spec.taints):
            return
        patch = merge({"spec": {"taints": kept}}, resource_version=node.metadata.resource_version)
        await self._context.client.patch(Node, node.name, patch)
