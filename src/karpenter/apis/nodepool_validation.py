"""What a NodePool or NodeOverlay must be beyond its schema: the checks behind `ValidationSucceeded`.

The schema lets through what only becomes clear with all parts in view (repeated taints, over-long keys,
label values in requirements). Every finding names field, value and fix.
"""

import re
from collections.abc import Iterable, Sequence

from karpenter.apis import labels as known
from karpenter.apis.annotations import validate_annotations
from karpenter.apis.core import Taint
from karpenter.apis.karpenter import NodeOverlay, NodePool, RequirementSpec
from karpenter.apis.validation.errors import FieldError

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
BOUNDS = frozenset({"Gt", "Lt", "Gte", "Lte"})
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CORE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_WHOLE = re.compile(r"\+?[0-9]+")
_LONGEST_NAME, _LONGEST_PREFIX, _LARGEST_INTEGER = 63, 253, 2**63 - 1


def validate_nodepool(
    pool: NodePool, *, well_known: frozenset[str] = known.WELL_KNOWN_LABELS
) -> list[FieldError]:
    """Return what is wrong with `pool`; `well_known` are the labels that core and providers define."""
    template = pool.spec.template
    found = _labels(template.metadata.labels, well_known)
    found += _taints(template.spec.taints, template.spec.startup_taints)
    for number, requirement in enumerate(template.spec.requirements):
        path = f"spec.template.spec.requirements[{number}]"
        if requirement.key == known.NODEPOOL:
            found.append(
                FieldError(
                    f"{path}.key",
                    requirement.key,
                    "is set by Karpenter itself and cannot be required",
                    "remove this requirement",
                )
            )
        found += validate_requirement(requirement, path, well_known=well_known)
    found += validate_annotations(pool)
    return found


def validate_overlay(
    overlay: NodeOverlay, *, well_known: frozenset[str] = known.WELL_KNOWN_LABELS
) -> list[FieldError]:
    """Return what is wrong with `overlay`."""
    found: list[FieldError] = []
    for number, requirement in enumerate(overlay.spec.requirements):
        path = f"spec.requirements[{number}]"
        found += validate_requirement(requirement, path, well_known=well_known)
        if requirement.operator == "NotIn" and not requirement.values:
            found.append(
                FieldError(f"{path}.values", [], "NotIn needs at least one value", "name what is excluded")
            )
    found += [
        FieldError(
            f"spec.capacity.{name}",
            overlay.spec.capacity[name],
            "is measured by the cloud provider and cannot be overlaid",
            "overlay extended resources only, such as example.com/gpu",
        )
        for name in sorted(CORE_RESOURCES & overlay.spec.capacity.keys())
    ]
    found += [
        FieldError(
            f"spec.capacity.{name}",
            amount,
            "is negative: no pod would fit",
            "say how much a machine has; 0 hides the resource",
        )
        for name, amount in sorted(overlay.spec.capacity.items())
        if str(amount).startswith("-")
    ]
    return found


def validate_requirement(
    requirement: RequirementSpec, path: str, *, well_known: frozenset[str] = known.WELL_KNOWN_LABELS
) -> list[FieldError]:
    """Return what is wrong with one requirement at `path`: of a pool, an overlay, or a pod's selector.

    Values that are not known for their key are an error only where nothing known is left, or less than
    `minValues`: a mixed list goes on with the known ones, as upstream does.
    """
    key = known.ALIASES.get(requirement.key, requirement.key)
    found: list[FieldError] = []
    if requirement.operator not in OPERATORS:
        found.append(
            FieldError(
                f"{path}.operator", requirement.operator, "is not an operator", f"use {_or(OPERATORS)}"
            )
        )
    found += restricted_label(key, f"{path}.key", well_known)
    found += qualified_name(key, f"{path}.key")
    for number, value in enumerate(requirement.values):
        found += label_value(value, f"{path}.values[{number}]")
    found += _cardinality(requirement, path)
    found += _known_values(requirement, key, path)
    return found


def _cardinality(requirement: RequirementSpec, path: str) -> list[FieldError]:
    values, operator = requirement.values, requirement.operator
    if operator == "In" and not values:
        return [FieldError(f"{path}.values", [], "In needs at least one value", "add a value, or use Exists")]
    if operator in BOUNDS and not (len(values) == 1 and _is_whole(values[0])):
        return [
            FieldError(
                f"{path}.values",
                values,
                f"{operator} needs exactly one whole number, 0 or more",
                'e.g. ["4"]',
            )
        ]
    least = requirement.min_values
    if operator == "In" and least is not None and len(values) < least:
        return [
            FieldError(
                f"{path}.minValues",
                least,
                f"asks for {least} different values, but only {len(values)} are listed",
                "list more values, or lower minValues",
            )
        ]
    return []


def _known_values(requirement: RequirementSpec, key: str, path: str) -> list[FieldError]:
    valid = known.KNOWN_VALUES.get(key)
    if valid is None or requirement.operator != "In" or not requirement.values:
        return []
    usable = sorted(valid & set(requirement.values))
    choices = f"use {_or(sorted(valid))}"
    if not usable:
        return [FieldError(f"{path}.values", requirement.values, f"none is a value of {key}", choices)]
    if requirement.min_values is not None and len(usable) < requirement.min_values:
        return [
            FieldError(
                f"{path}.values",
                requirement.values,
                f"only {len(usable)} are values of {key}, fewer than minValues {requirement.min_values}",
                choices,
            )
        ]
    return []


def _is_whole(text: str) -> bool:
    return bool(_WHOLE.fullmatch(text)) and int(text) <= _LARGEST_INTEGER


def _labels(labels: dict[str, str], well_known: frozenset[str]) -> list[FieldError]:
    found: list[FieldError] = []
    for key in sorted(labels):
        path = f"spec.template.metadata.labels[{key}]"
        if key == known.NODEPOOL:
            found.append(FieldError(path, labels[key], "is set by Karpenter itself", "remove this label"))
        found += qualified_name(key, path)
        found += label_value(labels[key], path)
        found += restricted_label(key, path, well_known)
    return found


def _taints(taints: Sequence[Taint], startup: Sequence[Taint]) -> list[FieldError]:
    found: list[FieldError] = []
    first_seen: dict[tuple[str, str], str] = {}
    for name, group in (("taints", taints), ("startupTaints", startup)):
        for number, taint in enumerate(group):
            path = f"spec.template.spec.{name}[{number}]"
            found += _taint(taint, path)
            identity = (taint.key, taint.effect)
            if identity in first_seen:
                found.append(
                    FieldError(
                        path,
                        f"{taint.key}:{taint.effect}",
                        f"repeats key and effect of {first_seen[identity]}",
                        "keep one of the two",
                    )
                )
            first_seen.setdefault(identity, path)
    return found


def _taint(taint: Taint, path: str) -> list[FieldError]:
    if not taint.key:
        return [FieldError(f"{path}.key", "", "a taint needs a key", "e.g. example.com/dedicated")]
    found = qualified_name(taint.key, f"{path}.key")
    if taint.value:
        found += label_value(taint.value, f"{path}.value")
    if taint.effect not in (*EFFECTS, ""):
        found.append(
            FieldError(f"{path}.effect", taint.effect, "is not a taint effect", f"use {_or(EFFECTS)}")
        )
    return found


def restricted_label(key: str, path: str, well_known: frozenset[str]) -> list[FieldError]:
    """Return the error that `key` is reserved, unless it is well known."""
    if key in well_known:
        return []
    domain = key.partition("/")[0] if "/" in key else ""
    for reserved in sorted(known.RESTRICTED_DOMAINS):
        if domain == reserved or domain.endswith(f".{reserved}"):
            return [
                FieldError(
                    path,
                    key,
                    f"label domain {reserved} is reserved",
                    f"use a domain of your own, or one of {', '.join(sorted(well_known))}",
                )
            ]
    if key in known.RESTRICTED_LABELS:
        return [FieldError(path, key, "is different on every node", "use a label that nodes share")]
    return []


def qualified_name(text: str, path: str) -> list[FieldError]:
    """Return the error that `text` is not `[dns-prefix/]name` of at most 253 + 63 characters."""
    prefix, slash, name = text.rpartition("/")
    problem = ""
    if "/" in prefix:
        problem = "has more than one slash"
    elif slash and (not _DNS_PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_PREFIX):
        problem = f"has a prefix that is not a DNS name of at most {_LONGEST_PREFIX} characters"
    elif len(name) > _LONGEST_NAME:
        problem = f"has a name of {len(name)} characters"
    elif not _NAME.fullmatch(name):
        problem = "is not a qualified name"
    fix = "use [prefix/]name: letters, digits, '-', '_', '.'; at most 63 characters after the slash"
    return [FieldError(path, text, problem, fix)] if problem else []


def label_value(text: str, path: str) -> list[FieldError]:
    """Return the error that `text` is not a label value."""
    if len(text) <= _LONGEST_NAME and _LABEL_VALUE.fullmatch(text):
        return []
    fix = "use at most 63 letters, digits, '-', '_', '.', beginning and ending with a letter or digit"
    return [FieldError(path, text, "is not a label value", fix)]


def _or(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
