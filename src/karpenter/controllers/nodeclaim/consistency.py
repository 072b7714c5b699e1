"""Checking now and then that nodes are what was bought. Nothing acts on it; people do."""

from collections.abc import Iterable

import structlog

from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.quantity import format_units, resources_of
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result, Singleton

log = structlog.get_logger()

FAILED = "consistency error"
SCAN_SECONDS = 600.0
_TOLERATED = 0.9


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""
    check = Consistency(context)
    controller = Controller(
        "nodeclaim.consistency",
        check.reconcile,
        clock=context.clock,
        rng=context.rng,
        metrics=context.metrics,
        concurrency=10,
    )
    controller.watch(context.cache.informer(NodeClaim), lambda change: [change.object.name])
    controller.watch(context.cache.informer(Node), check.claims_of)
    return [controller]


class Consistency:
    """Compares each node with its claim every ten minutes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._claims = context.cache.informer(NodeClaim)
        self._scanned: dict[str, float] = {}

    def claims_of(self, change: Change[Node]) -> Iterable[str]:
        """Return the claims of a node."""
        return [c.name for c in self._context.cluster.claims_for(change.object.spec.provider_id)]

    async def reconcile(self, name: str) -> Result:
        """Scan one claim, unless it was scanned lately."""
        claim = self._claims.get(name)
        if claim is None:
            self._scanned.pop(name, None)
            return Result()
        if claim.deleting or not self._context.cluster.manages(claim.spec.node_class_ref):
            return Result()
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        if len(nodes) != 1 or not is_true(claim.status.conditions, "Initialized"):
            return Result()
        now = self._context.clock.now()
        due = self._scanned.get(name, -SCAN_SECONDS) + SCAN_SECONDS
        if now < due:
            return Result(due - now)
        issues = shape_issues(claim, nodes[0])
        await self._write(claim, issues, now)
        self._scanned[name] = now
        for issue in issues:
            log.error(FAILED, **facts(self._context, claim), error=issue)
            self._context.recorder.publish(
                claim, "Warning", "FailedConsistencyCheck", issue, dedupe=[claim.metadata.uid, issue]
            )
        return Result(SCAN_SECONDS)

    async def _write(self, claim: NodeClaim, issues: list[str], now: float) -> None:
        type = "ConsistentStateFound"
        wanted = (
            conditions.with_condition(
                claim,
                type,
                "False",
                "ConsistencyCheckFailed",
                "; ".join(issues),
                now=now,
            )
            if issues
            else conditions.with_condition(claim, type, "True", now=now)
        )
        if wanted.status.conditions == claim.status.conditions:
            return
        document = {"status": {"conditions": conditions.document(wanted.status.conditions)}}
        patch = merge(document, resource_version=claim.metadata.resource_version)
        try:
            await self._context.client.patch(NodeClaim, claim.name, patch, subresource="status")
        except NotFound:
            return


def shape_issues(claim: NodeClaim, node: Node) -> list[str]:
    """Return for which requested resources `node` has less than 90 % of what the claim promised."""
    requested = resources_of(claim.spec.resources.requests)
    expected = resources_of(claim.status.capacity)
    found = resources_of(node.status.capacity)
    issues = []
    for name in sorted(requested):
        if not requested[name] or not expected.get(name):
            continue
        share = found.get(name, 0) / expected[name]
        if share < _TOLERATED:
            issues.append(
                f"expected {format_units(name, expected[name])} of resource {name}, but found "
                f"{format_units(name, found.get(name, 0))} ({share:.1%} of expected)"
            )
    return issues
