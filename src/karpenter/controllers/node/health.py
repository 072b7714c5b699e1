"""Node repair: replacing machines whose conditions say that they are broken (feature gate NodeRepair).

Which conditions, and for how long they are put up with, is the cloud's to say (`repair_policies`). A repair
is forceful: the claim's deadline is now, so that pods are deleted whatever their budgets say; a kubelet that
does not answer would not heed anything else. Because of that it stops where too much is broken at once: what
fails for a fifth of a pool is hardly the machines' own fault.
"""

import re
from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

import structlog

from karpenter.apis import labels as known
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import Condition
from karpenter.base.duration import format_duration
from karpenter.base.timestamps import format_time, parse_time
from karpenter.cloudprovider import RepairPolicy
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.ending import delete_claim
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.model.pods import is_reschedulable
from karpenter.runtime import Backoff, Controller, Result, Singleton

log = structlog.get_logger()

GATE = "NodeRepair"

REPAIRED = "deleting unhealthy node"
BLOCKED = "not repairing unhealthy node, too many others are unhealthy"

BLOCKED_SECONDS = 300.0
"""After that a repair that was held back is looked at again."""
ALLOWED_SHARE = 0.20
"""Of a pool's nodes, or of the cluster's for claims without a pool, rounded up."""
COUNTED_FROM = 0.5
"""The part of its toleration after which an unhealthy node counts against its pool: nodes that just start,
or restart, do not; what failed together with the node that is due does."""
_EVENT_SECONDS = 900.0


class Ailment(NamedTuple):
    """A condition that calls for a repair, and when."""

    condition: Condition
    policy: RepairPolicy
    since: float
    """Epoch seconds."""

    @property
    def due(self) -> float:
        """When it will have lasted as long as it is put up with, epoch seconds."""
        return self.since + self.policy.toleration_seconds

    @property
    def counts_from(self) -> float:
        """When the node begins to count as unhealthy for the others of its pool, epoch seconds."""
        return self.since + COUNTED_FROM * self.policy.toleration_seconds


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller, if the gate is open and the cloud knows what to repair."""
    if not context.settings.feature_gates.get(GATE, False) or not context.provider.repair_policies():
        return []
    return [Health(context).controller()]


class Health:
    """Repairs nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._policies = tuple(context.provider.repair_policies())
        self._nodes = context.cache.informer(Node)
        self._nodes.add_index("nodepool", lambda node: [node.metadata.labels.get(known.NODEPOOL, "")])
        self._repaired = context.metrics.counter(
            "karpenter_nodeclaims_unhealthy_disrupted",
            "NodeClaims that were deleted because their nodes were unhealthy.",
            ["condition", "nodepool", "capacity_type", "image_id"],
        )

    def controller(self) -> Controller:
        """Return the controller, watching the conditions of nodes and which claims they belong to."""
        c = self._context
        controller = Controller(
            "node.health",
            self.reconcile,
            clock=c.clock,
            rng=c.rng,
            metrics=c.metrics,
            concurrency=c.settings.concurrency(10, 1000),
            backoff=Backoff(0.1, 60.0),
        )
        controller.watch(self._nodes, _with_other_conditions)
        controller.watch(c.cache.informer(NodeClaim), self._nodes_of)
        return controller

    def _nodes_of(self, change: Change[NodeClaim]) -> Iterable[str]:
        claim, old = change.object, change.old
        if old is not None and old.status.provider_id == claim.status.provider_id:
            return []
        return [node.name for node in self._context.cluster.nodes_for(claim.status.provider_id)]

    async def reconcile(self, name: str) -> Result:
        """Replace one node if it has been unhealthy for too long, and few others of its pool are."""
        node = self._nodes.get(name)
        if node is None:
            return Result()
        claims = self._context.cluster.claims_for(node.spec.provider_id)
        if len(claims) != 1 or not self._context.cluster.manages(claims[0].spec.node_class_ref):
            return Result()
        claim, ailment = claims[0], worst(node, self._policies)
        if ailment is None:
            return Result()
        left = ailment.due - self._context.clock.now()
        if left > 0:
            return Result(left)
        if self._too_many(node, claim):
            return Result(BLOCKED_SECONDS)
        try:
            await self._repair(node, claim, ailment)
        except NotFound:
            return Result()  # the claim went meanwhile
        return Result()

    def _too_many(self, node: Node, claim: NodeClaim) -> bool:
        """Tell whether so many nodes are unhealthy that something else must be wrong; and if so, say it."""
        pool = claim.metadata.labels.get(known.NODEPOOL, "")
        nodes = self._nodes.by_index("nodepool", pool) if pool else self._nodes.items()
        now = self._context.clock.now()
        ailing = sum(is_counted(other, self._policies, now) for other in nodes)
        allowed = ceil(ALLOWED_SHARE * len(nodes))
        if ailing <= allowed:
            return False
        where = "nodepool" if pool else "cluster"
        message = (
            f"more than {ALLOWED_SHARE:.0%} nodes are unhealthy in the {where}: "
            f"{ailing} of {len(nodes)}, where at most {allowed} are repaired"
        )
        log.warning(BLOCKED, **facts(self._context, claim), unhealthy=ailing, nodes=len(nodes))
        about = [node, claim, self._context.cluster.pool(pool) if pool else None]
        for obj in about:
            if obj is not None:
                self._context.recorder.publish(
                    obj,
                    "Warning",
                    "NodeRepairBlocked",
                    message,
                    dedupe=[obj.metadata.uid],
                    dedupe_seconds=_EVENT_SECONDS,
                )
        return True

    async def _repair(self, node: Node, claim: NodeClaim, ailment: Ailment) -> None:
        """Let the claim's time be up, and delete it. A claim that is ending already ends faster."""
        claim = await self._end_grace(claim)
        cluster = self._context.cluster
        if cluster.is_ending(claim):
            return
        pods = sum(is_reschedulable(pod) for pod in cluster.pods_on(node.name))
        if not await delete_claim(self._context, claim, "unhealthy", pods=pods):
            return
        meta, condition = claim.metadata.labels, ailment.condition
        lasted = format_duration(float(round(self._context.clock.now() - ailment.since)))
        log.info(
            REPAIRED,
            **facts(self._context, claim),
            condition=condition.type,
            status=condition.status,
            lasted=lasted,
        )
        tolerated = format_duration(ailment.policy.toleration_seconds)
        message = (
            f"Condition {condition.type} has been {condition.status} for {lasted} ({tolerated} are tolerated)"
            ": the node is replaced, its pods are deleted at once"
        )
        for obj in (node, claim):
            self._context.recorder.publish(obj, "Warning", "NodeRepair", message, dedupe=[obj.metadata.uid])
        self._repaired.labels(
            snake_case(condition.type),
            meta.get(known.NODEPOOL, ""),
            meta.get(known.CAPACITY_TYPE, ""),
            claim.status.image_id,
        ).inc()

    async def _end_grace(self, claim: NodeClaim) -> NodeClaim:
        """Write down that the claim's grace period is over now, unless it was over before."""
        now = self._context.clock.now()
        deadline = claim.metadata.annotations.get(known.TERMINATION_TIMESTAMP)
        if deadline is not None and is_past(deadline, now):
            return claim
        note = {known.TERMINATION_TIMESTAMP: format_time(now)}
        return await self._context.client.patch(
            NodeClaim, claim.name, merge({"metadata": {"annotations": note, "uid": claim.metadata.uid}})
        )


def worst(node: Node, policies: Sequence[RepairPolicy]) -> Ailment | None:
    """Return the ailment of `node` that is due first; None when it is well."""
    return min(_ailments(node, policies), key=lambda a: (a.due, a.condition.type), default=None)


def is_counted(node: Node, policies: Sequence[RepairPolicy], now: float) -> bool:
    """Tell whether `node` counts as unhealthy when it is asked whether its pool is."""
    return any(ailment.counts_from <= now for ailment in _ailments(node, policies))


def _ailments(node: Node, policies: Sequence[RepairPolicy]) -> list[Ailment]:
    return [
        Ailment(condition, policy, _since(node, condition))
        for policy in policies
        for condition in node.status.conditions
        if (condition.type, condition.status) == (policy.condition_type, policy.condition_status)
    ]


def _since(node: Node, condition: Condition) -> float:
    """Return since when a condition has its status; it cannot be longer than there is the node."""
    since = condition.last_transition_time or node.metadata.creation_timestamp
    return parse_time(since) if since else 0.0


def is_past(deadline: str, now: float) -> bool:
    """Tell whether an RFC 3339 time is over; one that nobody can read is not."""
    try:
        return parse_time(deadline) <= now
    except ValueError:
        return False


def snake_case(name: str) -> str:
    """Return `KernelReady` as `kernel_ready`, upstream's way."""
    apart = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", apart).lower()


def _with_other_conditions(change: Change[Node]) -> Iterable[str]:
    """Return the node unless its conditions are the same, heartbeats aside."""
    node, old = change.object, change.old
    if change.type == "DELETED" or (old is not None and _states(old) == _states(node)):
        return []
    return [node.name]


def _states(node: Node) -> list[tuple[str, str, str | None]]:
    return sorted((c.type, c.status, c.last_transition_time) for c in node.status.conditions)
