"""Fields that a kind does not have: removed, and named for whoever wants to know."""

from typing import Any

from karpenter.embedded.shapes import Shape


def prune(shape: Shape, obj: dict[str, Any]) -> list[str]:
    """Remove unknown fields and explicit nulls from `obj` in place; return the unknown fields' paths."""
    unknown: list[str] = []
    _prune(shape, obj, "", unknown)
    return unknown


def _prune(shape: Shape, value: Any, path: str, unknown: list[str]) -> None:
    form = shape.form
    if form == "object" and isinstance(value, dict):
        fields = shape.fields
        drop = []
        for name, child in value.items():
            member = fields.get(name)
            if member is None:
                drop.append(name)
                unknown.append(f"{path}.{name}" if path else name)
            elif child is None:
                drop.append(name)
            elif type(child) in _CONTAINERS:
                _prune(member.shape, child, f"{path}.{name}" if path else name, unknown)
        for name in drop:
            del value[name]
    elif form == "list" and isinstance(value, list):
        item = shape.item
        if item is not None and item.form not in ("scalar", "any"):
            for index, child in enumerate(value):
                _prune(item, child, f"{path}[{index}]", unknown)
    elif form == "map" and isinstance(value, dict):
        item = shape.item
        if item is not None and item.form not in ("scalar", "any"):
            for name, child in value.items():
                _prune(item, child, f"{path}.{name}", unknown)


_CONTAINERS = (dict, list)


def unknown_fields(given: Any, pruned: Any, path: str = "") -> list[str]:
    """Return the paths of what `pruned` lacks of `given`."""
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
