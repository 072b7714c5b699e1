"""What the server knows of each kind's structure, from two sources behind one face.

A `Shape` says what a value is: a scalar, an object with known fields, a map, or a list with a merge rule.
Built-in kinds take theirs from `fields.json` (names, types, protobuf numbers and merge keys of Kubernetes
1.36, derived by tools/field_tables.py); custom kinds from their OpenAPI schema. Pruning, strategic merge,
apply, the protobuf decoder and the OpenAPI documents all read shapes, so none of them knows a kind by name.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Literal, cast

import msgspec

from karpenter.embedded.kinds import Kind

Form = Literal["scalar", "object", "map", "list", "any"]
_PACKAGES = {
    "": "core.v1",
    "rbac.authorization.k8s.io": "rbac.v1",
    "storage.k8s.io": "storage.v1",
    "coordination.k8s.io": "coordination.v1",
    "scheduling.k8s.io": "scheduling.v1",
    "networking.k8s.io": "networking.v1",
    "discovery.k8s.io": "discovery.v1",
    "resource.k8s.io": "resource.v1",
    "node.k8s.io": "node.v1",
    "apiextensions.k8s.io": "apiextensions.v1",
    "authorization.k8s.io": "authorization.v1",
    "authentication.k8s.io": "authentication.v1",
}


class Field(msgspec.Struct, frozen=True, array_like=True):
    """One row of `fields.json`."""

    number: int
    type: str
    shape: str  # "" one, "*" list, "m" map by string
    flags: int  # 1 required, 2 zero differs from absent
    list_type: str
    keys: str
    strategy: str
    merge_key: str


class Shape(msgspec.Struct, kw_only=True, eq=False):
    """The structure of a value. May refer to itself."""

    form: Form
    name: str = ""  # of the message or scalar type
    fields: dict[str, "Member"] = {}  # of an object
    item: "Shape | None" = None  # of a list or map
    inlined: tuple[tuple[int, "Shape"], ...] = ()  # protobuf messages whose fields are ours in JSON

    def member(self, name: str) -> "Member":
        """Return what is known of a member of an object or map; unknown ones may be anything."""
        if self.form == "object":
            return self.fields.get(name, ANYTHING)
        return Member(shape=self.item) if self.form == "map" and self.item is not None else ANYTHING


class Member(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A field: its structure and how patches treat it."""

    shape: Shape
    required: bool = False
    nullable: bool = False  # zero differs from absent
    atomic: bool = False  # a map or object that apply owns as a whole
    list_rule: Literal["atomic", "set", "map"] = "atomic"
    keys: tuple[str, ...] = ()  # of a list of rule "map"
    strategic: str = ""  # patchStrategy
    merge_key: str = ""  # patchMergeKey; "" with strategy merge: a list of scalars
    number: int = 0  # in protobuf


ANY = Shape(form="any")
ANYTHING = Member(shape=ANY, atomic=True)


@cache
def field_table() -> dict[str, dict[str, Field]]:
    """Return all rows, by message."""
    data = resources.files("karpenter.embedded").joinpath("fields.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[str, Field]])


def message_name(kind: Kind) -> str:
    """Return the name of a built-in kind's message in the table."""
    package = _PACKAGES.get(kind.group, f"{kind.group}.{kind.version}")
    return f"{package}.{kind.kind}"


def shape_of(kind: Kind) -> Shape:
    """Return the structure of a kind's objects."""
    if kind.custom is None:
        return _kind_shape(message_name(kind))
    return _custom_shape(msgspec.json.encode(kind.custom.schema))


@cache
def _kind_shape(name: str) -> Shape:
    return _with_type_meta(message_shape(name))


def _with_type_meta(base: Shape) -> Shape:
    if base.form != "object":
        return base
    text = Member(shape=_scalar("string"))
    return msgspec.structs.replace(base, fields={"apiVersion": text, "kind": text, **base.fields})


_messages: dict[str, Shape] = {}


def message_shape(name: str) -> Shape:
    """Return the structure of a built-in message; ANY when the table has none of that name."""
    known = _messages.get(name)
    if known is not None:
        return known
    rows = field_table().get(name)
    if rows is None:
        return ANY
    shape = _messages[name] = Shape(form="object", name=name)
    inlined = []
    for field_name, row in sorted(rows.items()):
        if field_name.startswith("+"):
            inner = message_shape(row.type)
            shape.fields.update(inner.fields)
            inlined.append((row.number, inner))
        else:
            shape.fields[field_name] = _member(row)
    shape.inlined = tuple(inlined)
    return shape


def _member(row: Field) -> Member:
    item = _type_shape(row.type.removesuffix("*"))
    if row.type.endswith("*"):
        item = Shape(form="list", item=item)
    rule, keys = row.list_type, tuple(key for key in row.keys.split(",") if key)
    if row.shape == "*" and rule == "" and row.strategy.startswith("merge"):
        rule, keys = ("map", (row.merge_key,)) if row.merge_key else ("set", ())
    forms: dict[str, Form] = {"*": "list", "m": "map"}
    return Member(
        shape=Shape(form=forms[row.shape], item=item) if row.shape else item,
        required=bool(row.flags & 1),
        nullable=bool(row.flags & 2),
        atomic=row.list_type == "atomic",
        list_rule=cast(Any, rule if rule in ("set", "map") else "atomic"),
        keys=keys,
        strategic=row.strategy,
        merge_key=row.merge_key,
        number=row.number,
    )


def _type_shape(name: str) -> Shape:
    return message_shape(name) if "." in name else _scalar(name)


@cache
def _scalar(name: str) -> Shape:
    return Shape(form="any", name=name) if name in ("any", "raw") else Shape(form="scalar", name=name)


@lru_cache(maxsize=256)
def _custom_shape(schema: bytes) -> Shape:
    shape = _schema_shape(msgspec.json.decode(schema))
    metadata = Member(shape=message_shape("meta.v1.ObjectMeta"))
    shape = msgspec.structs.replace(shape, form="object", fields={**shape.fields, "metadata": metadata})
    return _with_type_meta(shape)


def _schema_shape(schema: Mapping[str, Any]) -> Shape:
    """Return the structure that an OpenAPI schema describes."""
    if schema.get("x-kubernetes-embedded-resource"):
        return ANY
    if schema.get("x-kubernetes-int-or-string"):
        return _scalar("intorstring")
    kind = schema.get("type")
    if kind == "array":
        return Shape(form="list", item=_schema_shape(schema.get("items") or {}))
    properties = schema.get("properties")
    if properties:
        fields = {name: _schema_member(value) for name, value in sorted(properties.items())}
        return Shape(form="object", fields=fields)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        return Shape(form="map", item=_schema_shape(extra))
    if kind in ("object", None):
        return ANY
    return _scalar(str(kind))


def _schema_member(schema: Mapping[str, Any]) -> Member:
    rule = schema.get("x-kubernetes-list-type", "atomic")
    return Member(
        shape=_schema_shape(schema),
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
        list_rule=cast(Any, rule),
        keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
    )
