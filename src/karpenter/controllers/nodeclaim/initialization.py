"""Telling when a registered node is ready for work, and what is wrong when it never is.

A node that registers and then lacks something for ever (a driver that does not start, a startup taint that
nobody takes off) has its price and takes no pods. Most often the next machine would lack the same, so that by
default it is not thrown away: after a while it says so, again every hour. `--initialization-timeout` replaces
such machines as long as no pod runs there.
"""

import structlog

from karpenter.apis import labels as known
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.resourceslices import ResourceSlice
from karpenter.base.duration import format_duration
from karpenter.base.quantity import resources_of
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.dradrivers import requested_drivers, unpublished
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.controllers.nodeclaim.step import Step
from karpenter.kube.patch import merge
from karpenter.model import taints
from karpenter.model.pods import is_reschedulable, is_terminal
from karpenter.runtime import Result

log = structlog.get_logger()

TIMED_OUT = "terminating nodeclaim, it was not initialized in time"

OVERDUE_SECONDS = 15 * 60.0
"""From registration; after that it is said what a node lacks."""
_TOLD_AGAIN_SECONDS = 3600.0
_SLICES_POLL_SECONDS = 5.0
_OCCUPIED_POLL_SECONDS = 60.0


class Initialization:
    """The third step."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._timeout = context.settings.initialization_timeout

    async def run(self, claim: NodeClaim) -> Step:
        """Set Initialized once the node is ready, its startup taints are off and its resources are there."""
        now = self._context.clock.now()
        if is_true(claim.status.conditions, "Initialized"):
            return Step(conditions.refreshed(claim, "Initialized", now=now))
        if not is_true(claim.status.conditions, "Registered"):
            return Step(claim)
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        if len(nodes) != 1:
            return await self._wait(claim, None, "NodeNotFound", "Node not registered with cluster")
        node = nodes[0]
        reason, message = missing(claim, node)
        if not reason:
            reason, message = self._missing_devices(claim, node)
        if reason:
            return await self._wait(claim, node, reason, message)
        if node.metadata.labels.get(known.INITIALIZED) != "true":
            await self._context.client.patch(
                Node, node.name, merge({"metadata": {"labels": {known.INITIALIZED: "true"}}})
            )
        return Step(conditions.with_condition(claim, "Initialized", "True", now=now))

    def _missing_devices(self, claim: NodeClaim, node: Node) -> tuple[str, str]:
        drivers = requested_drivers(claim)
        if self._context.settings.ignore_dra_requests or not drivers:
            return "", ""
        # Asked for only now: a server without resource.k8s.io must not keep everybody waiting at the start.
        slices = self._context.cache.informer(ResourceSlice)
        lacking = unpublished(drivers, node, slices.items())
        if not lacking:
            return "", ""
        return "DRADriverPoolsNotPublished", f"No whole pool of devices published by {', '.join(lacking)}"

    async def _wait(self, claim: NodeClaim, node: Node | None, reason: str, message: str) -> Step:
        """Say what is waited for; say it louder, or give up, when that takes too long."""
        now = self._context.clock.now()
        waited = now - conditions.transition_time(claim, "Registered")
        if waited >= OVERDUE_SECONDS:
            message += f"; not initialized within {format_duration(OVERDUE_SECONDS)} of its registration"
            self._complain(claim, node, f"{reason}: {message}")
        claim = conditions.with_condition(claim, "Initialized", "Unknown", reason, message, now=now)
        again = [OVERDUE_SECONDS - waited] if waited < OVERDUE_SECONDS else [_TOLD_AGAIN_SECONDS]
        if reason == "DRADriverPoolsNotPublished":
            again.append(_SLICES_POLL_SECONDS)
        if self._timeout is not None:
            left = self._timeout - waited
            if left <= 0 and await self._give_up(claim, node, reason):
                return Step(claim)
            again.append(left if left > 0 else _OCCUPIED_POLL_SECONDS)
        return Step(claim, Result(min(again)))

    def _complain(self, claim: NodeClaim, node: Node | None, message: str) -> None:
        for obj in (claim, node):
            if obj is not None:
                self._context.recorder.publish(
                    obj,
                    "Warning",
                    "NotInitialized",
                    message,
                    dedupe=[obj.metadata.uid],
                    dedupe_seconds=_TOLD_AGAIN_SECONDS,
                )

    async def _give_up(self, claim: NodeClaim, node: Node | None, reason: str) -> bool:
        """Delete the claim unless somebody works on its node in spite of all; tell whether it is."""
        pods = self._context.cluster.pods_on(node.name) if node is not None else []
        if any(is_reschedulable(pod) and not is_terminal(pod) for pod in pods):
            return False
        if await delete_claim(self._context, claim, "initialization_timeout", pods=0):
            log.info(TIMED_OUT, **facts(self._context, claim), reason=reason)
        return True


def missing(claim: NodeClaim, node: Node) -> tuple[str, str]:
    """Return what `node` lacks to be initialized, as reason and message; empty when nothing."""
    if not is_true(node.status.conditions, "Ready"):
        return "NodeNotReady", "Node status is NotReady"
    for taint in claim.spec.startup_taints:
        if any(taint.matches(present) for present in node.spec.taints):
            return "StartupTaintsExist", f"StartupTaint {str(taint)!r} still exists"
    for present in node.spec.taints:
        if taints.is_ephemeral(present):
            return "KnownEphemeralTaintsExist", f"KnownEphemeralTaint {str(present)!r} still exists"
    allocatable = resources_of(node.status.allocatable)
    for name, amount in sorted(resources_of(claim.spec.resources.requests).items()):
        if amount and not allocatable.get(name):
            return "ResourceNotRegistered", f"Resource {name!r} was requested but not registered"
    return "", ""
