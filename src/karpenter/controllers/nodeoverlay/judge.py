"""The judge of NodeOverlays: all of them together, whenever something they depend on has changed.

A verdict is written to the statuses first and comes into force after that, in one piece: when somebody else
wrote in between, what was judged is out of date, and everything is looked at again.
"""

from typing import TypeVar

import structlog

from karpenter.apis.karpenter import NodeOverlay, NodePool
from karpenter.apis.meta import KubeObject
from karpenter.cloudprovider import CloudProviderError
from karpenter.cloudprovider.overlaid import OverlaidProvider
from karpenter.cloudprovider.overlayevaluation import Evaluation, PoolTypes, evaluate
from karpenter.cloudprovider.overlays import pool_labels
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.kube.errors import ApiError, Conflict, NotFound
from karpenter.kube.informer import Change, Informer
from karpenter.kube.patch import merge
from karpenter.runtime import Requeue, Result, Singleton

log = structlog.get_logger()

CONDITION = "ValidationSucceeded"
IN_FORCE = "node overlays are in force"
NOT_WRITTEN = "could not write the status of a node overlay"

PERIOD_SECONDS = 6 * 3600.0
UNJUDGED_SECONDS = 10.0
"""How long catalogues that follow each other are collected before conflicts are looked for in the last."""

K = TypeVar("K", bound=KubeObject)


class Judge:
    """Evaluates everything at once; there is one, and it runs by itself."""

    def __init__(self, context: Context, provider: OverlaidProvider) -> None:
        self._context = context
        self._cloud = provider.inner
        self._store = provider.store
        self._overlays = context.cache.informer(NodeOverlay)
        self.controller = Singleton(
            "nodeoverlay", self._reconcile, clock=context.clock, rng=context.rng, metrics=context.metrics
        )
        self._follow(self._overlays)
        self._follow(context.cache.informer(NodePool))
        for kind in context.provider.node_classes:
            self._follow(context.cache.informer(kind))
        self._store.on_unjudged_types(lambda: self.controller.trigger(after=UNJUDGED_SECONDS))

    def _follow(self, informer: Informer[K]) -> None:
        """Judge again when an object comes, goes, or has another spec; statuses say nothing here."""

        def on_change(change: Change[K]) -> None:
            old, new = change.old, change.object
            if (
                old is None
                or change.type == "DELETED"
                or (old.metadata.uid, old.metadata.generation) != (new.metadata.uid, new.metadata.generation)
            ):
                self.controller.trigger()

        informer.subscribe(on_change)

    async def _reconcile(self) -> Result:
        pools, failed = await self._pools()
        overlays = list(self._overlays.items())
        evaluation = evaluate(overlays, pools, self._context.well_known_labels)
        failed += await self._write(overlays, evaluation)
        if self._store.replace(evaluation.overlays, pools):
            cluster = self._context.cluster
            for each in pools:
                cluster.note_catalogue(each.pool.name, self._store.apply(each.pool.name, each.types))
            cluster.mark_unconsolidated()
            log.info(
                IN_FORCE,
                overlays=[overlay.name for overlay in evaluation.overlays],
                rejected=sorted(evaluation.rejected),
                nodepools=[each.pool.name for each in pools],
            )
        if failed:
            raise CloudProviderError("; ".join(failed))
        return Result(PERIOD_SECONDS)

    async def _pools(self) -> tuple[list[PoolTypes], list[str]]:
        """Return the pools with what their cloud offers them, and what went wrong with the others."""
        found: list[PoolTypes] = []
        failed: list[str] = []
        for pool in sorted(self._context.cluster.managed_pools(), key=lambda pool: pool.name):
            try:
                found.append(PoolTypes(pool_labels(pool), await self._cloud.instance_types(pool)))
            except Exception as error:  # a cloud may fail in any way; the other pools must not suffer
                failed.append(f"nodepool {pool.name}: {error}")
        return found, failed

    async def _write(self, overlays: list[NodeOverlay], evaluation: Evaluation) -> list[str]:
        """Write the verdicts; return what could not be written for reasons of its own.

        Raises:
            Conflict, Requeue: when an overlay is not what it was when it was judged.
        """
        failed: list[str] = []
        for overlay in overlays:
            try:
                await self._write_one(overlay, evaluation)
            except Conflict:
                raise
            except NotFound as error:
                raise Requeue from error
            except ApiError as error:
                log.error(NOT_WRITTEN, NodeOverlay=overlay.name, error=str(error))
                failed.append(f"nodeoverlay {overlay.name}: {error}")
        return failed

    async def _write_one(self, overlay: NodeOverlay, evaluation: Evaluation) -> None:
        rejection, now = evaluation.rejected.get(overlay.name), self._context.clock.now()
        if rejection is None:
            wanted = conditions.with_condition(overlay, CONDITION, "True", now=now)
        else:
            wanted = conditions.with_condition(
                overlay, CONDITION, "False", rejection.reason, rejection.message, now=now
            )
        if wanted.status.conditions == overlay.status.conditions:
            return
        document = {"status": {"conditions": conditions.document(wanted.status.conditions)}}
        await self._context.client.patch(
            NodeOverlay,
            overlay.name,
            merge(document, resource_version=overlay.metadata.resource_version),
            subresource="status",
        )
