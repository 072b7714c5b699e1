"""Admission: what becomes of an object between the request and the store.

In order: unknown fields are pruned (and named, when the client asked to be told), defaults filled in, rules
checked. Custom kinds follow their schema and CEL rules (`karpenter.apis.validation`), built-in ones
`karpenter.embedded.defaults` and `karpenter.embedded.validity`.
"""

from collections.abc import Mapping
from typing import Any

from karpenter.apis.annotations import validate_annotations
from karpenter.apis.karpenter import NodePool
from karpenter.apis.meta import ObjectMeta
from karpenter.apis.validation import FieldError
from karpenter.apis.validation.cel import CelError
from karpenter.embedded import errors
from karpenter.embedded.changes import causes_of_update
from karpenter.embedded.defaults import apply_defaults
from karpenter.embedded.errors import Cause
from karpenter.embedded.kinds import Kind, KindRegistry, kinds_of_crd
from karpenter.embedded.pruning import prune, unknown_fields
from karpenter.embedded.requests import WriteOptions
from karpenter.embedded.shapes import shape_of
from karpenter.embedded.store import Store
from karpenter.embedded.validity import causes_of_create, meta_causes, name_rule

DEFINITIONS = "customresourcedefinitions"
_NODEPOOLS = "nodepools.karpenter.sh"
_SPEC_ENDPOINTS = frozenset({"", "scale", "resize", "ephemeralcontainers"})
_KEEP_STATUS_ON_CREATE = frozenset({"nodes"})


class Admission:
    """The chain, over the store it looks namespaces and classes up in."""

    def __init__(self, store: Store, registry: KindRegistry) -> None:
        self._store = store
        self._registry = registry
        self._namespaces = registry.by_group_resource("namespaces")

    def check_name(self, kind: Kind, name: str, meta: Mapping[str, Any]) -> None:
        """Refuse (422) a name that is missing or malformed."""
        if not name:
            cause = Cause(
                "metadata.name", "Required value: name or generateName is required", "FieldValueRequired"
            )
            raise errors.invalid(kind.group, kind.kind, "", [cause])
        rule = name_rule(kind)
        problem = rule(name)
        if problem:
            cause = Cause("metadata.name", f'Invalid value: "{name}": {problem}')
            raise errors.invalid(kind.group, kind.kind, name, [cause])

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Refuse what goes into a namespace that is not there (404) or is being deleted (403)."""
        if not kind.namespaced:
            return
        if not namespace:
            raise errors.bad_request(f"{kind.group_resource} live in a namespace; the path names none")
        record = self._store.get(self._namespaces, "", namespace)
        if record is None:
            raise errors.not_found("namespaces", namespace)
        if record.fields.get("status.phase") == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(kind.group_resource, name, why)

    def meta_causes(self, kind: Kind, meta: Mapping[str, Any]) -> list[Cause]:
        """Return what is wrong with labels, annotations, finalizers and owners."""
        return meta_causes(meta)

    def isolate(
        self, kind: Kind, obj: dict[str, Any], old: Mapping[str, Any], subresource: str
    ) -> dict[str, Any]:
        """Put back the part of an object that the endpoint written to does not own."""
        if subresource == "status":
            return _status_only(kind, obj, old)
        if kind.status and subresource in _SPEC_ENDPOINTS:
            obj.pop("status", None)
            if "status" in old:
                obj["status"] = old["status"]
        if kind.group_resource == "namespaces" and subresource != "finalize":
            spec = dict(obj.get("spec") or {})
            if "finalizers" in (old.get("spec") or {}):
                spec["finalizers"] = old["spec"]["finalizers"]
            obj["spec"] = spec
        return obj

    def admit_create(
        self, kind: Kind, obj: dict[str, Any], options: WriteOptions
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a new object as it is to be stored, and warnings.

        Raises:
            StatusError: 400 for unknown fields under strict validation, 422 for broken rules.
        """
        if kind.status and kind.group_resource not in _KEEP_STATUS_ON_CREATE:
            obj.pop("status", None)
        obj, warnings = self._prune_and_default(kind, obj, None, options)
        causes = _custom_causes(kind, obj, None) if kind.custom is not None else causes_of_create(kind, obj)
        if kind.plural == DEFINITIONS:
            causes = causes or _definition_causes(obj)
        self._refuse(kind, obj, causes)
        return obj, warnings

    def admit_update(
        self,
        kind: Kind,
        obj: dict[str, Any],
        old: dict[str, Any],
        options: WriteOptions,
        subresource: str,
        *,
        trusted: bool = False,
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a changed object as it is to be stored, and warnings.

        Raises:
            StatusError: 400 for unknown fields under strict validation, 422 for broken rules.
        """
        obj, warnings = self._prune_and_default(kind, obj, old, options)
        if trusted:
            return obj, warnings
        causes = (
            _custom_causes(kind, obj, old)
            if kind.custom is not None
            else causes_of_update(kind, obj, old, subresource)
        )
        if kind.plural == DEFINITIONS and obj.get("spec") != old.get("spec"):
            causes = causes or _definition_causes(obj)
        self._refuse(kind, obj, causes)
        return obj, warnings

    def _prune_and_default(
        self, kind: Kind, obj: dict[str, Any], old: Mapping[str, Any] | None, options: WriteOptions
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        if kind.custom is not None:
            pruned = kind.custom.validator.default_and_prune(obj)
            unknown = unknown_fields(obj, pruned) if options.field_validation != "Ignore" else []
            obj = pruned
        else:
            found = prune(shape_of(kind), obj)
            unknown = found.unknown
            if found.wrong:
                raise errors.Undecodable(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    + "; ".join(found.wrong)
                )
        warnings: tuple[str, ...] = ()
        if unknown and options.field_validation == "Strict":
            listing = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise errors.Undecodable(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {listing}"
            )
        if unknown and options.field_validation == "Warn":
            warnings = tuple(f'unknown field \\"{path}\\"' for path in unknown)
        if kind.custom is None:
            apply_defaults(kind, obj, old is None, self._store, self._registry)
        return obj, warnings

    def _refuse(self, kind: Kind, obj: Mapping[str, Any], causes: list[Cause]) -> None:
        if causes:
            raise errors.invalid(kind.group, kind.kind, obj["metadata"].get("name", ""), causes)


def _status_only(kind: Kind, obj: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Let a write to /status change the status, and for built-in kinds labels and annotations too."""
    if kind.custom is not None:
        result = {**old, "metadata": dict(old["metadata"])}
    else:
        meta = {**old["metadata"]}
        for field in ("labels", "annotations", "finalizers"):
            if field in obj["metadata"] and field != "finalizers":
                meta[field] = obj["metadata"][field]
        result = {**old, "metadata": meta}
    if "status" in obj:
        result["status"] = obj["status"]
    else:
        result.pop("status", None)
    return result


def _custom_causes(kind: Kind, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    assert kind.custom is not None
    found = list(kind.custom.validator.validate(obj, old))
    if kind.group_resource == _NODEPOOLS:
        found += _annotation_errors(obj, old)
    return [Cause(each.field, _with_fix(each)) for each in found]


def _annotation_errors(obj: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Return what is wrong with the annotations that the operator reads, unless it was before."""
    notes = obj["metadata"].get("annotations") or {}
    if old is not None and notes == (old["metadata"].get("annotations") or {}):
        return []
    texts = {key: value for key, value in notes.items() if isinstance(value, str)}
    return list(validate_annotations(NodePool(metadata=ObjectMeta(annotations=texts))))


def _definition_causes(definition: Mapping[str, Any]) -> list[Cause]:
    """Return why a CustomResourceDefinition cannot be served."""
    try:
        kinds_of_crd(definition)
    except (CelError, KeyError, TypeError, ValueError, AttributeError) as error:
        return [Cause("spec.versions", f"Invalid value: the definition cannot be served: {error!r}")]
    return []


def _with_fix(found: FieldError) -> str:
    return f"{found.message} ({found.fix})" if found.fix else found.message
