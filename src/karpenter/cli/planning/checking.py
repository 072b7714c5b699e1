"""Judging one object of a built-in kind: unknown fields, wrong types, impossible values; then its struct.

What the API server would refuse is an error, what it would silently drop is a warning. The rules are those of
the embedded API server, so that `karpenter plan`, `karpenter up` and a real cluster say the same.
"""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from karpenter.cli.lint import Severity
from karpenter.cli.manifests import Document
from karpenter.cli.validate import UNKNOWN_FIELD, Finding
from karpenter.embedded import defaults
from karpenter.embedded.errors import Cause
from karpenter.embedded.kinds import Kind, KindRegistry
from karpenter.embedded.pruning import prune
from karpenter.embedded.shapes import Shape, shape_of
from karpenter.embedded.validity import meta_causes, rule_causes

T = TypeVar("T")
Json = dict[str, Any]

_KINDS = KindRegistry()
_FIXES: Mapping[str, str] = {
    "FieldValueRequired": "add it",
    "FieldValueNotSupported": "use one of the values listed",
    "FieldValueDuplicate": "keep one",
    "FieldValueForbidden": "remove it",
}
_STRUCTURE = "see `kubectl explain` for its structure"
_WRONG_TYPE = re.compile(r"(?P<path>.*?): (?P<problem>expected .*), got (?P<value>.*)", re.DOTALL)
_AT = re.compile(r"(?P<problem>.*) - at `(?P<path>.*)`", re.DOTALL)


def finding(
    document: Document,
    field: str,
    problem: str,
    fix: str = "",
    *,
    severity: Severity = "error",
    value: Any = None,
) -> Finding:
    """Return one finding about `field` of a document, with its line, and its value unless one is given."""
    return Finding(
        file=document.file,
        line=document.line(field),
        severity=severity,
        object=document.name,
        field=field,
        value=value if value is not None else value_at(document.obj, field),
        problem=problem,
        fix=fix,
    )


def kind_of(obj: Mapping[str, Any]) -> Kind | None:
    """Return the built-in kind of an object that has apiVersion and kind; None for others."""
    return _KINDS.by_kind(str(obj.get("apiVersion")), str(obj.get("kind")))


def other_version(obj: Mapping[str, Any]) -> str:
    """Return the apiVersion under which a built-in kind of this name is served; empty when there is none."""
    found = [k.api_version for k in _KINDS.all() if k.kind == obj.get("kind") and k.stored]
    return found[0] if found else ""


def check(
    document: Document, kind: Kind, default: Callable[[Json], None] | None = None
) -> tuple[list[Finding], Json]:
    """Return what is wrong with an object of a built-in kind, and the object, pruned and with defaults.

    `default` fills in what the API server would. The object is a new one as far as it differs.
    """
    shape = shape_of(kind)
    obj: Json = _plain(document.obj, shape)
    found = prune(shape, obj)
    findings = [_unknown(document, shape, path) for path in found.unknown]
    findings += [_wrong(document, text) for text in found.wrong]
    if found.wrong:
        return findings, obj
    if default is not None:
        default(obj)
    causes = [*meta_causes(obj.get("metadata") or {}), *rule_causes(kind, obj)]
    findings += [_caused(document, cause) for cause in causes]
    return findings, obj


def convert(document: Document, obj: Json, type: type[T]) -> tuple[T | None, list[Finding]]:
    """Return the struct of a checked object, or why it cannot be read."""
    try:
        return msgspec.convert(obj, type), []
    except msgspec.ValidationError as error:
        match = _AT.fullmatch(str(error))
        path, problem = (match["path"], match["problem"]) if match else ("", str(error))
        return None, [finding(document, path.lstrip("$."), problem, _STRUCTURE)]


def value_at(obj: Any, field: str) -> Any:
    """Return what stands at a path such as `spec.taints[0].key` or `a.requests[cpu]`; None when nothing."""
    for part in filter(None, re.split(r"[.\[\]]+", field)):
        if isinstance(obj, list) and part.isdigit() and len(part) < 9 and int(part) < len(obj):
            obj = obj[int(part)]
        elif isinstance(obj, dict) and part in obj:
            obj = obj[part]
        else:
            return None
    return obj


def default_template(obj: Json) -> None:
    """Fill in the pod template of a workload as the API server does."""
    spec = obj.setdefault("spec", {})
    if obj.get("kind") == "CronJob":
        spec.setdefault("concurrencyPolicy", "Allow")
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    else:
        spec.setdefault("replicas", 1)
    template = spec.get("template")
    if isinstance(template, dict):
        defaults.pod_spec(template.setdefault("spec", {}))


def default_pod(obj: Json) -> None:
    """Fill in a pod's spec as the API server does."""
    defaults.pod_spec(obj.setdefault("spec", {}))


def _plain(value: Any, shape: Shape) -> Any:
    """Return a copy in which quantities that are fractions are text: JSON allows both, structs only text."""
    if isinstance(value, dict):
        return {k: _plain(v, shape.member(k).shape) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v, shape.item) if shape.item is not None else v for v in value]
    if isinstance(value, float) and shape.name == "quantity" and math.isfinite(value):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    return value


def _unknown(document: Document, shape: Shape, path: str) -> Finding:
    parent, _, name = path.rpartition(".")
    for part in filter(None, re.split(r"[.\[\]]+", parent)):
        inner = shape.item if shape.form == "list" else shape.member(part).shape
        shape = inner if inner is not None else shape
    close = difflib.get_close_matches(name, sorted(shape.fields), n=1)
    fix = f"did you mean {close[0]}?" if close else "remove it"
    return finding(document, path, UNKNOWN_FIELD, fix, severity="warning")


def _wrong(document: Document, text: str) -> Finding:
    match = _WRONG_TYPE.fullmatch(text)
    if match is None:
        return finding(document, "", text)
    return finding(document, match["path"], match["problem"], _STRUCTURE)


def _caused(document: Document, cause: Cause) -> Finding:
    return finding(document, cause.field, cause.message, _FIXES.get(cause.reason, ""))
