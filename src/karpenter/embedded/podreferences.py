"""What a pod spec points at: its own volumes, nodes by affinity, other pods by topology."""

from collections.abc import Iterator, Mapping
from typing import Any

from karpenter.embedded.errors import Cause

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def mount_causes(spec: Mapping[str, Any], container: Mapping[str, Any], where: str) -> list[Cause]:
    """Return which mounts of a container name no volume of its pod."""
    volumes = {volume.get("name") for volume in _objects(spec.get("volumes"))}
    return [
        Cause(
            f"{where}.volumeMounts[{index}].name", f'Not found: "{mount.get("name")}"', "FieldValueNotFound"
        )
        for index, mount in enumerate(_objects(container.get("volumeMounts")))
        if mount.get("name") not in volumes
    ]


def affinity_causes(affinity: Any, where: str) -> list[Cause]:
    """Return what is wrong with a pod's affinities."""
    if not isinstance(affinity, dict):
        return []
    causes: list[Cause] = []
    for term, at in _node_terms(affinity.get("nodeAffinity"), f"{where}.nodeAffinity"):
        for index, expression in enumerate(_objects(term.get("matchExpressions"))):
            causes += _expression_causes(expression, f"{at}.matchExpressions[{index}]")
    for kind in ("podAffinity", "podAntiAffinity"):
        for term, at in _pod_terms(affinity.get(kind), f"{where}.{kind}"):
            if not term.get("topologyKey"):
                message = "Required value: can not be empty"
                causes.append(Cause(f"{at}.topologyKey", message, "FieldValueRequired"))
    return causes


def _node_terms(affinity: Any, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the node selector terms of an affinity and where they stand."""
    if not isinstance(affinity, dict):
        return
    required = affinity.get(_REQUIRED)
    if isinstance(required, dict):
        for index, term in enumerate(_objects(required.get("nodeSelectorTerms"))):
            yield term, f"{where}.{_REQUIRED}.nodeSelectorTerms[{index}]"
    for index, weighted in enumerate(_objects(affinity.get(_PREFERRED))):
        if isinstance(weighted.get("preference"), dict):
            yield weighted["preference"], f"{where}.{_PREFERRED}[{index}].preference"


def _pod_terms(affinity: Any, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the terms of an affinity to pods and where they stand."""
    if not isinstance(affinity, dict):
        return
    for index, term in enumerate(_objects(affinity.get(_REQUIRED))):
        yield term, f"{where}.{_REQUIRED}[{index}]"
    for index, weighted in enumerate(_objects(affinity.get(_PREFERRED))):
        if isinstance(weighted.get("podAffinityTerm"), dict):
            yield weighted["podAffinityTerm"], f"{where}.{_PREFERRED}[{index}].podAffinityTerm"


def _expression_causes(expression: Mapping[str, Any], where: str) -> list[Cause]:
    """Judge one requirement: which operator takes how many values."""
    operator, values = expression.get("operator"), expression.get("values") or []
    if operator not in _OPERATORS:
        listing = ", ".join(_OPERATORS)
        message = f'Invalid value: "{operator}": not a valid selector operator (use one of {listing})'
        return [Cause(f"{where}.operator", message)]
    if operator in ("In", "NotIn") and not values:
        message = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
        return [Cause(f"{where}.values", message, "FieldValueRequired")]
    if operator in ("Exists", "DoesNotExist") and values:
        message = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [Cause(f"{where}.values", message, "FieldValueForbidden")]
    if operator in ("Gt", "Lt") and len(values) != 1:
        message = "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
        return [Cause(f"{where}.values", message, "FieldValueRequired")]
    return []


def _objects(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
