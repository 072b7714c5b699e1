"""`karpenter validate`: manifests judged as the API server and the controllers would, and then some."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TextIO

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.crds import load_crds
from karpenter.apis.karpenter import NodeOverlay, NodePool
from karpenter.apis.nodepool_validation import validate_nodepool, validate_overlay
from karpenter.apis.retired import retired_errors
from karpenter.apis.validation import FieldError, SchemaValidator
from karpenter.cli.lint import Catalogue, Severity, lint_pool, lint_together
from karpenter.cli.lint_workloads import lint_workloads
from karpenter.cli.manifests import Document, Unreadable, read_manifests
from karpenter.cloudprovider.overlayevaluation import PoolTypes, evaluate
from karpenter.cloudprovider.overlays import pool_labels

OK, FOUND, UNREADABLE = 0, 1, 2
_CRD = "CustomResourceDefinition"
UNKNOWN_FIELD = "unknown field: the API server would drop it"
_OUR_GROUPS = ("karpenter.sh", "karpenter.kwok.sh", "autoscaling.x-k8s.io")


class Finding(msgspec.Struct, frozen=True, omit_defaults=False):
    """One thing that is wrong, and where it is written."""

    file: str
    line: int
    severity: Severity
    object: str
    field: str
    value: Any
    problem: str
    fix: str

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {_short(self.value)}"
        fix = f" ({self.fix})" if self.fix else ""
        where = self.field or "object"
        return f"{self.file}:{self.line}: {self.severity}: {self.object}: {where}{value}: {self.problem}{fix}"


def validate_files(
    paths: list[str],
    *,
    provider: str | None,
    out: TextIO,
    output: str = "text",
) -> int:
    """Check the manifests in files and folders and print the findings.

    Args:
        paths: YAML or JSON files, or folders of them.
        provider: whose instance types requirements are checked against (`ec2`, `generic`), or none.
        out: where findings go.
        output: `text` (a line each) or `json` (one list).

    Returns:
        0 when nothing is wrong (warnings aside), 1 when something is, 2 when a file cannot be read.
    """
    try:
        documents = list(read_manifests(paths))
        catalogue = catalogue_of(provider)
    except Unreadable as error:
        _print_failure(str(error), out, output)
        return UNREADABLE
    findings = sorted(judge(documents, catalogue), key=lambda f: (f.file, f.line, f.field, f.problem))
    if output == "json":
        out.write(json.dumps([msgspec.to_builtins(finding) for finding in findings], indent=2) + "\n")
    else:
        for finding in findings:
            out.write(f"{finding}\n")
        errors = sum(finding.severity == "error" for finding in findings)
        out.write(f"{len(documents)} objects, {errors} errors, {len(findings) - errors} warnings\n")
    return FOUND if any(finding.severity == "error" for finding in findings) else OK


def _print_failure(problem: str, out: TextIO, output: str) -> None:
    out.write((json.dumps({"unreadable": problem}) if output == "json" else problem) + "\n")


def catalogue_of(provider: Literal["ec2", "generic"] | str | None) -> Catalogue:
    """Return the instance types to check against.

    Raises:
        Unreadable: when there is no such catalogue.
    """
    from karpenter.providers.kwok.catalogue import (
        EC2_LABELS,
        KWOK_LABELS,
        ec2_instance_types,
        generic_instance_types,
    )

    well_known = known.WELL_KNOWN_LABELS | EC2_LABELS | KWOK_LABELS
    match provider:
        case None:
            return Catalogue(well_known=well_known)
        case "ec2":
            return Catalogue(types=ec2_instance_types(), well_known=well_known)
        case "generic":
            return Catalogue(types=generic_instance_types(), well_known=well_known)
    raise Unreadable(f"no instance types are known for provider {provider!r}: use ec2, generic or none")


def judge(documents: Sequence[Document], catalogue: Catalogue) -> Iterator[Finding]:
    """Yield everything that is wrong with the objects, alone and together."""
    schemas = _Schemas([d.obj for d in documents if isinstance(d.obj, dict) and d.obj.get("kind") == _CRD])
    pools: list[tuple[Document, NodePool]] = []
    overlays: list[tuple[Document, NodeOverlay]] = []
    seen: dict[tuple[str, str, str], Document] = {}
    for document in documents:
        found: list[tuple[Severity, FieldError]] = [("error", e) for e in _shape_errors(document.obj)]
        if not found:
            found += _twice(document, seen)
            problems, shaped = schemas.check(document.obj)
            found += [("error", e) for e in problems]
            if shaped is not None and not problems:
                try:
                    read, more = _beyond_schema(shaped, catalogue)
                except msgspec.ValidationError as misfit:  # of metadata, which no schema of ours looks at
                    read, more = None, [("error", _misshapen(shaped, str(misfit)))]
                found += more
                if isinstance(read, NodePool):
                    pools.append((document, read))
                elif read is not None and not more:
                    overlays.append((document, read))
        for severity, error in found:
            yield _finding(document, severity, error)
    for index, (severity, error) in lint_together([pool for _, pool in pools], catalogue):
        yield _finding(pools[index][0], severity, error)
    for index, (severity, error) in lint_workloads([document.obj for document in documents]):
        yield _finding(documents[index], severity, error)
    for index, error in _overlay_conflicts([o for _, o in overlays], [p for _, p in pools], catalogue):
        yield _finding(overlays[index][0], "error", error)


def _misshapen(obj: Mapping[str, Any], error: str) -> FieldError:
    """Return what is wrong with a value that is not of its field's type."""
    problem, _, place = error.partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    value: Any = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return FieldError(field, value, problem[:1].lower() + problem[1:], "write a value of that kind")


def _finding(document: Document, severity: Severity, error: FieldError) -> Finding:
    return Finding(
        file=document.file,
        line=document.line(error.field),
        severity=severity,
        object=document.name,
        field=error.field,
        value=error.value,
        problem=error.message,
        fix=error.fix,
    )


def _shape_errors(obj: Any) -> list[FieldError]:
    """Return what keeps `obj` from being a Kubernetes object at all, or from being one of today."""
    if not isinstance(obj, dict):
        return [FieldError("", obj, "is not an object", "a manifest is a mapping with apiVersion and kind")]
    found = [
        FieldError(field, obj.get(field), "is missing or not text", f"add {field}: {example}")
        for field, example in (("apiVersion", "karpenter.sh/v1"), ("kind", "NodePool"))
        if not isinstance(obj.get(field), str) or not obj[field]
    ]
    if found:
        return found
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        found.append(FieldError("metadata.name", None, "is missing", "give the object a name"))
    return retired_errors(obj) or found


def _twice(
    document: Document, seen: dict[tuple[str, str, str], Document]
) -> list[tuple[Severity, FieldError]]:
    """Return the warning that an object of this name was there before."""
    obj = document.obj
    name = obj["metadata"].get("name")
    if not name:
        return []
    key = (f"{obj['apiVersion']} {obj['kind']}", str(obj["metadata"].get("namespace", "")), str(name))
    first = seen.setdefault(key, document)
    if first is document:
        return []
    problem = f"{obj['kind']} of this name is already in {first.file}:{first.line('')}"
    return [("warning", FieldError("metadata.name", name, problem, "keep one; the last one applied wins"))]


@cache
def _our_schemas() -> "_Schemas":
    return _Schemas(())


def shaped_by_crd(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an object of one of our kinds with its schema's defaults; None for other kinds."""
    return _our_schemas().check(obj)[1]


class _Schemas:
    """The validators of the kinds we ship, and of CRDs found among the manifests."""

    def __init__(self, crds: Sequence[Mapping[str, Any]]) -> None:
        self._crds: dict[tuple[str, str], tuple[Mapping[str, Any], str]] = {}
        for crd in (*load_crds(), *crds):
            spec = crd.get("spec", {})
            for version in spec.get("versions", ()):
                api_version = f"{spec.get('group')}/{version.get('name')}"
                self._crds[(api_version, spec.get("names", {}).get("kind"))] = (crd, version["name"])
        self._validators: dict[tuple[str, str], SchemaValidator] = {}

    def check(self, obj: Mapping[str, Any]) -> tuple[list[FieldError], dict[str, Any] | None]:
        """Return what breaks the schema, and the object with defaults; nothing for kinds we don't know."""
        key = (obj["apiVersion"], obj["kind"])
        if key not in self._crds:
            return self._unknown_kind(*key), None
        if key not in self._validators:
            self._validators[key] = SchemaValidator.for_crd(*self._crds[key])
        validator = self._validators[key]
        shaped = validator.default_and_prune(obj)
        return [*_unknown_fields(obj, shaped, ""), *validator.validate(shaped)], shaped

    def _unknown_kind(self, api_version: str, kind: str) -> list[FieldError]:
        group = api_version.partition("/")[0]
        if group not in _OUR_GROUPS:
            return []
        ours = sorted(f"{version} {name}" for version, name in self._crds if version.startswith(group))
        close = difflib.get_close_matches(f"{api_version} {kind}", ours, n=1)
        fix = f"use {(close or ours)[0]}" if ours else "install its CRD"
        return [FieldError("kind", kind, f"{api_version} has no such kind", fix)]


def _unknown_fields(given: Any, shaped: Any, path: str) -> Iterator[FieldError]:
    """Yield the fields that the schema does not have, with the name that was probably meant."""
    if isinstance(given, Mapping) and isinstance(shaped, Mapping):
        for name, value in given.items():
            where = f"{path}.{name}" if path else str(name)
            if name in shaped:
                yield from _unknown_fields(value, shaped[name], where)
            elif value is not None:
                close = difflib.get_close_matches(name, [*shaped, *_COMMON_FIELDS], n=1)
                fix = f"did you mean {close[0]}?" if close else "remove it"
                yield FieldError(where, value, UNKNOWN_FIELD, fix)
    elif isinstance(given, list) and isinstance(shaped, list):
        for number, (left, right) in enumerate(zip(given, shaped, strict=True)):
            yield from _unknown_fields(left, right, f"{path}[{number}]")


_COMMON_FIELDS = (
    *("requirements", "nodeClassRef", "taints", "startupTaints", "expireAfter", "terminationGracePeriod"),
    *("disruption", "limits", "weight", "replicas", "template", "labels", "annotations", "budgets"),
    *("consolidateAfter", "consolidationPolicy", "schedule", "duration", "nodes", "reasons"),
    *("key", "operator", "values", "minValues", "effect", "value", "group", "kind", "name"),
    *("price", "priceAdjustment", "capacity", "percentage", "podTemplateRef", "scalableRef"),
)


def _beyond_schema(
    shaped: Mapping[str, Any], catalogue: Catalogue
) -> tuple[NodePool | NodeOverlay | None, list[tuple[Severity, FieldError]]]:
    """Return the pool or overlay, if it is one, and what is wrong with it though its schema holds."""
    if shaped["kind"] == "NodeOverlay":
        overlay = msgspec.convert(shaped, NodeOverlay)
        found = validate_overlay(overlay, well_known=catalogue.well_known)
        return overlay, [("error", error) for error in found]
    if shaped["kind"] != "NodePool":
        return None, []
    pool = msgspec.convert(shaped, NodePool)
    errors = validate_nodepool(pool, well_known=catalogue.well_known)
    return pool, [("error", error) for error in errors] + list(lint_pool(pool, catalogue))


def _overlay_conflicts(
    overlays: Sequence[NodeOverlay], pools: Sequence[NodePool], catalogue: Catalogue
) -> Iterator[tuple[int, FieldError]]:
    """Yield the overlays that the operator would reject, by position, for what another one says."""
    readable = [pool for pool in pools if not validate_nodepool(pool, well_known=catalogue.well_known)]
    offers = [PoolTypes(pool_labels(pool), catalogue.types) for pool in readable]
    applied = {overlay.name: index for index, overlay in enumerate(overlays) if overlay.name}
    evaluation = evaluate([overlays[index] for index in applied.values()], offers, catalogue.well_known)
    for name, rejection in evaluation.rejected.items():
        problem, _, fix = rejection.message.partition(". ")
        yield applied[name], FieldError("spec", name, problem, fix)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
