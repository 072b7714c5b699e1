"""Tying the Node that joined to its claim, and letting pods onto it."""

from typing import Any

import msgspec
import structlog

from karpenter.apis import labels as known
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import OwnerReference
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.nominations import Nominations
from karpenter.controllers.nodeclaim.step import Step
from karpenter.kube.patch import merge
from karpenter.model import taints
from karpenter.state.reservations import PLANNED_PODS

log = structlog.get_logger()

TAINT_MISSING = "missing taint prevents registration-related race conditions on karpenter-managed nodes"


class Registration:
    """The second step."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nominations = Nominations(context)

    async def run(self, claim: NodeClaim) -> Step:
        """Register once exactly one Node has the claim's provider id; duplicates that go are forgiven."""
        now = self._context.clock.now()
        if is_true(claim.status.conditions, "Registered"):
            return Step(conditions.refreshed(claim, "Registered", now=now))
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        if not nodes:
            return Step(
                conditions.with_condition(
                    claim,
                    "Registered",
                    "Unknown",
                    "NodeNotFound",
                    "Node not registered with cluster",
                    now=now,
                )
            )
        if len(nodes) > 1:
            names = ", ".join(node.name for node in nodes)
            return Step(
                conditions.with_condition(
                    claim,
                    "Registered",
                    "False",
                    "MultipleNodesFound",
                    f"Invariant violated, matched multiple nodes: {names}",
                    now=now,
                )
            )
        node = nodes[0]
        if known.REGISTERED not in node.metadata.labels and not any(
            t.matches(taints.UNREGISTERED) for t in node.spec.taints
        ):
            log.error(TAINT_MISSING, NodeClaim=claim.name, Node=node.name)
            self._context.recorder.publish(
                claim,
                "Warning",
                "UnregisteredTaintMissing",
                f"Missing {known.UNREGISTERED_TAINT} taint which prevents registration-related race "
                "conditions on Karpenter-managed nodes",
                dedupe=[claim.metadata.uid],
            )
        await self._nominations.promise(claim, node)
        await self._sync(claim, node)
        status = msgspec.structs.replace(claim.status, node_name=node.name)
        claim = msgspec.structs.replace(claim, status=status)
        return Step(conditions.with_condition(claim, "Registered", "True", now=self._context.clock.now()))

    async def _sync(self, claim: NodeClaim, node: Node) -> None:
        """Write onto the Node what the claim says, and take the unregistered taint off, all in one patch."""
        changes = registered_changes(claim, node)
        if changes:
            patch = merge(changes, resource_version=node.metadata.resource_version)
            await self._context.client.patch(Node, node.name, patch)


def registered_changes(claim: NodeClaim, node: Node) -> dict[str, Any]:
    """Return the merge patch that makes `node` the registered node of `claim`; empty when it is."""
    meta = node.metadata
    metadata: dict[str, Any] = {}
    if known.TERMINATION_FINALIZER not in meta.finalizers:
        metadata["finalizers"] = [*meta.finalizers, known.TERMINATION_FINALIZER]
    if not any(o.uid == claim.metadata.uid for o in meta.owner_references):
        owners = [*meta.owner_references, _owner(claim)]
        metadata["ownerReferences"] = [msgspec.to_builtins(owner) for owner in owners]
    wanted = {**claim.metadata.labels, known.REGISTERED: "true"}
    if changed := {k: v for k, v in sorted(wanted.items()) if meta.labels.get(k) != v}:
        metadata["labels"] = changed
    notes = {k: v for k, v in claim.metadata.annotations.items() if k != PLANNED_PODS}
    if changed := {k: v for k, v in sorted(notes.items()) if meta.annotations.get(k) != v}:
        metadata["annotations"] = changed
    changes: dict[str, Any] = {"metadata": metadata} if metadata else {}
    merged = synced_taints(claim, node)
    if merged != node.spec.taints:
        changes["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in merged]}
    return changes


def synced_taints(claim: NodeClaim, node: Node) -> list[Taint]:
    """Return the taints of `node` once it is registered."""
    merged = list(node.spec.taints)
    if node.metadata.labels.get(known.DO_NOT_SYNC_TAINTS) != "true":
        merged = taints.merge(taints.merge(merged, claim.spec.taints), claim.spec.startup_taints)
    return [taint for taint in merged if not taint.matches(taints.UNREGISTERED)]


def _owner(claim: NodeClaim) -> OwnerReference:
    return OwnerReference(
        api_version=NodeClaim.resource.api_version,
        kind=NodeClaim.resource.kind,
        name=claim.name,
        uid=claim.metadata.uid,
        block_owner_deletion=True,
    )
