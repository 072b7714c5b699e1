"""Adding nodes to static pools until there are `spec.replicas`, within `limits.nodes`, spread over zones."""

import structlog

from karpenter.apis import conditions
from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.quantity import resources_of
from karpenter.cloudprovider import UnevaluatedNodePool
from karpenter.controllers.context import Context
from karpenter.controllers.nodepool.keyed import pool_controller
from karpenter.controllers.provisioning.claims import create_claims
from karpenter.controllers.static.census import Census, census
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import PlannedClaim
from karpenter.model.zones import (
    in_zone,
    is_buyable,
    open_zones,
    pool_requirements,
    spread,
    zone_counts,
)
from karpenter.runtime import Controller, Result

log = structlog.get_logger()

LIMITED = "nodepool node limit reached, static pool keeps fewer nodes than its replicas"
ADDED = "created nodeclaim(s) for static nodepool"
NOTHING_TO_BUY = "static nodepool finds no available instance types"

AGAIN_SECONDS = 60.0
LIMITED_SECONDS = 30.0
UNSYNCED_SECONDS = 1.0
FAILED_LAUNCH_SECONDS = 10.0
"""After a claim ended without ever having had a machine, the next try waits."""
_AT_ONCE = 500
"""Claims created between two looks at the pool: a user who corrects a slip of the finger is heard."""
_CONFIRM_AFTER_SECONDS = 5.0


class Provisioning:
    """Keeps static pools from having too few nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._limited: dict[str, tuple[int, int]] = {}
        """Pools at their limit that were told of: nodes and replicas."""

    def controller(self) -> Controller:
        """Return the controller, watching pools and their claims."""
        controller = pool_controller(self._context, "static.provisioning", self._reconcile)

        def on_claim(change: Change[NodeClaim]) -> None:
            pool = _freed(self._context, change)
            if pool:
                launched = bool(change.object.status.provider_id)
                controller.enqueue(pool, after=0.0 if launched else FAILED_LAUNCH_SECONDS)

        self._context.cache.informer(NodeClaim).subscribe(on_claim)
        return controller

    async def _reconcile(self, pool: NodePool) -> Result:
        cluster, replicas = self._context.cluster, pool.spec.replicas
        if replicas is None or pool.deleting or not conditions.is_true(pool.status.conditions, "Ready"):
            return Result()
        if not cluster.synced():
            return Result(UNSYNCED_SECONDS)
        await self._confirm_created(pool.name)
        try:
            types = await self._context.provider.instance_types(pool)
        except UnevaluatedNodePool:
            return Result(UNSYNCED_SECONDS)
        cluster.note_catalogue(pool.name, types)
        # From here to the grant nothing waits: what is counted is one moment.
        counted = census(self._context, pool.name)
        wanted = replicas - counted.staying
        if wanted <= 0:
            return Result(AGAIN_SECONDS)
        with cluster.grants.grant(
            pool.name, limit=node_limit(pool), present=counted.present, wanted=min(wanted, _AT_ONCE)
        ) as granted:
            if not granted:
                self._tell_limited(pool.name, counted.present, replicas)
                return Result(LIMITED_SECONDS)
            self._limited.pop(pool.name, None)
            return await self._add(pool, counted, granted, types)

    async def _add(
        self, pool: NodePool, counted: Census, count: int, types: tuple[InstanceType, ...]
    ) -> Result:
        """Create `count` claims."""
        planned = planned_claims(pool, counted, count, types)
        if not planned:
            log.info(NOTHING_TO_BUY, NodePool=pool.name)
            self._context.recorder.publish(
                pool,
                "Warning",
                "NoCompatibleInstanceTypes",
                "NodePool requirements filtered out all compatible available instance types",
                dedupe=[pool.metadata.uid],
                dedupe_seconds=60.0,
            )
            return Result(LIMITED_SECONDS)
        created = await create_claims(self._context, planned, "provisioned")
        names = sorted(c.claim.name for c in created if c.claim is not None)
        log.info(ADDED, NodePool=pool.name, nodeclaims=names, replicas=pool.spec.replicas)
        if len(names) < count:
            return Result(LIMITED_SECONDS)
        return Result(0.0 if count == _AT_ONCE else AGAIN_SECONDS)

    def _tell_limited(self, pool: str, nodes: int, replicas: int) -> None:
        if self._limited.get(pool) != (nodes, replicas):
            self._limited[pool] = (nodes, replicas)
            log.info(LIMITED, NodePool=pool, nodes=nodes, replicas=replicas)

    async def _confirm_created(self, pool: str) -> None:
        """Ask after the pool's claims that we created and the watch has not told of for a while."""
        cluster = self._context.cluster
        for claim in cluster.unconfirmed(older_than_seconds=_CONFIRM_AFTER_SECONDS):
            if claim.metadata.labels.get(known.NODEPOOL) != pool:
                continue
            try:
                await self._context.client.get(NodeClaim, claim.name)
            except NotFound:
                cluster.forget_created(claim.name)


def planned_claims(
    pool: NodePool, counted: Census, count: int, types: tuple[InstanceType, ...]
) -> list[PlannedClaim]:
    """Return `count` claims for `pool`, emptiest zones first; none when nothing can be bought now.

    Nodes that are leaving are not counted for their zones: what is balanced is what stays. Where no zone can
    be chosen (the pool wants several for each claim, or the cloud names none), the cloud chooses.
    """
    wanted = pool_requirements(pool)
    if not is_buyable(wanted, types):
        return []
    zones = spread(open_zones(wanted, types), zone_counts(counted.active), count)
    return [
        PlannedClaim(
            pool=pool, requirements=in_zone(wanted, zone), instance_types=(), requests={}, pods=(), price=0.0
        )
        for zone in zones
    ]


def node_limit(pool: NodePool) -> int | None:
    """Return `limits.nodes` of a pool; None when there is none."""
    return resources_of(pool.spec.limits).get("nodes")


def _freed(context: Context, change: Change[NodeClaim]) -> str:
    """Return the static pool that has one node less by this change, or one less against its limit."""
    claim, old = change.object, change.old
    began = claim.deleting and not (old is not None and old.deleting)
    if change.type != "DELETED" and not began:
        return ""
    pool = context.cluster.pool(claim.metadata.labels.get(known.NODEPOOL, ""))
    return pool.name if pool is not None and pool.static else ""
