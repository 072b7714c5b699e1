"""OpenAPI v3, one document per group version: what `kubectl explain`, apply and diff read.

Schemas of built-in kinds are made from their shapes (names, types, merge keys), with our own descriptions of
what people look up most; custom kinds show their CRD's schema as it is.
"""

import hashlib
from typing import Any

import msgspec

from karpenter.embedded.descriptions import DESCRIPTIONS
from karpenter.embedded.kinds import Kind, KindRegistry
from karpenter.embedded.shapes import Member, Shape, message_name, message_shape, shape_of

_SCALARS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "boolean": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "integer": {"type": "integer"},
    "double": {"type": "number", "format": "double"},
    "number": {"type": "number"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "quantity": {"x-kubernetes-int-or-string": True, "oneOf": [{"type": "string"}, {"type": "number"}]},
    "intorstring": {"x-kubernetes-int-or-string": True, "format": "int-or-string", "type": "string"},
}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
    for name, kind in (
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    )
]


class OpenApi:
    """The documents, made when asked for and kept until the set of kinds changes."""

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._version = -1
        self._documents: dict[str, bytes] = {}

    def index(self) -> bytes:
        """Return the list of documents, each with a hash of its content."""
        paths = {}
        for name in self._names():
            body = self.document(name) or b""
            digest = hashlib.sha256(body).hexdigest()[:32].upper()
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        return msgspec.json.encode({"paths": paths})

    def document(self, name: str) -> bytes | None:
        """Return one group version's document (`api/v1`, `apis/apps/v1`), None when there is none."""
        if self._version != self._registry.version:
            self._version = self._registry.version
            self._documents.clear()
        if name not in self._documents:
            kinds = [kind for kind in self._registry.all() if kind.stored and document_name(kind) == name]
            if not kinds:
                return None
            self._documents[name] = msgspec.json.encode(make_document(kinds))
        return self._documents[name]

    def _names(self) -> list[str]:
        return sorted({document_name(kind) for kind in self._registry.all() if kind.stored})


def document_name(kind: Kind) -> str:
    """Return the name of the document a kind is described in."""
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def make_document(kinds: list[Kind]) -> dict[str, Any]:
    """Return the OpenAPI document of the kinds of one group version."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for kind in kinds:
        _add_kind(kind, schemas)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def schema_name(kind: Kind) -> str:
    """Return the component name of a kind's schema."""
    if kind.custom is not None:
        return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"
    return _component(message_name(kind))


def _component(message: str) -> str:
    if message.startswith("meta."):
        return f"io.k8s.apimachinery.pkg.apis.{message}"
    if message.startswith("apiextensions."):
        return f"io.k8s.apiextensions-apiserver.pkg.apis.{message}"
    return f"io.k8s.api.{message}"


def _add_kind(kind: Kind, schemas: dict[str, Any]) -> None:
    group_version_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    if kind.custom is not None:
        schema = dict(kind.custom.schema) or {"type": "object"}
        metadata = {
            "allOf": [{"$ref": _ref("meta.v1.ObjectMeta")}],
            "description": "What every object carries.",
        }
        properties = {**schema.get("properties", {}), "metadata": metadata}
        for name in ("apiVersion", "kind"):
            properties.setdefault(name, {"type": "string", "description": DESCRIPTIONS.get(name, "")})
        schema["properties"] = properties
        _add_message(message_shape("meta.v1.ObjectMeta"), schemas)
    else:
        shape = shape_of(kind)
        schema = {"type": "object"}
        if shape.form == "object":
            _add_message(shape, schemas)
            schema = schemas[_component(shape.name)]
    schema["x-kubernetes-group-version-kind"] = [group_version_kind]
    schemas[schema_name(kind)] = schema


def _add_message(shape: Shape, schemas: dict[str, Any]) -> None:
    name = _component(shape.name)
    if name in schemas:
        return
    schema: dict[str, Any] = {"type": "object"}
    schemas[name] = schema
    if shape.name in DESCRIPTIONS:
        schema["description"] = DESCRIPTIONS[shape.name]
    properties = {}
    for field, member in shape.fields.items():
        described = _member_schema(member, schemas)
        text = DESCRIPTIONS.get(f"{shape.name}.{field}") or DESCRIPTIONS.get(field)
        if text:
            described["description"] = text
        properties[field] = described
    if properties:
        schema["properties"] = properties
    required = [field for field, member in shape.fields.items() if member.required]
    if required:
        schema["required"] = required


def _member_schema(member: Member, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _shape_schema(member.shape, schemas)
    if member.shape.form == "list":
        schema["x-kubernetes-list-type"] = member.list_rule
        if member.list_rule == "map":
            schema["x-kubernetes-list-map-keys"] = list(member.keys)
    elif member.atomic and member.shape.form in ("map", "object"):
        schema["x-kubernetes-map-type"] = "atomic"
    if member.strategic:
        schema["x-kubernetes-patch-strategy"] = member.strategic
        if member.merge_key:
            schema["x-kubernetes-patch-merge-key"] = member.merge_key
    return schema


def _shape_schema(shape: Shape, schemas: dict[str, Any]) -> dict[str, Any]:
    if shape.form == "object":
        _add_message(shape, schemas)
        return {"default": {}, "allOf": [{"$ref": _ref(shape.name)}]}
    if shape.form == "list":
        return {"type": "array", "items": _shape_schema(shape.item, schemas) if shape.item else {}}
    if shape.form == "map":
        return {
            "type": "object",
            "additionalProperties": _shape_schema(shape.item, schemas) if shape.item else {},
        }
    if shape.form == "any":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return dict(_SCALARS.get(shape.name, {"type": "string"}))


def _ref(message: str) -> str:
    return f"#/components/schemas/{_component(message)}"


def _paths(kind: Kind) -> dict[str, Any]:
    root = f"/{document_name(kind)}"
    collection = (
        f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    )
    mark = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    schema = {"$ref": f"#/components/schemas/{schema_name(kind)}"}

    def operation(action: str) -> dict[str, Any]:
        return {
            "operationId": f"{action}{kind.kind}",
            "parameters": _PARAMETERS,
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": mark,
        }

    return {
        collection: {"get": operation("list"), "post": operation("post")},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }
