"""What forbids every disruption of a node: upstream's reasons in its order and words, and the ways out."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import format_time, parse_time
from karpenter.disruption.drainblocks import eviction_block
from karpenter.disruption.verdicts import Code
from karpenter.model import pods as podlib
from karpenter.model.pdbs import PdbLimits
from karpenter.model.snapshot import NodeView


class Obstacle(NamedTuple):
    """Why a node may not be disrupted."""

    code: Code
    message: str
    remedy: str = ""


def of_node(
    node: NodeView,
    pools: Mapping[str, NodePool],
    listed: Mapping[str, Collection[str]],
    queued: Collection[str],
    now: float,
) -> Obstacle | None:
    """Return the first thing about the node itself that keeps it from being disrupted; None: nothing does.

    `listed` are the instance types of each pool, by its name.
    """
    if node.provider_id and node.provider_id in queued:
        return Obstacle("queued", "Is being disrupted already")
    if node.claim is None:
        return Obstacle("noClaim", "Node isn't managed by karpenter")
    if node.node is None:
        return Obstacle(
            "noNode", "Nodeclaim does not have an associated node", "wait until it has registered"
        )
    if not node.initialized:
        return Obstacle(
            "notInitialized",
            "Node isn't initialized",
            f"see what condition Initialized of nodeclaim/{node.claim.name} waits for",
        )
    if node.marked_for_deletion:
        return Obstacle("deleting", "Node is deleting or marked for deletion")
    if node.nominated_until > now:
        until = format_time(node.nominated_until)
        return Obstacle("nominated", "Node is nominated for a pending pod", f"wait until {until}")
    return _protected(node, now) or _without_pool(node, pools, listed)


def of_pods(pods: Iterable[Pod], limits: PdbLimits, now: float) -> Obstacle | None:
    """Return the first pod that objects to being moved, do-not-disrupt before budgets; None: none does."""
    for pod in pods:
        if not podlib.is_disruptable(pod, now):
            text = f'Pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
            return Obstacle("podDoNotDisrupt", text, _way_out(pod, limits, now))
    for pod in pods:
        why = limits.blocking(pod, now)
        if why:
            text = f"{why[0].upper()}{why[1:]} (Pod={pod.key})"
            return Obstacle("podDisruptionBudget", text, _way_out(pod, limits, now))
    return None


def stuck(pods: Iterable[Pod], limits: PdbLimits, now: float) -> frozenset[str]:
    """Return the keys of `pods` that nothing will move: do-not-disrupt, or a budget that never allows it."""
    return frozenset(
        podlib.pod_key(pod)
        for pod in pods
        if not podlib.is_disruptable(pod, now) or limits.fully_blocking(pod, now)
    )


def _protected(node: NodeView, now: float) -> Obstacle | None:
    """Tell whether an annotation protects the node: `true`, or a duration since its claim was created."""
    for kind, owner in (("node", node.node), ("nodeclaim", node.claim)):
        value = owner.metadata.annotations.get(labels.DO_NOT_DISRUPT) if owner is not None else None
        if owner is None or value is None:
            continue
        remedy = f"remove annotation {labels.DO_NOT_DISRUPT} from {kind}/{owner.name}"
        if value != "true":
            until = _end(value, (node.claim or owner).metadata.creation_timestamp)
            if until is None or until <= now:
                continue
            remedy += f", or wait until {format_time(until)}"
        text = f'Disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
        return Obstacle("doNotDisrupt", text, remedy)
    return None


def _without_pool(
    node: NodeView, pools: Mapping[str, NodePool], listed: Mapping[str, Collection[str]]
) -> Obstacle | None:
    name = node.nodepool
    if not name:
        text = f"Node doesn't have required label (label={labels.NODEPOOL})"
        return Obstacle("noNodePool", text, f"give node/{node.name} its label {labels.NODEPOOL} back")
    if name not in pools:
        text = f"NodePool not found (NodePool={name})"
        return Obstacle("noNodePool", text, f"create nodepool/{name} again, or delete node/{node.name}")
    if not listed.get(name):
        text = f"NodePool has no instance types now (NodePool={name})"
        return Obstacle("noInstanceTypes", text, f"see the conditions of nodepool/{name} and its node class")
    return None


def _end(value: str, since: str | None) -> float | None:
    """Return when a protection for the duration `value` since a time ends; None when it is none."""
    try:
        seconds = parse_duration(value)
    except ValueError:
        return None
    return parse_time(since) + seconds if since and seconds > 0 else None


def _way_out(pod: Pod, limits: PdbLimits, now: float) -> str:
    """Return what would let the pod go, and why it does not, as for a drain; empty when that is not known."""
    block = eviction_block(pod, limits, now)
    if block is None:
        return ""
    return f"{block.remedy or 'wait'} (pod {pod.key}: {block.message})"
