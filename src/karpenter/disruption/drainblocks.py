"""Why a drain waits, as data: for each pod or volume in the way what holds it, and what would help; pure.

A drain that cannot finish looks like one that is merely slow. What tells them apart is arithmetic: whether a
budget has no disruption to spare now, or never will have.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from karpenter.apis import labels
from karpenter.apis.conditions import get
from karpenter.apis.core import Node, Pod
from karpenter.apis.workloads import PodDisruptionBudget, VolumeAttachment
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import format_time, parse_time
from karpenter.model import pods as podlib
from karpenter.model.pdbs import PdbLimits, answer, is_fresh

BlockKind = Literal[
    "pdbNever",
    "severalPdbs",
    "doNotDisrupt",
    "surge",
    "pdbNotNow",
    "finalizer",
    "kubeletGone",
    "slowEnd",
    "volumeAttached",
]

KINDS: tuple[BlockKind, ...] = (
    *("pdbNever", "severalPdbs", "doNotDisrupt", "surge", "pdbNotNow"),
    *("finalizer", "kubeletGone", "slowEnd", "volumeAttached"),
)
"""All of them: the values of a metric's label."""

LATE_SECONDS = 5.0
"""A pod that should have ended this long ago is late."""
LONG_GRACE_SECONDS = 60.0
"""A pod with more grace than this is worth naming while it ends."""

_SHOWN_PODS = 3
_SHOWN_BLOCKS = 3


class DrainBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that keeps a node from being drained."""

    pod: str
    """`namespace/name`; empty for a volume whose pod is not known."""
    kind: BlockKind
    message: str
    """What holds it, with figures; without the pod's name."""
    remedy: str
    """The smallest change that would help; empty when waiting does."""
    permanent: bool
    """Waiting alone will not end it."""


def drain_blocks(
    pods: Iterable[Pod],
    limits: PdbLimits,
    now: float,
    *,
    node: Node | None = None,
    deadline: float | None = None,
) -> tuple[DrainBlock, ...]:
    """Return what keeps a node's `pods` from leaving it: what waiting will not end first, then by pod.

    Pods that are merely on their way out are no block. `node` tells whether its kubelet still reports. With a
    `deadline` (epoch seconds) nothing is permanent: past it pods are deleted.
    """
    found: list[DrainBlock] = []
    for pod in pods:
        if not podlib.is_waiting_eviction(pod, now):
            continue
        block = ending_block(pod, now, node) if pod.deleting else eviction_block(pod, limits, now)
        if block is not None:
            found.append(block)
    return in_order(found, deadline=deadline)


def in_order(blocks: Iterable[DrainBlock], *, deadline: float | None = None) -> tuple[DrainBlock, ...]:
    """Return `blocks` as `drain_blocks` would: what waiting will not end first, nothing with a `deadline`."""
    if deadline is not None:
        blocks = [msgspec.structs.replace(block, permanent=False) for block in blocks]
    return tuple(sorted(blocks, key=lambda b: (not b.permanent, KINDS.index(b.kind), b.pod)))


def eviction_block(pod: Pod, limits: PdbLimits, now: float) -> DrainBlock | None:
    """Return what keeps a running pod from being evicted at `now`; None when nothing seems to."""
    if podlib.do_not_disrupt_active(pod, now):
        return protection(pod)
    covering = limits.matching(pod)
    if len(covering) > 1 and podlib.is_active(pod):
        names = ", ".join(pdb.key for pdb in covering)
        return DrainBlock(
            pod=pod.key,
            kind="severalPdbs",
            message=f"PodDisruptionBudgets {names} cover it, and the Eviction API takes one",
            remedy=f"leave one of the {len(covering)} over the pod",
            permanent=True,
        )
    for pdb in covering:
        said = answer(pdb, pod)
        if said == "never":
            return DrainBlock(
                pod=pod.key,
                kind="pdbNever",
                message=f"PodDisruptionBudget {pdb.key}: {rule(pdb)} can never allow an eviction",
                remedy=way_out(pdb) + _surge(pod),
                permanent=True,
            )
        if said == "notNow":
            return _not_now(pod, pdb)
    return None


def ending_block(pod: Pod, now: float, node: Node | None = None) -> DrainBlock | None:
    """Return what keeps a terminating pod from being gone; None while it just takes its short grace."""
    if pod.metadata.deletion_timestamp is None:
        return None
    ends = parse_time(pod.metadata.deletion_timestamp)
    moment = format_time(ends)
    given_up = f"the drain goes on without it at {format_time(ends + podlib.STUCK_TERMINATING_SECONDS)}"
    if now < ends + LATE_SECONDS:
        grace = pod.metadata.deletion_grace_period_seconds or 0
        if grace <= LONG_GRACE_SECONDS:
            return None
        return _ending(pod, "slowEnd", f"is ending and has until {moment} ({grace} s of grace)", "")
    if pod.metadata.finalizers:
        names = ", ".join(pod.metadata.finalizers)
        text = f"should have ended at {moment}, but its finalizers ({names}) keep it; {given_up}"
        return _ending(pod, "finalizer", text, f"see why whoever owns {names} does not remove it")
    ready = get(node.status.conditions, "Ready") if node is not None else None
    if node is not None and (ready is None or ready.status != "True"):
        since = f" since {ready.last_transition_time}" if ready and ready.last_transition_time else ""
        text = f"should have ended at {moment}, but the kubelet of {node.name} is not ready{since}"
        remedy = "end the machine if it is lost: its Node then goes without a drain"
        return _ending(pod, "kubeletGone", f"{text}; {given_up}", remedy)
    return _ending(pod, "slowEnd", f"should have ended at {moment} and has not; {given_up}", "")


def volume_blocks(attachments: Iterable[VolumeAttachment]) -> tuple[DrainBlock, ...]:
    """Return the volumes a drained node still has attached, by name of the attachment."""
    return tuple(
        DrainBlock(
            pod="",
            kind="volumeAttached",
            message=f"VolumeAttachment {attachment.name} still attaches PersistentVolume "
            f"{attachment.spec.source.persistent_volume_name or 'of its own'}",
            remedy=f"see why the attacher {attachment.spec.attacher} does not detach it",
            permanent=False,
        )
        for attachment in sorted(attachments, key=lambda a: a.name)
    )


def in_words(blocks: Sequence[DrainBlock], deadline: float | None = None) -> str:
    """Return `blocks` as one line, each cause once with the pods it holds; empty when there are none."""
    causes: dict[tuple[str, str], list[str]] = {}
    for block in blocks:
        causes.setdefault((block.message, block.remedy), []).append(block.pod)
    lines = [_cause(message, remedy, pods) for (message, remedy), pods in causes.items()]
    text = ". ".join(lines[:_SHOWN_BLOCKS])
    if len(lines) > _SHOWN_BLOCKS:
        text += f". And {len(lines) - _SHOWN_BLOCKS} more"
    if text and deadline is not None:
        text += f". Whatever is left is deleted in time for {format_time(deadline)}"
    return text


def _cause(message: str, remedy: str, pods: list[str]) -> str:
    named = [pod for pod in pods if pod]
    shown = ", ".join(named[:_SHOWN_PODS])
    if len(named) > _SHOWN_PODS:
        shown += f" and {len(named) - _SHOWN_PODS} more"
    subject = f"pod{'s' if len(named) > 1 else ''} {shown}: " if named else ""
    return f"{subject}{message}" + (f"; {remedy}" if remedy else "")


def protection(pod: Pod) -> DrainBlock:
    """Return the block of a do-not-disrupt pod, with how long it holds."""
    text = pod.metadata.annotations[labels.DO_NOT_DISRUPT]
    if text == "true":
        until, remedy = "for as long as it runs", "remove the annotation"
    elif pod.status.start_time is None:
        until, remedy = f"for {text} from its start, and it has not started", ""
    else:
        end = parse_time(pod.status.start_time) + parse_duration(text)
        until, remedy = f"until {format_time(end)} ({text} from its start)", ""
    return DrainBlock(
        pod=pod.key,
        kind="doNotDisrupt",
        message=f'annotation "{labels.DO_NOT_DISRUPT}" protects it {until}',
        remedy=remedy,
        permanent=text == "true",
    )


def _not_now(pod: Pod, pdb: PodDisruptionBudget) -> DrainBlock:
    status = pdb.status
    if not is_fresh(pdb):
        why, remedy = "its status does not tell of its latest change yet", ""
    else:
        short = status.desired_healthy + 1 - status.current_healthy
        why = (
            f"{status.current_healthy} of {status.expected_pods} healthy, "
            f"{status.desired_healthy} must stay: no eviction now"
        )
        remedy = f"{short} more of its pods must become Ready" if short > 0 else ""
        if not status.current_healthy and pdb.spec.unhealthy_pod_eviction_policy != "AlwaysAllow":
            remedy += ", or unhealthyPodEvictionPolicy: AlwaysAllow lets unready ones go"
    message = f"PodDisruptionBudget {pdb.key}: {rule(pdb)}: {why}"
    return DrainBlock(pod=pod.key, kind="pdbNotNow", message=message, remedy=remedy, permanent=False)


def rule(pdb: PodDisruptionBudget) -> str:
    """Return the budget's own words, and over how many pods it counts."""
    spec, count = pdb.spec, pdb.status.expected_pods
    if spec.min_available is None:
        text = "no rule" if spec.max_unavailable is None else f"maxUnavailable {spec.max_unavailable}"
    else:
        text = f"minAvailable {spec.min_available}"
    return f"{text} of {count} pod{'' if count == 1 else 's'}" if count else text


def way_out(pdb: PodDisruptionBudget) -> str:
    """Return the smallest changes after which a budget that never allows anything would."""
    least = pdb.spec.min_available
    if least is None:
        return "set maxUnavailable 1"
    if isinstance(least, str) and least.endswith("%"):
        if least == "100%":
            return "set maxUnavailable 1"
        part = float(least[:-1])
        enough = next((n for n in range(1, 101) if -(-part * n // 100) < n), None)
        return f"raise replicas to {enough} or set maxUnavailable 1" if enough else ""
    return f"raise replicas to {pdb.status.desired_healthy + 1} or set maxUnavailable 1"


def _surge(pod: Pod) -> str:
    """Return what else would help a pod whose workload may have rollouts."""
    mine = any(owner.kind == "ReplicaSet" for owner in pod.metadata.owner_references)
    if not mine or podlib.asks_for_surge(pod):
        return ""
    return f', or annotate its template {labels.SURGE}: "true"'


def _ending(pod: Pod, kind: BlockKind, message: str, remedy: str) -> DrainBlock:
    return DrainBlock(pod=pod.key, kind=kind, message=message, remedy=remedy, permanent=False)
