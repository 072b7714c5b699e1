"""What a node and its claim show while they are being disrupted: a taint, and a condition with the reason.

Both are written on what the API server has at that moment, and again when somebody else wrote in between.
"""

from collections.abc import Awaitable, Callable

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.conditions import document, with_condition, without_condition
from karpenter.controllers.context import Context
from karpenter.disruption.budgets import Reason
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.patch import merge

DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")
REASON = "DisruptionReason"

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05


class Going(Exception):
    """The node or its claim is on its way out already, or gone."""


class Marks:
    """Writes and takes back the marks."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def put(self, node: str, claim: NodeClaim, reason: Reason) -> None:
        """Keep pods off `node`, and say on its claim why.

        Raises:
            Going: when there is nothing left to disrupt.
            Conflict: when others keep writing.
            ApiError, TransportError: when the API server does not answer, or does not want to.
        """
        await self._repeated(lambda: self._taint(node))
        await self._repeated(lambda: self._explain(claim, reason))

    async def take_back(self, node: str, claim: NodeClaim) -> None:
        """Undo `put`, as far as node and claim are there and stay. Raises as `put`, except Going."""
        for step in (lambda: self._untaint(node), lambda: self._silence(claim)):
            try:
                await self._repeated(step)
            except Going:
                continue

    async def _repeated(self, write: Callable[[], Awaitable[None]]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await write()
                return
            except NotFound:
                raise Going from None
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                await self._context.clock.sleep(_PAUSE_SECONDS * 2**attempt)

    async def _taint(self, name: str) -> None:
        node = await self._context.client.get(Node, name)
        if node.deleting:
            raise Going
        if not is_tainted(node):
            await self._write_taints(node, [*node.spec.taints, DISRUPTED])

    async def _untaint(self, name: str) -> None:
        node = await self._context.client.get(Node, name)
        if is_tainted(node) and not node.deleting:
            await self._write_taints(node, [t for t in node.spec.taints if not t.matches(DISRUPTED)])

    async def _write_taints(self, node: Node, taints: list[Taint]) -> None:
        patch = merge({"spec": {"taints": taints}}, resource_version=node.metadata.resource_version)
        await self._context.client.patch(Node, node.name, patch)

    async def _explain(self, known: NodeClaim, reason: Reason) -> None:
        claim = await self._present(known)
        if claim.deleting:
            raise Going
        changed = with_condition(claim, REASON, "True", reason, reason, now=self._context.clock.now())
        await self._write_conditions(claim, changed)

    async def _silence(self, known: NodeClaim) -> None:
        claim = await self._present(known)
        if not claim.deleting:
            await self._write_conditions(claim, without_condition(claim, REASON))

    async def _present(self, known: NodeClaim) -> NodeClaim:
        claim = await self._context.client.get(NodeClaim, known.name)
        if claim.metadata.uid != known.metadata.uid:
            raise Going
        return claim

    async def _write_conditions(self, claim: NodeClaim, changed: NodeClaim) -> None:
        if changed.status.conditions == claim.status.conditions:
            return
        document_ = {"status": {"conditions": document(changed.status.conditions)}}
        patch = merge(document_, resource_version=claim.metadata.resource_version)
        await self._context.client.patch(NodeClaim, claim.name, patch, subresource="status")


def is_tainted(node: Node) -> bool:
    """Tell whether a node carries our taint."""
    return any(taint.matches(DISRUPTED) for taint in node.spec.taints)


def is_marked(node: Node, claim: NodeClaim) -> bool:
    """Tell whether any of the marks is there."""
    return is_tainted(node) or conditions.get(claim.status.conditions, REASON) is not None
