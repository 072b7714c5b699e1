"""Marking claims that may be disrupted: Drifted, and Consolidatable."""

from collections.abc import Iterable

import structlog

from karpenter.apis import labels as known
from karpenter.apis.conditions import get, is_true
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import parse_time
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.drift import Drift, expires_soon_at
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result, Singleton

log = structlog.get_logger()

DRIFTED = "marking drifted"
RECHECK_SECONDS = 300.0


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller, watching everything that may change a marker."""
    markers = Markers(context)
    controller = Controller(
        "nodeclaim.disruption",
        markers.reconcile,
        clock=context.clock,
        rng=context.rng,
        metrics=context.metrics,
        concurrency=context.settings.concurrency(10, 1000),
    )
    controller.watch(context.cache.informer(NodeClaim), lambda change: [change.object.name])
    controller.watch(context.cache.informer(NodePool), markers.claims_of_pool)
    for kind in context.provider.node_classes:
        controller.watch(
            context.cache.informer(kind), lambda change: markers.claims_of_class(change.object.name)
        )
    return [controller]


class Markers:
    """Sets and clears the two conditions."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._claims = context.cache.informer(NodeClaim)
        self._drift = Drift(context)

    def claims_of_pool(self, change: Change[NodePool]) -> Iterable[str]:
        """Return the claims of a pool whose spec or hash has changed (its status says nothing here)."""
        new, old = change.object, change.old
        if (
            old is not None
            and old.metadata.generation == new.metadata.generation
            and old.metadata.annotations == new.metadata.annotations
        ):
            return []
        return [claim.name for claim in self._context.cluster.claims_of_pool(new.name)]

    def claims_of_class(self, name: str) -> Iterable[str]:
        """Return the claims that use a node class of this name."""
        return [claim.name for claim in self._claims.items() if claim.spec.node_class_ref.name == name]

    async def reconcile(self, name: str) -> Result:
        """Bring the markers of one claim up to date; what failed is raised after the rest is written."""
        claim = self._claims.get(name)
        if claim is None:
            self._drift.forget(name)
            return Result()
        if claim.deleting or not self._context.cluster.manages(claim.spec.node_class_ref):
            return Result()
        pool = self._context.cluster.pool(claim.metadata.labels.get(known.NODEPOOL, ""))
        if pool is None:
            return Result()
        wanted, after, error = claim, [], None
        try:
            wanted, recheck = await self._drifted(wanted, pool)
            after.extend(recheck)
        except Exception as failure:  # consolidatable does not depend on it
            error = failure
        if not pool.static:
            wanted, recheck = self._consolidatable(wanted, pool)
            after.extend(recheck)
        if wanted.status.conditions != claim.status.conditions and await self._write(claim, wanted):
            self._tell(claim, wanted)
        if error is not None:
            raise error
        return Result(min(after)) if after else Result()

    async def _write(self, claim: NodeClaim, wanted: NodeClaim) -> bool:
        document = {"status": {"conditions": conditions.document(wanted.status.conditions)}}
        patch = merge(document, resource_version=claim.metadata.resource_version)
        try:
            await self._context.client.patch(NodeClaim, claim.name, patch, subresource="status")
        except NotFound:
            return False
        return True

    def _tell(self, before: NodeClaim, after: NodeClaim) -> None:
        drifted = get(after.status.conditions, "Drifted")
        if drifted is not None and not is_true(before.status.conditions, "Drifted"):
            log.info(DRIFTED, **facts(self._context, after), reason=drifted.reason)

    async def _drifted(self, claim: NodeClaim, pool: NodePool) -> tuple[NodeClaim, list[float]]:
        if not is_true(claim.status.conditions, "Launched"):
            return _without(claim, "Drifted"), []
        now = self._context.clock.now()
        left = expires_soon_at(claim, pool) - now
        reason = await self._drift.reason(claim, pool) or ("ExpiresSoon" if left <= 0 else "")
        if not reason:
            return _without(claim, "Drifted"), [min(RECHECK_SECONDS, left)]
        marked = conditions.with_condition(claim, "Drifted", "True", reason, reason, now=now)
        return marked, [RECHECK_SECONDS]

    def _consolidatable(self, claim: NodeClaim, pool: NodePool) -> tuple[NodeClaim, list[float]]:
        wait = pool.spec.disruption.consolidate_after
        initialized = get(claim.status.conditions, "Initialized")
        if wait == "Never" or initialized is None or initialized.status != "True":
            return _without(claim, "Consolidatable"), []
        since = claim.status.last_pod_event_time or initialized.last_transition_time
        now = self._context.clock.now()
        seconds = parse_duration(wait)
        left = (parse_time(since) if since else 0.0) + seconds - now
        if seconds > 0 and left > 0:
            return _without(claim, "Consolidatable"), [left]
        if is_true(claim.status.conditions, "Consolidatable"):
            return claim, []
        return conditions.with_condition(claim, "Consolidatable", "True", now=now), []


def _without(claim: NodeClaim, type: str) -> NodeClaim:
    return conditions.without_condition(claim, type) if get(claim.status.conditions, type) else claim
