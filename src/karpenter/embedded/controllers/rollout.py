"""Deployments: one ReplicaSet per template, and the slow exchange of the old ones for the new.

`plan_rollout` decides everything from a Deployment and its ReplicaSets; the controller below carries it out.
A ReplicaSet is the new one when its template, without the hash label, equals the Deployment's.
"""

import hashlib
from typing import Any

import msgspec

from karpenter.apis.core import IntOrString
from karpenter.base.clock import format_time, parse_time
from karpenter.base.quantity import parse_quantity
from karpenter.embedded.controllers.kinds import FullDeployment, FullReplicaSet, WorkloadCondition
from karpenter.embedded.controllers.pods import canonical, decode, owner_reference

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
NOT_COPIED = (
    "kubectl.kubernetes.io/last-applied-configuration",
    *(REVISION, DESIRED, MAX_REPLICAS, "deployment.kubernetes.io/revision-history"),
)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class RolloutPlan(msgspec.Struct, frozen=True):
    """What to write for one Deployment."""

    create: dict[str, Any] | None = None  # the new ReplicaSet
    scale: list[tuple[str, int]] = []  # ReplicaSet and replicas
    annotate: list[tuple[str, dict[str, str]]] = []  # ReplicaSet and annotations
    delete: list[str] = []  # ReplicaSets beyond the history limit
    revision: str = ""
    status: dict[str, Any] = {}
    look_again: float | None = None  # seconds


def template_hash(template: dict[str, Any], salt: int = 0) -> str:
    """Return a short name part that depends on nothing but the template."""
    digest = hashlib.sha256(canonical(template) + (f"/{salt}".encode() if salt else b"")).digest()
    number = int.from_bytes(digest[:8], "big")
    letters = []
    for _ in range(10):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)


def scaled_value(value: IntOrString | None, total: int, default: IntOrString, *, up: bool) -> int:
    """Return an absolute count of a count or a percentage of `total`.

    Raises:
        ValueError: when the text is not a percentage.
    """
    chosen = default if value is None else value
    if isinstance(chosen, int):
        return chosen
    if not chosen.endswith("%"):
        raise ValueError(f"{chosen!r} is neither a count nor a percentage (want e.g. 1 or 25%)")
    part = parse_quantity(chosen[:-1]) * total / 100
    return -(-part.numerator // part.denominator) if up else part.numerator // part.denominator


def surge_and_unavailable(deployment: FullDeployment) -> tuple[int, int]:
    """Return maxSurge (rounded up) and maxUnavailable (rounded down) as counts; not both are zero."""
    spec = deployment.spec
    if spec.strategy.type == "Recreate":
        return 0, spec.replicas
    rolling = spec.strategy.rolling_update
    surge = scaled_value(rolling.max_surge if rolling else None, spec.replicas, "25%", up=True)
    unavailable = scaled_value(rolling.max_unavailable if rolling else None, spec.replicas, "25%", up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, spec.replicas) if spec.replicas else unavailable


def plain_template(replica_set: FullReplicaSet) -> dict[str, Any]:
    """Return a ReplicaSet's template as the Deployment had it, without the hash label."""
    template = decode(replica_set.spec.template)
    metadata = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _comparable(template: dict[str, Any]) -> bytes:
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if v}
    return canonical({**template, "metadata": metadata})


def plan_rollout(
    deployment: FullDeployment, replica_sets: list[FullReplicaSet], busy: set[str], now: float
) -> RolloutPlan:
    """Decide the next step; `busy` names ReplicaSets that still have pods (for Recreate)."""
    template = decode(deployment.spec.template)
    wanted = _comparable(template)
    in_order = sorted(replica_sets, key=lambda r: (r.metadata.creation_timestamp or "", r.name))
    new = next((r for r in in_order if _comparable(plain_template(r)) == wanted), None)
    old = [r for r in in_order if r is not new]
    revision, annotate = _revise(deployment, new, old)
    create: dict[str, Any] | None = None
    scale: dict[str, int] = {}
    if deployment.spec.paused:
        scale = _scale_proportionally(deployment, new, old)
    else:
        if new is None:
            held = sum(r.spec.replicas for r in old)
            replicas = _new_replicas(deployment, 0, held)
            if deployment.spec.strategy.type == "Recreate" and (held or any(r.name in busy for r in old)):
                replicas = 0
            create = _replica_set(deployment, template, replicas, revision)
        scale = _roll(deployment, new, old, busy)
    delete = _beyond_history(deployment, old)
    status, look_again = _status(deployment, new, old, create is not None, now)
    changed = [
        (r.name, scale[r.name])
        for r in in_order
        if r.name in scale and scale[r.name] != r.spec.replicas and r.name not in delete
    ]
    return RolloutPlan(create, changed, annotate, delete, revision, status, look_again)


def _revision_of(replica_set: FullReplicaSet) -> int:
    text = replica_set.metadata.annotations.get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _revise(
    deployment: FullDeployment, new: FullReplicaSet | None, old: list[FullReplicaSet]
) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    highest_old = max((_revision_of(r) for r in old), default=0)
    revision = max(highest_old + 1, _revision_of(new) if new else 0)
    annotate = []
    surge, _ = surge_and_unavailable(deployment)
    sizes = {
        DESIRED: str(deployment.spec.replicas),
        MAX_REPLICAS: str(deployment.spec.replicas + surge),
    }
    for replica_set in [*old, *([new] if new else [])]:
        wanted = dict(sizes)
        if replica_set is new:
            wanted[REVISION] = str(revision)
        missing = {k: v for k, v in wanted.items() if replica_set.metadata.annotations.get(k) != v}
        if missing and (replica_set is new or replica_set.spec.replicas):
            annotate.append((replica_set.name, missing))
    return str(revision), annotate


def _replica_set(
    deployment: FullDeployment, template: dict[str, Any], replicas: int, revision: str
) -> dict[str, Any]:
    digest = template_hash(template, deployment.status.collision_count)
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), HASH_LABEL: digest}
    selector = msgspec.to_builtins(deployment.spec.selector) or {}
    selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH_LABEL: digest}
    surge, _ = surge_and_unavailable(deployment)
    annotations = {
        **{k: v for k, v in deployment.metadata.annotations.items() if k not in NOT_COPIED},
        DESIRED: str(deployment.spec.replicas),
        MAX_REPLICAS: str(deployment.spec.replicas + surge),
        REVISION: revision,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{deployment.name}-{digest}",
            "namespace": deployment.namespace,
            "labels": metadata["labels"],
            "annotations": annotations,
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": {**template, "metadata": metadata},
        },
    }


def _new_replicas(deployment: FullDeployment, current: int, held_by_old: int) -> int:
    if deployment.spec.strategy.type == "Recreate":
        return deployment.spec.replicas
    surge, _ = surge_and_unavailable(deployment)
    room = deployment.spec.replicas + surge - current - held_by_old
    if room <= 0:
        return current
    return current + min(room, deployment.spec.replicas - current)


def _roll(
    deployment: FullDeployment, new: FullReplicaSet | None, old: list[FullReplicaSet], busy: set[str]
) -> dict[str, int]:
    if deployment.spec.strategy.type == "Recreate":
        if any(r.spec.replicas for r in old):
            return {r.name: 0 for r in old}
        if new is None or any(r.name in busy for r in old):
            return {}
        return {new.name: deployment.spec.replicas}
    scaled = _scale_proportionally(deployment, new, old)
    if scaled:
        return scaled
    if new is None:
        return {}
    held = sum(r.spec.replicas for r in old)
    if new.spec.replicas > deployment.spec.replicas:
        return {new.name: deployment.spec.replicas}
    replicas = _new_replicas(deployment, new.spec.replicas, held)
    if replicas != new.spec.replicas:
        return {new.name: replicas}
    return _shrink_old(deployment, new, old) if held else {}


def _shrink_old(deployment: FullDeployment, new: FullReplicaSet, old: list[FullReplicaSet]) -> dict[str, int]:
    """Give up old replicas: unavailable ones first, then as many as availability allows."""
    _, unavailable = surge_and_unavailable(deployment)
    minimum = deployment.spec.replicas - unavailable
    total = new.spec.replicas + sum(r.spec.replicas for r in old)
    new_missing = new.spec.replicas - new.status.available_replicas
    allowed = total - minimum - new_missing
    result = {r.name: r.spec.replicas for r in old}
    if allowed <= 0:
        return {}
    budget = allowed
    for replica_set in old:
        unhealthy = max(0, replica_set.spec.replicas - replica_set.status.available_replicas)
        cut = min(budget, unhealthy, result[replica_set.name])
        result[replica_set.name] -= cut
        budget -= cut
    available = new.status.available_replicas + sum(r.status.available_replicas for r in old)
    spare = available - minimum
    for replica_set in old:
        cut = min(max(0, spare), result[replica_set.name], max(0, budget))
        result[replica_set.name] -= cut
        spare -= cut
        budget -= cut
    return result


def _scale_proportionally(
    deployment: FullDeployment, new: FullReplicaSet | None, old: list[FullReplicaSet]
) -> dict[str, int]:
    """Spread a change of spec.replicas over the ReplicaSets in use (empty: it did not change)."""
    active = [r for r in [*old, *([new] if new else [])] if r.spec.replicas > 0]
    if not any(
        r.metadata.annotations.get(DESIRED, str(deployment.spec.replicas)) != str(deployment.spec.replicas)
        for r in active
    ):
        return {}
    if len(active) == 1:
        return {active[0].name: deployment.spec.replicas}
    surge, _ = surge_and_unavailable(deployment)
    total = sum(r.spec.replicas for r in active)
    target = deployment.spec.replicas + surge if deployment.spec.replicas else 0
    change = target - total
    result = {r.name: r.spec.replicas for r in active}
    left = change
    # Largest first; the biggest also takes what rounding leaves over.
    for replica_set in sorted(active, key=lambda r: (-r.spec.replicas, r.name)):
        share = round(replica_set.spec.replicas * target / total) - replica_set.spec.replicas
        share = max(min(share, left), 0) if change > 0 else min(max(share, left), 0)
        result[replica_set.name] += share
        left -= share
    largest = min(active, key=lambda r: (-r.spec.replicas, r.name))
    result[largest.name] = max(0, result[largest.name] + left)
    return result


def _beyond_history(deployment: FullDeployment, old: list[FullReplicaSet]) -> list[str]:
    idle = [
        r
        for r in old
        if r.spec.replicas == 0
        and r.status.replicas == 0
        and r.status.observed_generation >= r.metadata.generation
        and not r.deleting
    ]
    surplus = len(idle) - deployment.spec.revision_history_limit
    return [r.name for r in sorted(idle, key=_revision_of)[: max(0, surplus)]]


def _status(
    deployment: FullDeployment,
    new: FullReplicaSet | None,
    old: list[FullReplicaSet],
    creating: bool,
    now: float,
) -> tuple[dict[str, Any], float | None]:
    every = [*old, *([new] if new else [])]
    replicas = sum(r.status.replicas for r in every)
    available = sum(r.status.available_replicas for r in every)
    updated = new.status.replicas if new else 0
    status: dict[str, Any] = {
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": sum(r.status.ready_replicas for r in every),
        "availableReplicas": available,
        "unavailableReplicas": max(0, max(deployment.spec.replicas, replicas) - available),
    }
    _, unavailable = surge_and_unavailable(deployment)
    enough = available >= deployment.spec.replicas - unavailable
    progressing, look_again = _progress(deployment, new, creating, status, now)
    wanted = [
        (
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        ),
        progressing,
    ]
    status["conditions"] = [_condition(deployment.status.conditions, *each, now=now) for each in wanted]
    return status, look_again


def _progress(
    deployment: FullDeployment,
    new: FullReplicaSet | None,
    creating: bool,
    status: dict[str, Any],
    now: float,
) -> tuple[tuple[str, str, str, str], float | None]:
    name = new.name if new else ""
    replicas = deployment.spec.replicas
    if (
        new is not None
        and status["updatedReplicas"] == status["replicas"] == replicas <= status["availableReplicas"]
    ):
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return ("Progressing", "True", "NewReplicaSetAvailable", message), None
    if deployment.spec.paused:
        return ("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused"), None
    current = next((c for c in deployment.status.conditions if c.type == "Progressing"), None)
    before = deployment.status
    moved = (
        creating
        or current is None
        or current.reason in ("NewReplicaSetAvailable", "DeploymentPaused")
        or status["updatedReplicas"] > before.updated_replicas
        or status["readyReplicas"] > before.ready_replicas
        or status["availableReplicas"] > before.available_replicas
        or status["replicas"] - status["updatedReplicas"] < before.replicas - before.updated_replicas
        or before.observed_generation != deployment.metadata.generation
    )
    if moved or current is None:
        message = f'ReplicaSet "{name}" is progressing.' if new else "Created new replica set"
        reason = "ReplicaSetUpdated" if new else "NewReplicaSetCreated"
        return ("Progressing", "True", reason, message), float(deployment.spec.progress_deadline_seconds)
    since = parse_time(current.last_update_time or current.last_transition_time or format_time(now))
    left = since + deployment.spec.progress_deadline_seconds - now
    if left <= 0:
        message = f'ReplicaSet "{name}" has timed out progressing.'
        return ("Progressing", "False", "ProgressDeadlineExceeded", message), None
    return ("Progressing", current.status, current.reason, current.message), left


def _condition(
    conditions: list[WorkloadCondition], type: str, status: str, reason: str, message: str, *, now: float
) -> dict[str, Any]:
    old = next((c for c in conditions if c.type == type), None)
    same_status = old is not None and old.status == status
    same = same_status and old is not None and (old.reason, old.message) == (reason, message)
    moment = format_time(now)
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": (old.last_update_time if same and old else None) or moment,
        "lastTransitionTime": (old.last_transition_time if same_status and old else None) or moment,
    }
