"""Workloads in the middle of a rollout: moving their pods would restart what is being restarted anyway.

Two revisions of a workload run side by side only while it is rolled out. Deployments and StatefulSets label
their pods with the revision, so that pods alone tell. A rollout that got stuck must not keep nodes for ever:
it counts until a while after its youngest pod was made.
"""

from collections.abc import Iterable, Mapping

from karpenter.apis.core import Pod
from karpenter.base.timestamps import parse_time
from karpenter.disruption.command import Command
from karpenter.disruption.verdicts import Verdict
from karpenter.model.pods import is_active, is_daemon
from karpenter.model.snapshot import Snapshot

STUCK_SECONDS = 15 * 60.0
"""How long after its youngest pod a rollout is waited for."""

_HASH = "pod-template-hash"
_REVISION = "controller-revision-hash"

Workload = tuple[str, str, str]
"""Namespace, kind, name."""


def objection(snapshot: Snapshot, command: Command) -> Verdict | None:
    """Return that a consolidation would move pods of a workload that is being rolled out; None if not."""
    if command.reason != "Underutilized":
        return None
    rolling = rollouts(_everyone(snapshot), snapshot.taken_at)
    for candidate in command.candidates:
        for pod in candidate.reschedulable:
            found = _revision(pod)
            if found is not None and found[0] in rolling:
                namespace, kind, name = found[0]
                return Verdict(
                    node=candidate.name,
                    method=command.method,
                    code="rollout",
                    message=f"{kind} {namespace}/{name} is being rolled out, and has pods here",
                    saving=command.savings,
                    remedy=f"wait until the rollout of {kind} {namespace}/{name} is done",
                )
    return None


def rollouts(pods: Iterable[Pod], now: float) -> frozenset[Workload]:
    """Return the workloads of which two revisions run, unless nothing has moved for a while."""
    revisions: dict[Workload, set[str]] = {}
    youngest: dict[Workload, float] = {}
    for pod in pods:
        found = _revision(pod) if is_active(pod) and not is_daemon(pod) else None
        if found is not None:
            workload, revision = found
            revisions.setdefault(workload, set()).add(revision)
            born = parse_time(pod.metadata.creation_timestamp) if pod.metadata.creation_timestamp else now
            youngest[workload] = max(born, youngest.get(workload, 0.0))
    return frozenset(
        workload
        for workload, seen in revisions.items()
        if len(seen) > 1 and now - youngest[workload] < STUCK_SECONDS
    )


def _everyone(snapshot: Snapshot) -> Iterable[Pod]:
    yield from snapshot.pending
    for node in snapshot.nodes:
        yield from node.pods


def _revision(pod: Pod) -> tuple[Workload, str] | None:
    """Return the workload that made a pod, and which revision of it."""
    labels: Mapping[str, str] = pod.metadata.labels
    for owner in pod.metadata.owner_references:
        if owner.kind == "ReplicaSet" and _HASH in labels:
            name = owner.name.removesuffix(f"-{labels[_HASH]}")
            return (pod.namespace, "Deployment", name), labels[_HASH]
        if owner.kind == "StatefulSet" and _REVISION in labels:
            return (pod.namespace, "StatefulSet", owner.name), labels[_REVISION]
    return None
