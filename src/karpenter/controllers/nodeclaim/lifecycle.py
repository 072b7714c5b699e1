"""From a NodeClaim to a node that works: one controller, four steps, every step run every time.

The steps (`launch`, `registration`, `initialization`, `liveness`) take the claim and return it as it should
be; what differs is written at the end, guarded by the resource version that was read, so that acting on a
stale copy ends in a conflict and another try instead of a lost update.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.finalization import Finalization
from karpenter.controllers.nodeclaim.initialization import Initialization
from karpenter.controllers.nodeclaim.launch import Launch
from karpenter.controllers.nodeclaim.liveness import Liveness
from karpenter.controllers.nodeclaim.milestones import Milestones
from karpenter.controllers.nodeclaim.registration import Registration
from karpenter.controllers.nodeclaim.step import StepError
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.runtime import Backoff, Controller, Requeue, Result, Singleton


def build(context: Context) -> list[Controller | Singleton]:
    """Return the lifecycle controller."""
    return [Lifecycle(context).controller()]


class Lifecycle:
    """Drives claims through their life."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._claims = context.cache.informer(NodeClaim)
        self._launch = Launch(context)
        self._registration = Registration(context)
        self._initialization = Initialization(context)
        self._liveness = Liveness(context)
        self._milestones = Milestones(context)
        self._finalization = Finalization(context, self._launch)

    def controller(self) -> Controller:
        """Return the controller, watching claims and their nodes."""
        c = self._context
        controller = Controller(
            "nodeclaim.lifecycle",
            self.reconcile,
            clock=c.clock,
            rng=c.rng,
            metrics=c.metrics,
            concurrency=c.settings.concurrency(200, 1000),
            backoff=Backoff(1.0, 60.0),
        )
        controller.watch(self._claims, lambda change: [change.object.name])
        controller.watch(c.cache.informer(Node), self._claims_of)
        return controller

    def _claims_of(self, change: Change[Node]) -> Iterable[str]:
        return [c.name for c in self._context.cluster.claims_for(change.object.spec.provider_id)]

    async def reconcile(self, name: str) -> Result:
        """Bring one claim a step further."""
        claim = self._claims.get(name)
        if claim is None:
            self._launch.forget(name)
            return Result()
        if not self._context.cluster.manages(claim.spec.node_class_ref):
            return Result()
        if claim.deleting:
            try:
                return await self._finalization.run(claim)
            except NotFound:
                return Result()  # the claim went while we looked after it
        if self._context.cluster.is_ending(claim):
            return Result()  # the watch will tell; until then this copy must not launch anything
        if labels.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            try:
                claim = await self._guard(claim)
            except NotFound:
                return Result()
        now = self._context.clock.now()
        wanted = conditions.initialised(claim, now)
        after: list[float] = []
        errors: list[Exception] = []
        for step in (self._launch, self._registration, self._initialization, self._liveness):
            try:
                wanted, result = await step.run(wanted)
            except StepError as error:
                wanted = error.claim
                errors.append(error.error)
            except NotFound:
                errors.append(Requeue())  # its Node went; the next look finds out what that means
            except Exception as error:  # the other steps run all the same
                errors.append(error)
            else:
                if result.requeue_after is not None:
                    after.append(result.requeue_after)
        await self._write(claim, wanted)
        if errors:
            raise _worst(errors)
        return Result(min(after)) if after else Result()

    async def _guard(self, claim: NodeClaim) -> NodeClaim:
        """Put our finalizer on; nothing is launched without it."""
        finalizers = [*claim.metadata.finalizers, labels.TERMINATION_FINALIZER]
        return await self._context.client.patch(
            NodeClaim,
            claim.name,
            merge({"metadata": {"finalizers": finalizers}}, resource_version=claim.metadata.resource_version),
        )

    async def _write(self, before: NodeClaim, after: NodeClaim) -> None:
        """Write what the steps changed: metadata, then status."""
        if after == before:
            return  # nearly always: a Node's heartbeat is no news
        client = self._context.client
        version = before.metadata.resource_version
        try:
            metadata = _changed_maps(before, after)
            if metadata:
                patch = merge({"metadata": metadata}, resource_version=version)
                version = (await client.patch(NodeClaim, before.name, patch)).metadata.resource_version
            status = status_changes(before, after)
            if status:
                patch = merge({"status": status}, resource_version=version)
                await client.patch(NodeClaim, before.name, patch, subresource="status")
        except NotFound:
            return
        await self._milestones.tell(before, after)


def _changed_maps(before: NodeClaim, after: NodeClaim) -> dict[str, Any]:
    return {
        name: getattr(after.metadata, name)
        for name in ("labels", "annotations")
        if getattr(after.metadata, name) != getattr(before.metadata, name)
    }


def status_changes(before: NodeClaim, after: NodeClaim) -> dict[str, Any]:
    """Return the merge patch that leads from one status to the other (fields are only ever filled in)."""
    old, new = before.status, after.status
    changes: dict[str, Any] = {
        key: value
        for key, value in msgspec.to_builtins(new).items()
        if key != "conditions" and value != msgspec.to_builtins(old).get(key)
    }
    if new.conditions != old.conditions:
        changes["conditions"] = conditions.document(new.conditions)
    return changes


def _worst(errors: list[Exception]) -> Exception:
    """Return the error to report: a real one before a wish to try again."""
    real = [e for e in errors if not isinstance(e, Requeue | Conflict)]
    return (real or errors)[0]
