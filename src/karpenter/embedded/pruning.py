"""The structure of built-in objects, enforced: unknown fields go, values of the wrong type are named.

Runs before anything looks into an object, so that defaulting and validation can rely on its structure.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from karpenter.embedded.shapes import Shape

_CONTAINERS = (dict, list)
_ACCEPTED: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (str,),
    "time": (str,),
    "microtime": (str,),
    "duration": (str,),
    "bool": (bool,),
    "int32": (int,),
    "int64": (int,),
    "double": (int, float),
    "quantity": (str, int, float),
    "intorstring": (str, int),
}
_WORDS: Mapping[str, str] = {
    "bool": "true or false",
    "int32": "an integer",
    "int64": "an integer",
    "double": "a number",
    "quantity": "a quantity",
    "intorstring": "an integer or a string",
}


class Findings(msgspec.Struct):
    """What was found: paths of unknown fields, and sentences about values of the wrong type."""

    unknown: list[str] = []
    wrong: list[str] = []


def prune(shape: Shape, obj: dict[str, Any]) -> Findings:
    """Remove unknown fields and explicit nulls from `obj` in place, and report."""
    found = Findings()
    _prune(shape, obj, "", found)
    return found


def _prune(shape: Shape, value: Any, path: str, found: Findings) -> None:
    form = shape.form
    if form == "object":
        if not isinstance(value, dict):
            _wrong(found, path, "an object", value)
            return
        _prune_object(shape, value, path, found)
    elif form == "list":
        if not isinstance(value, list):
            _wrong(found, path, "a list", value)
        elif shape.item is not None:
            for index, child in enumerate(value):
                _prune(shape.item, child, f"{path}[{index}]", found)
    elif form == "map":
        if not isinstance(value, dict):
            _wrong(found, path, "a map", value)
        elif shape.item is not None:
            for name, child in value.items():
                _prune(shape.item, child, f"{path}[{name}]", found)
    elif form == "scalar" and type(value) not in _ACCEPTED.get(shape.name, (type(value),)):
        _wrong(found, path, _WORDS.get(shape.name, "a string"), value)


def _prune_object(shape: Shape, value: dict[str, Any], path: str, found: Findings) -> None:
    fields = shape.fields
    drop = []
    for name, child in value.items():
        member = fields.get(name)
        if member is None:
            drop.append(name)
            found.unknown.append(f"{path}.{name}" if path else name)
        elif child is None:
            drop.append(name)
        elif type(child) in _CONTAINERS or type(child) not in _ACCEPTED.get(member.shape.name, ()):
            _prune(member.shape, child, f"{path}.{name}" if path else name, found)
    for name in drop:
        del value[name]


def _wrong(found: Findings, path: str, wanted: str, value: Any) -> None:
    text = msgspec.json.encode(value).decode()
    shown = text if len(text) <= 60 else text[:57] + "..."
    found.wrong.append(f"{path}: expected {wanted}, got {shown}")


def unknown_fields(given: Any, pruned: Any, path: str = "") -> list[str]:
    """Return the paths of what `pruned` lacks of `given`."""
    if given == pruned:
        return []
    if isinstance(given, dict) and isinstance(pruned, dict):
        found = []
        for name, value in given.items():
            where = f"{path}.{name}" if path else name
            if name not in pruned:
                if value is not None:
                    found.append(where)
            else:
                found += unknown_fields(value, pruned[name], where)
        return found
    if isinstance(given, list) and isinstance(pruned, list):
        return [
            where
            for index, (left, right) in enumerate(zip(given, pruned, strict=False))
            for where in unknown_fields(left, right, f"{path}[{index}]")
        ]
    return []
