"""What NodeClaims remember of the workloads that consolidation has moved to them."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from karpenter.apis.annotations import MOVED_FROM
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.model.pods import pod_key
from karpenter.model.snapshot import NodeView


class Moved(msgspec.Struct, frozen=True, array_like=True, order=True):
    """That pods of a workload were moved from an instance type."""

    at: float
    """When they last were, epoch seconds."""
    pods: int
    """How many the workload had then."""


Memory = dict[str, dict[str, Moved]]
"""Moves by workload (`workload_of`) and the instance type that was left."""


def workload_of(pod: Pod) -> str:
    """Return what a pod belongs to: the uid of its controller; without one its own key."""
    owners = pod.metadata.owner_references
    return next((owner.uid for owner in owners if owner.controller), pod_key(pod))


def memory_of(claim: NodeClaim | None) -> Memory:
    """Return what a claim remembers; nothing when what it says makes no sense."""
    text = claim.metadata.annotations.get(MOVED_FROM) if claim is not None else None
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=Memory)
    except msgspec.MsgspecError:
        return {}


def gathered(nodes: Iterable[NodeView]) -> Memory:
    """Return what all `nodes` remember."""
    return merged(memory_of(node.claim) for node in nodes)


def merged(memories: Iterable[Mapping[str, Mapping[str, Moved]]]) -> Memory:
    """Return all that is remembered, of the same move the latest."""
    found: Memory = {}
    for memory in memories:
        for workload, types in memory.items():
            known = found.setdefault(workload, {})
            for name, moved in types.items():
                known[name] = max(moved, known.get(name, moved))
    return found


def render(memory: Memory) -> str:
    """Return the annotation's text."""
    return msgspec.json.encode(memory, order="sorted").decode()


def remembering(node: NodeView, memory: Memory) -> NodeView:
    """Return `node` with what it has to remember."""
    if not memory or node.claim is None:
        return node
    metadata = node.claim.metadata
    noted = replace(metadata, annotations={**metadata.annotations, MOVED_FROM: render(memory)})
    return replace(node, claim=replace(node.claim, metadata=noted))
