"""Tying the Node that joined to its claim, and letting pods onto it."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from karpenter.apis import labels as known
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import OwnerReference
from karpenter.cloudprovider import HookAnswer, RegistrationHook
from karpenter.controllers import conditions
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.nominations import Nominations
from karpenter.controllers.nodeclaim.step import Step, StepError
from karpenter.kube.patch import merge
from karpenter.model import taints
from karpenter.runtime import Requeue, Result
from karpenter.state.reservations import PLANNED_PODS

log = structlog.get_logger()

CAME_BACK = "registering again a node that was removed and came back"
TAINT_MISSING = "missing taint prevents registration-related race conditions on karpenter-managed nodes"


class Asked(NamedTuple):
    """What the cloud's hooks say of one node together."""

    claim: NodeClaim
    """With the labels and annotations they want it to have."""
    pending: list[str]
    """Names of hooks for which it must wait, in the cloud's order; empty: it may take pods."""
    again_after: float | None
    """Seconds until those are to be asked again, as far as they say."""
    errors: list[Exception]


class Registration:
    """The second step."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nominations = Nominations(context)
        self._hooks = tuple(context.provider.registration_hooks())

    async def run(self, claim: NodeClaim) -> Step:
        """Register once exactly one Node has the claim's provider id; duplicates that go are forgiven."""
        now = self._context.clock.now()
        if is_true(claim.status.conditions, "Registered"):
            claim = await self._welcome_back(claim)
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
        asked = await ask(self._hooks, claim, node)
        if asked.pending:
            return await self._wait_for(asked, node)
        claim = asked.claim
        await self._nominations.promise(claim, node)
        await self._sync(node, registered_changes(claim, node))
        status = msgspec.structs.replace(claim.status, node_name=node.name)
        claim = msgspec.structs.replace(claim, status=status)
        return Step(conditions.with_condition(claim, "Registered", "True", now=self._context.clock.now()))

    async def _welcome_back(self, claim: NodeClaim) -> NodeClaim:
        """Register a Node again whose object was removed by force, and which its kubelet made anew."""
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        if len(nodes) != 1 or nodes[0].deleting:
            return claim
        node = nodes[0]
        if not is_known(node):
            await self._sync(node, registered_changes(claim, node))  # a stale copy ends in a conflict here
            log.info(CAME_BACK, NodeClaim=claim.name, Node=node.name)
        if claim.status.node_name == node.name:
            return claim
        status = msgspec.structs.replace(claim.status, node_name=node.name)
        return msgspec.structs.replace(claim, status=status)

    async def _wait_for(self, asked: Asked, node: Node) -> Step:
        """Give the Node what its claim says, but for leave to take pods; say who has not given that."""
        await self._sync(node, synced_changes(asked.claim, node))
        claim = conditions.with_condition(
            asked.claim,
            "Registered",
            "Unknown",
            "RegistrationHookPending",
            ", ".join(asked.pending),
            now=self._context.clock.now(),
        )
        if asked.errors:
            raise StepError(claim, asked.errors[0]) from asked.errors[0]
        if asked.again_after is None:
            raise StepError(claim, Requeue(f"{claim.name} waits for {asked.pending}"))
        return Step(claim, Result(asked.again_after))

    async def _sync(self, node: Node, changes: dict[str, Any]) -> None:
        """Write onto the Node what the claim says, all in one patch."""
        if changes:
            patch = merge(changes, resource_version=node.metadata.resource_version)
            await self._context.client.patch(Node, node.name, patch)


async def ask(hooks: Sequence[RegistrationHook], claim: NodeClaim, node: Node) -> Asked:
    """Ask all hooks at the same time; what one of them raises does not keep the others from answering."""
    answers = await asyncio.gather(
        *(hook.on_registration(claim, node) for hook in hooks), return_exceptions=True
    )
    pending: list[str] = []
    errors: list[Exception] = []
    again: list[float] = []
    labels, notes = dict(claim.metadata.labels), dict(claim.metadata.annotations)
    for hook, answer in zip(hooks, answers, strict=True):
        if isinstance(answer, HookAnswer):
            labels.update(answer.labels)
            notes.update(answer.annotations)
            if answer.pending:
                pending.append(hook.name)
                again.extend([answer.again_after_seconds] if answer.again_after_seconds is not None else [])
        elif isinstance(answer, Exception):
            pending.append(hook.name)
            errors.append(answer)
        else:
            raise answer
    metadata = msgspec.structs.replace(claim.metadata, labels=labels, annotations=notes)
    claim = msgspec.structs.replace(claim, metadata=metadata)
    return Asked(claim, pending, min(again, default=None), errors)


def registered_changes(claim: NodeClaim, node: Node) -> dict[str, Any]:
    """Return the merge patch that makes `node` the registered node of `claim`; empty when it is."""
    allowed = [taint for taint in synced_taints(claim, node) if not taint.matches(taints.UNREGISTERED)]
    stages = [known.REGISTERED]
    if is_true(claim.status.conditions, "Initialized"):
        stages.append(known.INITIALIZED)
    return _changes(claim, node, dict.fromkeys(stages, "true"), allowed)


def synced_changes(claim: NodeClaim, node: Node) -> dict[str, Any]:
    """Return the merge patch that gives `node` what `claim` says while it must not take pods yet."""
    return _changes(claim, node, {}, synced_taints(claim, node))


def _changes(
    claim: NodeClaim, node: Node, labels: dict[str, str], wanted_taints: list[Taint]
) -> dict[str, Any]:
    meta = node.metadata
    metadata: dict[str, Any] = {}
    if known.TERMINATION_FINALIZER not in meta.finalizers:
        metadata["finalizers"] = [*meta.finalizers, known.TERMINATION_FINALIZER]
    if not any(o.uid == claim.metadata.uid for o in meta.owner_references):
        owners = [*meta.owner_references, _owner(claim)]
        metadata["ownerReferences"] = [msgspec.to_builtins(owner) for owner in owners]
    wanted = {**claim.metadata.labels, **labels}
    if changed := {k: v for k, v in sorted(wanted.items()) if meta.labels.get(k) != v}:
        metadata["labels"] = changed
    notes = {k: v for k, v in claim.metadata.annotations.items() if k != PLANNED_PODS}
    if changed := {k: v for k, v in sorted(notes.items()) if meta.annotations.get(k) != v}:
        metadata["annotations"] = changed
    changes: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if wanted_taints != node.spec.taints:
        changes["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in wanted_taints]}
    return changes


def synced_taints(claim: NodeClaim, node: Node) -> list[Taint]:
    """Return the taints of `node` with those of its claim.

    They are given once, along with our finalizer: what was taken off the node since stays off. A node that is
    past its start is not given the taints of starting again.
    """
    synced = known.TERMINATION_FINALIZER in node.metadata.finalizers
    if synced or node.metadata.labels.get(known.DO_NOT_SYNC_TAINTS) == "true":
        return list(node.spec.taints)
    merged = taints.merge(node.spec.taints, claim.spec.taints)
    if is_true(claim.status.conditions, "Initialized"):
        return merged
    return taints.merge(merged, claim.spec.startup_taints)


def is_known(node: Node) -> bool:
    """Tell whether a Node bears any mark of having been registered."""
    return known.REGISTERED in node.metadata.labels or known.TERMINATION_FINALIZER in node.metadata.finalizers


def _owner(claim: NodeClaim) -> OwnerReference:
    return OwnerReference(
        api_version=NodeClaim.resource.api_version,
        kind=NodeClaim.resource.kind,
        name=claim.name,
        uid=claim.metadata.uid,
        block_owner_deletion=True,
    )
