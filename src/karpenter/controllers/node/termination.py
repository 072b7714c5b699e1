"""The end of a Node: tainted, drained, its volumes detached, its machine gone, then the object.

The Node carries our finalizer, so that nothing is forgotten whoever deletes it. Every step looks at how
things are; after a restart it goes on where it was.
"""

from collections.abc import Iterable

import structlog

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node, Pod, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import Condition, ConditionStatus
from karpenter.apis.workloads import VolumeAttachment
from karpenter.base.timestamps import parse_time
from karpenter.cloudprovider import NodeClaimNotFound
from karpenter.controllers.conditions import document as conditions_document
from karpenter.controllers.conditions import with_condition
from karpenter.controllers.context import Context
from karpenter.controllers.node.blockers import Blockers
from karpenter.controllers.node.drain import next_look, plan_drain
from karpenter.controllers.node.eviction import EvictionQueue
from karpenter.controllers.node.surge import Surges
from karpenter.disruption.drainblocks import in_words, volume_blocks
from karpenter.kube.client import resource_of
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge, strategic
from karpenter.model import pods as podlib
from karpenter.runtime import Backoff, Controller, Requeue, Result

log = structlog.get_logger()

_MIN_DRAIN_SECONDS = 5.0  # the scheduler may bind a pod in the moment before it sees the taint
_POLL_SECONDS = 1.0
_IDLE_SECONDS = 10.0  # what changes by itself is heard of at once; this is for what passes unheard
_SURGE_SECONDS = 2.0  # while rollouts are under way, of which nobody tells
_INSTANCE_POLL_SECONDS = 5.0
_DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")
_SHOWN = 5

_WAIT = Result(requeue_after=_POLL_SECONDS)

_Outcome = tuple[NodeClaim | None, Result | None]
"""What a step leaves: the claim as it then is, and when to come again (None: the next step may begin)."""


class Termination:
    """Finalizes Nodes that are being deleted."""

    def __init__(
        self, context: Context, evictions: EvictionQueue, blockers: Blockers, surges: Surges
    ) -> None:
        self._context = context
        self._evictions = evictions
        self._blockers = blockers
        self._surges = surges
        self._attachments = context.cache.informer(VolumeAttachment)
        self._attachments.add_index("nodeName", lambda attachment: (attachment.spec.node_name,))
        self._nodes = context.cache.informer(Node)
        metrics = context.metrics
        self._drained = metrics.counter(
            "karpenter_nodes_drained_total", "Nodes whose pods have all gone.", ["nodepool"]
        )
        self._terminated = metrics.counter(
            "karpenter_nodes_terminated_total", "Nodes removed.", ["nodepool", "zone"]
        )
        self._seconds = metrics.summary(
            "karpenter_nodes_termination_duration_seconds", "From deletion to removal.", ["nodepool"]
        )
        self._lifetime = metrics.histogram(
            "karpenter_nodes_lifetime_duration_seconds",
            "Age of nodes when they were removed.",
            ["nodepool"],
            buckets=_LIFETIME_BUCKETS,
        )
        self.controller = Controller(
            "node.termination",
            self._reconcile,
            clock=context.clock,
            rng=context.rng,
            metrics=metrics,
            concurrency=context.settings.concurrency(100, 5000),
            backoff=Backoff(0.1, 10.0),
        )
        self.controller.watch(self._nodes, _deleting)
        self.controller.watch(context.cache.informer(Pod), self._freed)
        self.controller.watch(self._attachments, self._freed)
        self.controller.watch(context.cache.informer(NodeClaim), self._nodes_of)

    def _nodes_of(self, change: Change[NodeClaim]) -> Iterable[str]:
        """Name the nodes whose claim is going: its deadline may be another by now."""
        if not change.object.deleting:
            return ()
        nodes = self._context.cluster.nodes_for(change.object.status.provider_id)
        return [node.name for node in nodes if node.deleting]

    def _freed(self, change: Change[Pod] | Change[VolumeAttachment]) -> Iterable[str]:
        """Name the node whose drain a pod or a volume may have held: it has gone, or changed."""
        name = change.object.spec.node_name
        node = self._nodes.get(name) if name else None
        return (name,) if node is not None and node.deleting else ()

    async def _reconcile(self, name: str) -> Result:
        node = self._nodes.get(name)
        if node is None or not node.deleting or labels.TERMINATION_FINALIZER not in node.metadata.finalizers:
            return Result()
        claim = self._claim_of(node)
        if claim is None and not self._is_managed(node):
            return Result()
        try:
            return await self._finalize(node, claim)
        except NotFound as error:
            raise Requeue from error  # node or claim went meanwhile; the cache will tell which

    async def _finalize(self, node: Node, claim: NodeClaim | None) -> Result:
        if claim is not None and not claim.deleting:
            await self._delete_claim(claim)
        if await self._already_gone(node):
            return await self._finish(node)
        deadline = self._deadline(node, claim)
        node = await self._cordon(node)
        for step in (self._await_drain, self._await_volumes, self._await_instance):
            claim, result = await step(node, claim, deadline)
            if result is not None:
                return result
        return await self._finish(node)

    def _claim_of(self, node: Node) -> NodeClaim | None:
        """Return the node's claim; None when there is none, or several, and so none to go by."""
        claims = self._context.cluster.claims_for(node.spec.provider_id)
        return claims[0] if len(claims) == 1 else None

    def _is_managed(self, node: Node) -> bool:
        """Tell whether the node is of a node class of our cloud, rather than another operator's."""
        kinds = [resource_of(kind) for kind in self._context.provider.node_classes]
        return any(labels.nodeclass_label(r.group, r.kind) in node.metadata.labels for r in kinds)

    async def _delete_claim(self, claim: NodeClaim) -> None:
        try:
            await self._context.client.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
        except NotFound:
            log.debug("nodeclaim is already gone", NodeClaim=claim.name)

    async def _already_gone(self, node: Node) -> bool:
        """Tell whether an unready node's machine is gone: then there is nothing to drain."""
        if conditions.is_true(node.status.conditions, "Ready"):
            return False
        try:
            await self._context.provider.get(node.spec.provider_id)
        except NodeClaimNotFound:
            return True
        return False

    def _deadline(self, node: Node, claim: NodeClaim | None) -> float | None:
        text = claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP) if claim else None
        if claim is None or text is None:
            return None
        try:
            deadline = parse_time(text)
        except ValueError:
            self._context.recorder.publish(
                node,
                "Warning",
                "InvalidTerminationTimestamp",
                f"NodeClaim {claim.name}: annotation {labels.TERMINATION_TIMESTAMP} has value {text!r} "
                "and is ignored: want RFC 3339, such as 2026-01-31T12:00:00Z",
                dedupe=(node.name,),
            )
            return None
        self._context.recorder.publish(
            node,
            "Warning",
            "TerminationGracePeriodExpiring",
            f"All pods will be deleted by {text}",
            dedupe=(node.name,),
        )
        return deadline

    async def _cordon(self, node: Node) -> Node:
        """Keep new pods and load balancers' traffic away."""
        kept = [taint for taint in node.spec.taints if taint.key != _DISRUPTED.key]
        tainted = any(taint.matches(_DISRUPTED) for taint in node.spec.taints)
        excluded = node.metadata.labels.get(labels.EXCLUDE_FROM_LOAD_BALANCERS) == "karpenter"
        if tainted and excluded and len(kept) == len(node.spec.taints) - 1:
            return node
        document = {
            "metadata": {"labels": {labels.EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}},
            "spec": {"taints": [*kept, _DISRUPTED]},
        }
        patch = merge(document, resource_version=node.metadata.resource_version)
        return await self._context.client.patch(Node, node.name, patch)

    async def _await_drain(self, node: Node, claim: NodeClaim | None, deadline: float | None) -> _Outcome:
        now = self._context.clock.now()
        drain = plan_drain(self._context.cluster.pods_on(node.name), now, deadline)
        held = await self._surges.hold(node, drain.evict, deadline)
        blocks = self._blockers.of(node, drain.waiting, deadline, held.blocks)
        self._blockers.note(node, blocks)
        drained = conditions.get(claim.status.conditions, "Drained") if claim is not None else None
        if claim is not None and (drained is None or drained.status != "True"):
            claim = await self._tell(node, claim, "Drained", "Draining", in_words(blocks, deadline))
            drained = conditions.get(claim.status.conditions, "Drained")
        for pod in held.evict:
            self._evictions.add(pod, deadline)
        if drain.waiting:
            self._blockers.tell(node, len(drain.waiting), blocks, deadline)
            most = _SURGE_SECONDS if held.blocks else _IDLE_SECONDS
            return claim, Result(next_look(drain.waiting, now, deadline, least=_POLL_SECONDS, most=most))
        if claim is None or (drained is not None and drained.status == "True"):
            return claim, None
        since = _since(drained)
        if since is not None and now - since < _MIN_DRAIN_SECONDS:
            return claim, _WAIT
        claim = await self._set(claim, "Drained", "True")
        self._drained.labels(node.metadata.labels.get(labels.NODEPOOL, "")).inc()
        return claim, None

    async def _await_volumes(self, node: Node, claim: NodeClaim | None, deadline: float | None) -> _Outcome:
        pending = self._pending_volumes(node)
        now = self._context.clock.now()
        if not pending or (deadline is not None and now > deadline):
            self._blockers.forget(node.name)
            if claim is None:
                return None, None
            if not pending:
                return await self._set(claim, "VolumesDetached", "True"), None
            return await self._set(claim, "VolumesDetached", "False", "TerminationGracePeriodElapsed"), None
        blocks = volume_blocks(pending)
        self._blockers.note(node, blocks)
        names = [attachment.name for attachment in pending]
        more = f" and {len(names) - _SHOWN} other(s)" if len(names) > _SHOWN else ""
        self._context.recorder.publish(
            node,
            "Normal",
            "AwaitingVolumeDetachment",
            f"Awaiting deletion of bound volumeattachments ({', '.join(names[:_SHOWN])}{more})",
            dedupe=(node.name,),
        )
        if claim is not None:
            words = in_words(blocks)
            claim = await self._tell(node, claim, "VolumesDetached", "AwaitingVolumeDetachment", words)
        left = _IDLE_SECONDS if deadline is None else max(_POLL_SECONDS, deadline - now)
        return claim, Result(min(left, _IDLE_SECONDS))

    async def _tell(self, node: Node, claim: NodeClaim, kind: str, reason: str, words: str) -> NodeClaim:
        """Let the claim say that a condition is still to come, and what holds it."""
        known = conditions.get(claim.status.conditions, kind)
        there = known is not None and (known.status, known.reason) == ("Unknown", reason)
        if known is not None and there and known.message == words:
            return claim
        if known is not None and there and known.message and not self._blockers.may_rewrite(node):
            return claim
        claim = await self._set(claim, kind, "Unknown", reason, words)
        self._blockers.written(node)
        return claim

    def _pending_volumes(self, node: Node) -> list[VolumeAttachment]:
        """Return the attachments to wait for: not those of pods that the drain leaves alone."""
        now = self._context.clock.now()
        staying = [
            pod for pod in self._context.cluster.pods_on(node.name) if not podlib.is_drainable(pod, now)
        ]
        claims = self._context.cluster.volume_claims()
        used = {key for pod in staying for key in _volume_claims_of(pod)}
        kept = {claims[key].spec.volume_name for key in used if key in claims}
        return [
            attachment
            for attachment in self._attachments.by_index("nodeName", node.name)
            if (volume := attachment.spec.source.persistent_volume_name) and volume not in kept
        ]

    async def _await_instance(self, node: Node, claim: NodeClaim | None, deadline: float | None) -> _Outcome:
        if claim is None:
            return None, None
        gone = False
        try:
            await self._context.provider.delete(claim)
        except NodeClaimNotFound:
            gone = True
        claim = await self._set(claim, "InstanceTerminating", "True")
        return claim, None if gone else Result(requeue_after=_INSTANCE_POLL_SECONDS)

    async def _set(
        self, claim: NodeClaim, kind: str, status: ConditionStatus, reason: str = "", message: str = ""
    ) -> NodeClaim:
        """Set one condition of the claim, if it is not so already, and return the claim as it then is."""
        known = conditions.get(claim.status.conditions, kind)
        said = (status, reason or kind, message)
        if known is not None and (known.status, known.reason, known.message) == said:
            return claim
        changed = with_condition(claim, kind, status, said[1], message, now=self._context.clock.now())
        patch = merge(
            {"status": {"conditions": conditions_document(changed.status.conditions)}},
            resource_version=claim.metadata.resource_version,
        )
        return await self._context.client.patch(NodeClaim, claim.name, patch, subresource="status")

    async def _finish(self, node: Node) -> Result:
        """Let the Node object go."""
        self._blockers.forget(node.name)
        document = {
            "metadata": {
                "$deleteFromPrimitiveList/finalizers": [labels.TERMINATION_FINALIZER],
                "uid": node.metadata.uid,
            }
        }
        try:
            await self._context.client.patch(Node, node.name, strategic(document))
        except NotFound:
            return Result()
        pool = node.metadata.labels.get(labels.NODEPOOL, "")
        now = self._context.clock.now()
        self._terminated.labels(pool, node.metadata.labels.get(labels.ZONE, "")).inc()
        if node.metadata.deletion_timestamp and node.metadata.creation_timestamp:
            self._seconds.labels(pool).observe(max(0.0, now - parse_time(node.metadata.deletion_timestamp)))
            self._lifetime.labels(pool).observe(max(0.0, now - parse_time(node.metadata.creation_timestamp)))
        log.info("deleted node", Node=node.name)
        return Result()


def _volume_claims_of(pod: Pod) -> Iterable[str]:
    """Name the PersistentVolumeClaims that a pod uses, those made for its ephemeral volumes too."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            yield f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral:
            yield f"{pod.namespace}/{pod.name}-{volume.name}"


def _since(condition: Condition | None) -> float | None:
    if condition is None or condition.last_transition_time is None:
        return None
    return parse_time(condition.last_transition_time)


def _deleting(change: Change[Node]) -> Iterable[str]:
    node = change.object
    ours = labels.TERMINATION_FINALIZER in node.metadata.finalizers
    return (node.name,) if change.type != "DELETED" and node.deleting and ours else ()


_LIFETIME_BUCKETS = tuple(
    minutes * 60.0
    for minutes in (
        *(15, 30, 45, 60, 120, 240, 360, 480, 600, 720, 960, 1200, 1440, 2880, 4320, 7200),
        *(14400, 21600, 28800, 36000, 43200),
    )
)
