"""Undoing a command: nodes stay after all, and replacements that nobody needs by now go again."""

from collections.abc import Iterable

import structlog

from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.marks import Marks
from karpenter.controllers.disruption.notes import REPLACES, noted
from karpenter.controllers.disruption.underway import Underway
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.disruption.candidates import Candidate
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.model.pods import is_reschedulable

log = structlog.get_logger()

DELETED = "deleting a replacement that is not needed"
KEPT = "keeping a replacement that pods need meanwhile"
REASON = "rolled_back"
"""The metrics' word for why such a replacement goes."""


class Undoing:
    """Takes back what commands have done. Everything may be done again after a failure."""

    def __init__(self, context: Context, marks: Marks) -> None:
        self._context = context
        self._marks = marks

    async def undo(self, c: Underway) -> None:
        """Take back the marks of the nodes that are left, then the replacements.

        Raises:
            ApiError, TransportError: when that was not possible; do it again.
        """
        for candidate in c.left:
            await self.unmark(candidate)
        self._context.cluster.unmark_for_deletion(c.provider_ids)
        own = noted(self._all_claims()).get(c.id)
        await self.judge(own[1] if own is not None else [])

    async def unmark(self, candidate: Candidate) -> None:
        """Take back the marks of one node."""
        node, claim = candidate.node.node, candidate.node.claim
        if node is not None and claim is not None:
            await self._marks.take_back(node.name, claim)

    async def judge(self, replacements: Iterable[NodeClaim]) -> None:
        """Delete those of `replacements` that are on nobody's mind; the others become nodes as any."""
        for claim in replacements:
            if self._context.cluster.is_ending(claim):
                continue
            if self._needed(claim):
                log.info(KEPT, NodeClaim=claim.name)
                await self._forget(claim)
            elif await delete_claim(self._context, claim, REASON, pods=0):
                log.info(DELETED, NodeClaim=claim.name)

    def _needed(self, claim: NodeClaim) -> bool:
        """Tell whether pods run on the claim's node, or are expected there."""
        now = self._context.clock.now()
        for row in self._context.cluster.nodes():
            if row.claim is not None and row.claim.name == claim.name:
                return row.nominated_until > now or any(is_reschedulable(pod) for pod in row.pods)
        return False

    async def _forget(self, claim: NodeClaim) -> None:
        """Let a claim be one that replaces nothing."""
        patch = merge({"metadata": {"annotations": {REPLACES: None}}})
        try:
            await self._context.client.patch(NodeClaim, claim.name, patch)
        except NotFound:
            return

    def _all_claims(self) -> list[NodeClaim]:
        return [row.claim for row in self._context.cluster.nodes() if row.claim is not None]
