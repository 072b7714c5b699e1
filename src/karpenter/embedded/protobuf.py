"""Protobuf request bodies, for clients that send nothing else (`kubectl create namespace`, `auth can-i`).

A body is the four bytes `k8s\\0` and an envelope naming the kind; inside is the message, whose field numbers
the shapes know. Only decoding: answers are always JSON, which every client takes.
"""

import base64
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from karpenter.base.clock import format_micro_time, format_time
from karpenter.embedded.errors import StatusError, bad_request
from karpenter.embedded.kinds import Kind
from karpenter.embedded.shapes import Member, Shape, message_name, message_shape

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAX_DEPTH = 64
_MAGIC = b"k8s\x00"
Wire = int | bytes


def decode(body: bytes) -> dict[str, Any]:
    """Return the object in an envelope, as its JSON form.

    Raises:
        StatusError: 400 when it is malformed, 415 when it is of a kind that has no field table.
    """
    if body[:4] != _MAGIC:
        raise bad_request("the body is not Kubernetes protobuf: it does not start with k8s\\0")
    try:
        envelope = dict(_fields(body[4:]))
        type_meta = dict(_fields(_bytes(envelope.get(1, b""))))
        api_version, kind = _text(type_meta.get(1, b"")), _text(type_meta.get(2, b""))
        raw = _bytes(envelope.get(2, b""))
        shape = message_of(api_version, kind)
        if shape.form != "object":
            raise StatusError(
                415,
                "UnsupportedMediaType",
                f"protobuf bodies of {api_version}, Kind={kind} are not supported; send application/json",
            )
        return {"apiVersion": api_version, "kind": kind, **_message(shape, raw, 0)}
    except (ValueError, IndexError, struct.error) as error:
        raise bad_request(f"the body is not valid protobuf: {error}") from None


def message_of(api_version: str, kind: str) -> Shape:
    """Return the structure of a kind named by an envelope; of form "any" when unknown."""
    group, _, version = api_version.rpartition("/")
    if kind in ("DeleteOptions", "CreateOptions", "PatchOptions", "UpdateOptions"):
        return message_shape(f"meta.v1.{kind}")
    stand_in = Kind(group=group, version=version, plural="", kind=kind, namespaced=False)
    return message_shape(message_name(stand_in))


def _message(shape: Shape, data: bytes, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise ValueError(f"messages are nested deeper than {MAX_DEPTH}")
    by_number = {member.number: (name, member) for name, member in shape.fields.items() if member.number}
    inlined = dict(shape.inlined)
    for _, inner in shape.inlined:
        for name in inner.fields:
            by_number = {n: found for n, found in by_number.items() if found[0] != name}
    result: dict[str, Any] = {}
    for number, value in _fields(data):
        if number in inlined:
            result.update(_message(inlined[number], _bytes(value), depth + 1))
            continue
        found = by_number.get(number)
        if found is None:
            continue  # a newer client's field
        name, member = found
        _set(result, name, member, value, depth)
    return result


def _set(result: dict[str, Any], name: str, member: Member, value: Wire, depth: int) -> None:
    shape = member.shape
    if shape.form == "list":
        items = result.setdefault(name, [])
        item = shape.item
        if isinstance(value, bytes) and item is not None and item.name in ("int32", "int64"):
            items.extend(_varints(value))  # packed
        else:
            items.append(_value(item or Shape(form="any"), value, depth))
    elif shape.form == "map":
        entry = dict(_fields(_bytes(value)))
        result.setdefault(name, {})[_text(entry.get(1, b""))] = _value(
            shape.item or Shape(form="any"), entry.get(2, b""), depth
        )
    else:
        decoded = _value(shape, value, depth)
        # Go writes zeros of plain fields, which its JSON form leaves out.
        zero = decoded in ("", 0) and not member.required and not member.nullable
        if decoded is not None and not zero:
            result[name] = decoded


def _value(shape: Shape, value: Wire, depth: int) -> Any:
    if shape.form == "object":
        return _message(shape, _bytes(value), depth + 1)
    if shape.form == "list":
        return [
            _value(shape.item or Shape(form="any"), item, depth + 1) for _, item in _fields(_bytes(value))
        ]
    kind = shape.name
    if kind in ("string", ""):
        return _text(value)
    if kind in ("int32", "int64"):
        return _signed(value)
    if kind == "bool":
        return bool(value)
    if kind == "bytes":
        return base64.b64encode(_bytes(value)).decode()
    if kind == "double":
        return struct.unpack("<d", _bytes(value))[0]
    inner = dict(_fields(_bytes(value)))
    if kind == "quantity":
        return _text(inner.get(1, b""))
    if kind == "intorstring":
        return _text(inner.get(3, b"")) if inner.get(1) else _signed(inner.get(2, 0))
    if kind in ("time", "microtime"):
        seconds = _signed(inner.get(1, 0)) + _signed(inner.get(2, 0)) / 1e9
        if not inner:
            return None
        return format_time(seconds) if kind == "time" else format_micro_time(seconds)
    raw = _bytes(inner.get(1, b""))  # raw, any: JSON inside
    return msgspec.json.decode(raw) if raw else None


def _fields(data: bytes) -> Iterator[tuple[int, Wire]]:
    """Yield a message's fields in wire order: numbers and their undecoded values."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        value: Wire
        if wire == 0:
            value, position = _varint(data, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, position = data[position : position + size], position + size
        elif wire == 2:
            size, position = _varint(data, position)
            value, position = data[position : position + size], position + size
        else:
            raise ValueError(f"wire type {wire} of field {number}")
        if position > len(data):
            raise ValueError(f"field {number} is cut off")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


def _varints(data: bytes) -> list[int]:
    values, position = [], 0
    while position < len(data):
        value, position = _varint(data, position)
        values.append(_signed(value))
    return values


def _signed(value: Wire) -> int:
    if isinstance(value, bytes):
        raise ValueError("a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: Wire) -> bytes:
    if isinstance(value, int):
        raise ValueError("a message was expected")
    return value


def _text(value: Wire) -> str:
    return _bytes(value).decode()
