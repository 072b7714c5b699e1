"""Setting right what went wrong between us and the cloud, both ways.

A claim whose instance is gone is deleted. An instance that no claim knows of is ended: it was launched by a
process that died before it could write the claim's provider id, and whose claim was deleted since. A node
that still waits to be registered, of an instance that is gone, is deleted: it joined while its claim went.
"""

import asyncio
from collections.abc import Sequence

import structlog

from karpenter.apis import labels as known_labels
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import parse_time
from karpenter.cloudprovider import NodeClaimNotFound
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.kube.errors import Conflict, NotFound
from karpenter.model.pods import is_reschedulable
from karpenter.runtime import Controller, Result, Singleton

log = structlog.get_logger()

CLAIM_COLLECTED = "garbage collecting nodeclaim with no cloud provider representation"
NODE_COLLECTED = "garbage collecting node with neither nodeclaim nor instance"
INSTANCE_COLLECTED = "garbage collecting instance with no nodeclaim"

PERIOD_SECONDS = 120.0
ORPHAN_SECONDS = 60.0
"""An instance is nobody's only when it is older than that."""
_PARALLEL = 20


def build(context: Context) -> list[Controller | Singleton]:
    """Return the collector."""
    collector = GarbageCollector(context)
    return [
        Singleton(
            "nodeclaim.garbagecollection",
            collector.reconcile,
            clock=context.clock,
            rng=context.rng,
            metrics=context.metrics,
        )
    ]


class GarbageCollector:
    """Compares claims with instances."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._first_seen: dict[str, float] = {}
        self._lost_nodes: set[str] = set()

    async def reconcile(self) -> Result:
        """Make one comparison, from the API server itself rather than from the cache.

        Instances are listed between two lists of claims: what was launched or deleted meanwhile shows up in
        one of them and is left for the next time.
        """
        before = await self._claims()
        instances = [i for i in await self._context.provider.list() if not i.deleting]
        after = await self._claims()
        await self._collect_claims(before, instances)
        await self._collect_instances(instances, [*before, *after])
        await self._collect_nodes(instances, [*before, *after])
        return Result(PERIOD_SECONDS)

    async def _claims(self) -> list[NodeClaim]:
        found = await self._context.client.list(NodeClaim)
        return [c for c in found if self._context.cluster.manages(c.spec.node_class_ref)]

    async def _collect_claims(self, claims: Sequence[NodeClaim], instances: Sequence[NodeClaim]) -> None:
        alive = {instance.status.provider_id for instance in instances}
        gone = [
            claim
            for claim in claims
            if is_true(claim.status.conditions, "Registered")
            and not claim.deleting
            and claim.status.provider_id not in alive
        ]
        gate = asyncio.Semaphore(_PARALLEL)

        async def collect(claim: NodeClaim) -> None:
            async with gate:
                await self._collect_claim(claim)

        async with asyncio.TaskGroup() as tasks:
            for claim in gone:
                tasks.create_task(collect(claim))

    async def _collect_claim(self, claim: NodeClaim) -> None:
        """Delete one claim, unless its kubelet still reports: then it is the cloud's list that is wrong."""
        cluster = self._context.cluster
        nodes = cluster.nodes_for(claim.status.provider_id)
        if len(nodes) == 1 and is_true(nodes[0].status.conditions, "Ready"):
            return
        pods = cluster.pods_on(claim.status.node_name)
        count = sum(is_reschedulable(p) for p in pods)
        if await delete_claim(self._context, claim, "garbage_collected", pods=count):
            log.info(CLAIM_COLLECTED, **facts(self._context, claim))

    async def _collect_instances(self, instances: Sequence[NodeClaim], claims: Sequence[NodeClaim]) -> None:
        """End instances that have been nobody's for a minute.

        While a claim is being launched, its instance looks like nobody's: then all are left alone.
        """
        now = self._context.clock.now()
        known = {claim.status.provider_id for claim in claims}
        orphans = {i.status.provider_id: i for i in instances if i.status.provider_id not in known}
        self._first_seen = {key: self._first_seen.get(key, now) for key in orphans}
        names = {claim.name for claim in claims}
        launching = {c.name for c in claims if not c.status.provider_id}
        for provider_id, instance in sorted(orphans.items()):
            since = instance.metadata.creation_timestamp
            age = now - (parse_time(since) if since else self._first_seen[provider_id])
            named = instance.metadata.name
            if age < ORPHAN_SECONDS or (launching and (not named or named in launching)):
                continue
            if named in names:
                continue
            log.info(INSTANCE_COLLECTED, provider_id=provider_id)
            try:
                await self._context.provider.delete(instance)
            except NodeClaimNotFound:
                continue

    async def _collect_nodes(self, instances: Sequence[NodeClaim], claims: Sequence[NodeClaim]) -> None:
        """Delete nodes that nobody will ever register, when two looks in a row find them so.

        Only machines launched for claims carry the taint; registered nodes are the cloud's to remove.
        """
        known = {claim.status.provider_id for claim in (*instances, *claims)}
        names = {claim.name for claim in claims}
        lost = {
            view.node.metadata.uid: view.node
            for view in self._context.cluster.nodes()
            if view.node is not None
            and view.claim is None
            and any(taint.key == known_labels.UNREGISTERED_TAINT for taint in view.node.spec.taints)
            and view.provider_id not in known
            and view.name not in names
        }
        for uid in sorted(lost.keys() & self._lost_nodes):
            log.info(NODE_COLLECTED, Node=lost[uid].name, provider_id=lost[uid].spec.provider_id)
            try:
                await self._context.client.delete(Node, lost[uid].name, uid=uid)
            except (NotFound, Conflict):
                continue
        self._lost_nodes = set(lost)
