"""Patches as pure functions: RFC 7386 (merge) and RFC 6902 (JSON patch).

Strategic merge is in `karpenter.embedded.strategic`, server-side apply in `karpenter.embedded.apply`.
None of them changes its input.
"""

from typing import Any

MAX_OPERATIONS = 10_000


class PatchError(ValueError):
    """The patch cannot be applied; says which part and why. `code` is the HTTP status it deserves."""

    def __init__(self, message: str, code: int = 422) -> None:
        super().__init__(message)
        self.code = code


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with an RFC 7386 patch applied: null deletes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge_patch(result.get(name), value)
        else:
            result[name] = value
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """Return `target` with an RFC 6902 patch applied, all of it or (raising) none.

    Raises:
        PatchError: when an operation is malformed, its path does not exist, or a test fails.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations", 400)
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(f"a JSON patch has at most {MAX_OPERATIONS} operations, got {len(operations)}", 413)
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise PatchError(f"operation {index}: must be an object with op and path", 400)
        target = _operate(target, operation, index)
    return target


def _operate(target: Any, operation: dict[str, Any], index: int) -> Any:
    op, path = operation["op"], _pointer(operation["path"], index)
    where = f"operation {index} ({op} {operation['path']})"
    if op in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"{where}: has no value", 400)
    if op == "add":
        return _edit(target, path, where, "add", operation["value"])
    if op == "remove":
        return _edit(target, path, where, "remove", None)
    if op == "replace":
        return _edit(target, path, where, "replace", operation["value"])
    if op == "test":
        found = _read(target, path, where)
        if not same(found, operation["value"]):
            raise PatchError(f"{where}: the value is {found!r}, not {operation['value']!r}")
        return target
    if op in ("move", "copy"):
        source = _pointer(operation.get("from", ""), index)
        value = _read(target, source, where)
        if op == "move":
            if path[: len(source)] == source and path != source:
                raise PatchError(f"{where}: cannot move a value into itself")
            target = _edit(target, source, where, "remove", None)
        return _edit(target, path, where, "add", value)
    raise PatchError(f"operation {index}: unknown op {op!r}", 400)


def same(left: Any, right: Any) -> bool:
    """Tell whether two JSON values are equal (numbers by value; true is not 1)."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def _pointer(text: Any, index: int) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"operation {index}: {text!r} is not a JSON pointer", 400)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _read(target: Any, path: list[str], where: str) -> Any:
    for part in path:
        if isinstance(target, dict):
            if part not in target:
                raise PatchError(f"{where}: there is no {part!r}")
            target = target[part]
        elif isinstance(target, list):
            target = target[_index(target, part, where, end=False)]
        else:
            raise PatchError(f"{where}: {part!r} is looked for in a plain value")
    return target


def _edit(target: Any, path: list[str], where: str, op: str, value: Any) -> Any:
    """Return a copy of `target` changed at `path`; only what lies on the path is copied."""
    if not path:
        if op == "remove":
            raise PatchError(f"{where}: the whole document cannot be removed")
        return value
    part, rest = path[0], path[1:]
    if isinstance(target, dict):
        result = dict(target)
        if rest:
            if part not in target:
                raise PatchError(f"{where}: there is no {part!r}")
            result[part] = _edit(target[part], rest, where, op, value)
        elif op == "remove" and part not in target:  # `replace` adds, as the real server's library does
            raise PatchError(f"{where}: there is no {part!r}")
        elif op == "remove":
            del result[part]
        else:
            result[part] = value
        return result
    if isinstance(target, list):
        items = list(target)
        index = _index(items, part, where, end=op == "add" and not rest)
        if rest:
            items[index] = _edit(items[index], rest, where, op, value)
        elif op == "add":
            items.insert(index, value)
        elif op == "remove":
            del items[index]
        else:
            items[index] = value
        return items
    raise PatchError(f"{where}: {part!r} is looked for in a plain value")


def _index(items: list[Any], part: str, where: str, *, end: bool) -> int:
    if end and part == "-":
        return len(items)
    if not part.isdigit() or (len(part) > 1 and part[0] == "0"):
        raise PatchError(f"{where}: {part!r} is not a list index")
    index = int(part)
    if index >= len(items) + (1 if end else 0):
        raise PatchError(f"{where}: index {index} is beyond the list's {len(items)} items")
    return index
