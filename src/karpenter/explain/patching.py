"""Objects as they will be with a change made to them."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from karpenter.explain.answer import Operation

T = TypeVar("T", bound=msgspec.Struct)


def patched(obj: T, patch: Iterable[Operation], root: str = "") -> T:
    """Return `obj` with the operations made to it whose paths begin at `root`, which stands for it.

    Raises:
        ValueError: when the outcome is no object of its kind, or a path leads nowhere.
    """
    raw = msgspec.to_builtins(obj)
    for operation in patch:
        path = [
            p.replace("~1", "/").replace("~0", "~") for p in operation.path.removeprefix(root).split("/")[1:]
        ]
        _make(raw, path, operation)
    return msgspec.convert(raw, type(obj))


def _make(raw: Any, path: list[str], operation: Operation) -> None:
    *parents, last = path
    for name in parents:
        if isinstance(raw, list):
            raw = raw[_index(name, raw)]
        else:
            raw = raw.setdefault(name, {}) if operation.op != "remove" else raw.get(name, {})
    if isinstance(raw, list):
        _edit(raw, last, operation)
    elif operation.op == "remove":
        raw.pop(last, None)
    else:
        raw[last] = operation.value


def _edit(items: list[Any], last: str, operation: Operation) -> None:
    if operation.op == "add":
        items.insert(len(items) if last == "-" else _index(last, items), operation.value)
    elif operation.op == "remove":
        del items[_index(last, items)]
    else:
        items[_index(last, items)] = operation.value


def _index(text: str, items: list[Any]) -> int:
    if not text.isdigit() or int(text) >= len(items):
        raise ValueError(f"path leads to element {text!r} of a list of {len(items)}")
    return int(text)
