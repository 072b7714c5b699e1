"""The end of a claim: its nodes first, then its instance, then the object."""

import structlog

from karpenter.apis import labels as known
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import format_time, parse_time
from karpenter.cloudprovider import NodeClaimNotFound
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.controllers.nodeclaim.launch import Launch, with_details
from karpenter.controllers.nodeclaim.nominations import Nominations
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.runtime import Requeue, Result

log = structlog.get_logger()

DELETED = "deleted nodeclaim"
GRACE_ANNOTATED = "annotated nodeclaim with its termination deadline"

INSTANCE_POLL_SECONDS = 5.0


class Finalization:
    """Carries out a deletion."""

    def __init__(self, context: Context, launch: Launch) -> None:
        self._context = context
        self._launch = launch
        self._nominations = Nominations(context)
        self._instance_seconds = context.metrics.histogram(
            "karpenter_nodeclaims_instance_termination_duration_seconds",
            "From when an instance's end was asked for until it was gone.",
            ["nodepool"],
            buckets=[2.0**k for k in range(11)],
        )
        self._seconds = context.metrics.histogram(
            "karpenter_nodeclaims_termination_duration_seconds",
            "From a NodeClaim's deletion until it was gone.",
            ["nodepool"],
            buckets=[2.0**k for k in range(12)],
        )
        self._terminated = context.metrics.counter(
            "karpenter_nodeclaims_terminated",
            "NodeClaims gone.",
            ["nodepool", "capacity_type", "zone"],
        )

    async def run(self, claim: NodeClaim) -> Result:
        """Go as far as can be gone now; node events and polls bring us back."""
        if known.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            return Result()
        if not await self._nominations.take_back(claim):
            raise Requeue(f"pods are still nominated to the node of {claim.name}")
        claim = await self._set_deadline(claim)
        if self._has_joined(claim) and await self._nodes_remain(claim):
            return Result()
        instance = self._instance(claim)
        if instance is not None:
            claim, gone = await self._end_instance(claim, instance)
            if not gone:
                return Result(INSTANCE_POLL_SECONDS)
        return await self._let_go(claim)

    async def _set_deadline(self, claim: NodeClaim) -> NodeClaim:
        """Write down when the grace period is over; a deadline that is there stays."""
        period = claim.spec.termination_grace_period
        if period is None or known.TERMINATION_TIMESTAMP in claim.metadata.annotations:
            return claim
        deadline = format_time(_deleted_at(claim) + parse_duration(period))
        claim = await self._context.client.patch(
            NodeClaim,
            claim.name,
            merge(
                {"metadata": {"annotations": {known.TERMINATION_TIMESTAMP: deadline}}},
                resource_version=claim.metadata.resource_version,
            ),
        )
        log.info(GRACE_ANNOTATED, **facts(self._context, claim), deadline=deadline)
        self._context.recorder.publish(
            claim,
            "Warning",
            "TerminationGracePeriodExpiring",
            f"All pods will be deleted by {deadline}",
            dedupe=[claim.name],
        )
        return claim

    def _has_joined(self, claim: NodeClaim) -> bool:
        """Tell whether a node was registered for the claim, even if the claim was never told of it."""
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        return is_true(claim.status.conditions, "Registered") or any(
            known.TERMINATION_FINALIZER in node.metadata.finalizers for node in nodes
        )

    async def _nodes_remain(self, claim: NodeClaim) -> bool:
        """Delete the claim's Nodes; their own finalizer drains them before they go."""
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        for node in nodes:
            if not node.deleting:
                try:
                    await self._context.client.delete(Node, node.name, uid=node.metadata.uid)
                except NotFound:
                    continue
        return bool(nodes)

    def _instance(self, claim: NodeClaim) -> NodeClaim | None:
        """Return the claim with its instance's id, also when its status never told of it."""
        if claim.status.provider_id:
            return claim
        launched = self._launch.launched(claim)
        return with_details(claim, launched) if launched is not None else None

    async def _end_instance(self, claim: NodeClaim, instance: NodeClaim) -> tuple[NodeClaim, bool]:
        """Ask for the instance's end; tell whether it is gone."""
        try:
            await self._context.provider.delete(instance)
            gone = False
        except NodeClaimNotFound:
            gone = True
        if not is_true(claim.status.conditions, "InstanceTerminating"):
            wanted = conditions.with_condition(
                claim, "InstanceTerminating", "True", now=self._context.clock.now()
            )
            document = {"status": {"conditions": conditions.document(wanted.status.conditions)}}
            claim = await self._context.client.patch(
                NodeClaim,
                claim.name,
                merge(document, resource_version=claim.metadata.resource_version),
                subresource="status",
            )
        return claim, gone

    async def _let_go(self, claim: NodeClaim) -> Result:
        finalizers = [f for f in claim.metadata.finalizers if f != known.TERMINATION_FINALIZER]
        patch = merge(
            {"metadata": {"finalizers": finalizers}}, resource_version=claim.metadata.resource_version
        )
        try:
            await self._context.client.patch(NodeClaim, claim.name, patch)
        except NotFound:
            return Result()
        self._launch.forget(claim.name)
        meta = claim.metadata.labels
        log.info(DELETED, **facts(self._context, claim))
        now = self._context.clock.now()
        if is_true(claim.status.conditions, "InstanceTerminating"):
            began = conditions.transition_time(claim, "InstanceTerminating")
            self._instance_seconds.labels(_pool(claim)).observe(now - began)
        self._seconds.labels(_pool(claim)).observe(now - _deleted_at(claim))
        self._terminated.labels(
            _pool(claim), meta.get(known.CAPACITY_TYPE, ""), meta.get(known.ZONE, "")
        ).inc()
        return Result()


def _deleted_at(claim: NodeClaim) -> float:
    return parse_time(claim.metadata.deletion_timestamp or "1970-01-01T00:00:00Z")


def _pool(claim: NodeClaim) -> str:
    return claim.metadata.labels.get(known.NODEPOOL, "")
