"""Setting conditions on NodeClaims, NodePools and NodeOverlays, and writing them."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from karpenter.apis import conditions
from karpenter.apis.karpenter import NodeClaim, NodeOverlay, NodePool
from karpenter.apis.meta import Condition, ConditionStatus
from karpenter.base.timestamps import parse_time

O = TypeVar("O", NodeClaim, NodePool, NodeOverlay)  # noqa: E741


def created_at(obj: NodeClaim | NodePool | NodeOverlay) -> float:
    """Return when the object was created, epoch seconds; 0 when it does not say."""
    return parse_time(obj.metadata.creation_timestamp) if obj.metadata.creation_timestamp else 0.0


def initialised(obj: O, now: float) -> O:
    """Return `obj` with its root condition and all dependents present."""
    family = _family(obj)
    return _with(
        obj,
        family.initialise(
            obj.status.conditions, created=created_at(obj), generation=obj.metadata.generation, now=now
        ),
    )


def with_condition(
    obj: O, type: str, status: ConditionStatus, reason: str = "", message: str = "", *, now: float
) -> O:
    """Return `obj` with one condition set and `Ready` worked out anew."""
    return _with(
        obj,
        _family(obj).set(
            obj.status.conditions,
            type,
            status,
            reason or (type if status == "True" else status),
            message,
            generation=obj.metadata.generation,
            now=now,
            created=created_at(obj),
        ),
    )


def without_condition(obj: O, type: str) -> O:
    """Return `obj` without a condition that is not one of those `Ready` depends on."""
    return _with(obj, _family(obj).clear(obj.status.conditions, type))


def refreshed(obj: O, type: str, *, now: float) -> O:
    """Return `obj` with a decided condition taken over to its present generation."""
    condition = conditions.get(obj.status.conditions, type)
    if condition is None or condition.observed_generation == obj.metadata.generation:
        return obj
    status: ConditionStatus = "True" if condition.status == "True" else "False"
    return with_condition(obj, type, status, condition.reason, condition.message, now=now)


def document(items: Iterable[Condition]) -> list[dict[str, Any]]:
    """Return conditions as the API wants them: every required field present, empty or not."""
    return [
        {
            "type": c.type,
            "status": c.status,
            "reason": c.reason,
            "message": c.message,
            "lastTransitionTime": c.last_transition_time,
            "observedGeneration": c.observed_generation,
        }
        for c in items
    ]


def transition_time(obj: NodeClaim | NodePool | NodeOverlay, type: str) -> float:
    """Return since when a condition has its status, epoch seconds; else when the object was created."""
    condition = conditions.get(obj.status.conditions, type)
    if condition is None or condition.last_transition_time is None:
        return created_at(obj)
    return parse_time(condition.last_transition_time)


def _family(obj: NodeClaim | NodePool | NodeOverlay) -> conditions.ConditionSet:
    if isinstance(obj, NodeOverlay):
        return conditions.NODEOVERLAY
    return conditions.NODECLAIM if isinstance(obj, NodeClaim) else conditions.NODEPOOL


def _with(obj: O, items: list[Condition]) -> O:
    status = msgspec.structs.replace(obj.status, conditions=items)
    return msgspec.structs.replace(obj, status=status)
