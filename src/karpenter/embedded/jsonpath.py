"""The slice of kubectl's JSONPath that printer columns use: fields, indices, wildcards, equality filters."""

import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\]\\])+)          # .field, dots in it escaped with a backslash
      | \[\?\(@\.(?P<key>[\w.\-]+)\s*==\s*["'](?P<value>[^"']*)["']\)\]
      | \[["'](?P<quoted>[^"']+)["']\]
      | \[(?P<index>-?\d+|\*)\]
    """,
    re.VERBOSE,
)


def lookup(data: Any, path: str) -> list[Any]:
    """Return all values at `path` (such as `.status.conditions[?(@.type=="Ready")].status`), in order.

    Raises:
        ValueError: when the path is not of the supported form.
    """
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if path and path[0] not in ".[":
        path = "." + path
    values, position = [data], 0
    while position < len(path):
        token = _TOKEN.match(path, position)
        if token is None:
            raise ValueError(f"JSONPath {path!r} is not supported from character {position} on")
        values = [found for value in values for found in _step(value, token)]
        position = token.end()
    return values


def _step(value: Any, token: re.Match[str]) -> list[Any]:
    field = token["field"] or token["quoted"]
    if field is not None:
        name = field.replace("\\.", ".")
        if name == "*":
            return _children(value)
        return [value[name]] if isinstance(value, Mapping) and value.get(name) is not None else []
    if token["key"] is not None:
        return [item for item in _children(value) if lookup(item, token["key"]) == [token["value"]]]
    if token["index"] == "*":
        return _children(value)
    index = int(token["index"])
    return [value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else []


def _children(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return list(value.values()) if isinstance(value, Mapping) else []
