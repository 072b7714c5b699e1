"""What a process that died, or an answer that was lost, has left behind of commands.

- Replacements whose nodes are still marked, all of them there: the command goes on where it was.
- Replacements of a command that nobody knows, while nodes that they were to replace stay: they go, or are
  kept if pods need them.
- Marks on nodes that nobody disrupts: they are taken away.
"""

from collections.abc import Sequence

import structlog

from karpenter.apis import conditions
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import parse_time
from karpenter.controllers.conditions import created_at
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.marks import REASON, Marks, is_marked, is_tainted
from karpenter.controllers.disruption.notes import Note, noted
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.controllers.disruption.undoing import Undoing
from karpenter.disruption.candidates import Candidate
from karpenter.model.pods import is_reschedulable
from karpenter.model.snapshot import NodeView

log = structlog.get_logger()

RESUMED = "going on with a disruption that was begun before"


class Leftovers:
    """Finds and clears them; `tidy` is run before every pass."""

    def __init__(self, context: Context, queue: CommandQueue) -> None:
        self._context = context
        self._queue = queue
        self._marks = Marks(context)
        self._undoing = Undoing(context, self._marks)
        self._fresh = True

    async def tidy(self) -> None:
        """Clear what is there.

        Raises:
            ApiError, TransportError: when that was not possible; do it again.
        """
        rows = self._context.cluster.nodes()
        by_claim = {row.claim.name: row for row in rows if row.claim is not None}
        claims = [row.claim for row in by_claim.values() if row.claim is not None]
        for command, (note, replacements) in noted(claims).items():
            if self._queue.knows(command):
                continue
            left = [
                by_claim[name]
                for name in note.node_claims
                if name in by_claim and not self._is_ending(by_claim[name])
            ]
            if not left:
                continue  # it got through
            if self._fresh and self._resume(note, left, replacements):
                continue
            await self._undoing.judge(replacements)
        self._fresh = False
        await self._unmark(rows)

    def _is_ending(self, row: NodeView) -> bool:
        return row.claim is None or self._context.cluster.is_ending(row.claim)

    def _resume(self, note: Note, left: Sequence[NodeView], replacements: Sequence[NodeClaim]) -> bool:
        """Go on with a command, if it was not given up and all it needs is there; tell whether."""
        pools = {pool.name: pool for pool in self._context.cluster.managed_pools()}
        present = [claim for claim in replacements if not self._context.cluster.is_ending(claim)]
        if len(present) < note.replacements or not all(_was_marked_for(row, present) for row in left):
            return False
        if any(row.nodepool not in pools for row in left):
            return False
        candidates = [
            Candidate(
                node=row,
                pool=pools[row.nodepool],
                reschedulable=tuple(pod for pod in row.pods if is_reschedulable(pod)),
                price=(self._context.cluster.price(row.claim) or 0.0) if row.claim is not None else 0.0,
            )
            for row in left
        ]
        names = [claim.name for claim in present]
        log.info(RESUMED, nodes=[row.name for row in left], replacements=names, reason=note.reason.lower())
        self._queue.resume(note, candidates, names)
        return True

    async def _unmark(self, rows: Sequence[NodeView]) -> None:
        underway = self._queue.underway
        for row in rows:
            if row.marked_for_deletion or row.provider_id in underway:
                continue
            if row.node is None or row.claim is None or row.node.deleting:
                continue
            if is_marked(row.node, row.claim):
                await self._marks.take_back(row.node.name, row.claim)


def _was_marked_for(row: NodeView, replacements: Sequence[NodeClaim]) -> bool:
    """Tell whether a node carries the marks it was given before `replacements` were created."""
    if row.node is None or row.claim is None or not is_tainted(row.node):
        return False
    reason = conditions.get(row.claim.status.conditions, REASON)
    if reason is None or reason.status != "True" or not reason.last_transition_time:
        return False
    return parse_time(reason.last_transition_time) <= min(created_at(claim) for claim in replacements)
