"""Server-side apply: merge what a manager declares, remember what it owns, refuse to take from others.

Ownership is a set of paths, each a tuple of segments as in `managedFields.fieldsV1`: `f:NAME` for a field,
`k:{...}` for a list item by its keys, `v:...` for a member of a set, and `.` for the object or item itself.

A manager that stops declaring what it owned alone removes it. A value that another manager owns and that
would change is a conflict, unless forced: then ownership moves.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from karpenter.embedded.shapes import ANY, Member, Shape

Path = tuple[str, ...]
Paths = frozenset[Path]
_NOT_OWNED = frozenset({("f:apiVersion",), ("f:kind",)})
_META_NOT_OWNED = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "generateName",
    }
)


class Manager(msgspec.Struct, frozen=True):
    """One managedFields entry, decoded."""

    name: str
    operation: str  # Apply or Update
    subresource: str
    paths: Paths
    api_version: str = "v1"
    time: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        return (self.name, self.operation, self.subresource)


class ApplyConflict(Exception):
    """Others own what this apply would change."""

    def __init__(self, conflicts: list[tuple[str, Path]]) -> None:
        self.conflicts = conflicts
        by_manager: dict[str, list[str]] = {}
        for manager, path in conflicts:
            by_manager.setdefault(manager, []).append(display(path))
        plural = "s" if len(conflicts) > 1 else ""
        lines = [
            f'conflict{"s" if len(paths) > 1 else ""} with "{manager}": {", ".join(paths)}'
            for manager, paths in sorted(by_manager.items())
        ]
        super().__init__(f"Apply failed with {len(conflicts)} conflict{plural}: {'; '.join(lines)}")

    def details(self) -> dict[str, Any]:
        """Return Status details, a cause per field, as kubectl prints them."""
        return {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{name}"',
                    "field": display(path),
                }
                for name, path in self.conflicts
            ]
        }


class Applied(msgspec.Struct, frozen=True):
    """The merged object and the managedFields it is to carry."""

    object: dict[str, Any]
    managers: list[dict[str, Any]]


def apply_patch(
    shape: Shape,
    live: dict[str, Any] | None,
    declared: dict[str, Any],
    *,
    manager: str,
    force: bool,
    subresource: str,
    api_version: str,
    now: str,
) -> Applied:
    """Apply what `manager` declares to `live` (None: there is no such object yet).

    Raises:
        ApplyConflict: when another manager owns a field that would change, unless `force`.
    """
    managers = decode_managers(live["metadata"].get("managedFields")) if live else []
    if live is not None and not managers:
        managers = [Manager("before-first-apply", "Update", "", owned_paths(shape, live), api_version, now)]
    identity = (manager, "Apply", subresource)
    others = [entry for entry in managers if entry.identity != identity]
    mine = next((entry for entry in managers if entry.identity == identity), None)
    wanted = owned_paths(shape, declared)
    base = live or {}
    merged = merge(shape, base, declared)
    taken = [
        (entry.name, path)
        for entry in others
        for path in sorted(wanted & entry.paths)
        if path[-1] != "." and not equal_at(shape, base, merged, path)
    ]
    if taken and not force:
        raise ApplyConflict(taken)
    lost = {path for _, path in taken}
    others = [msgspec.structs.replace(entry, paths=entry.paths - lost) for entry in others]
    if mine is not None:
        merged = remove_given_up(shape, merged, mine.paths, wanted.union(*(entry.paths for entry in others)))
    stamp = mine.time if mine is not None and mine.paths == wanted else now
    entry = Manager(manager, "Apply", subresource, wanted, api_version, stamp)
    return Applied(merged, encode_managers([*others, entry]))


def remove_given_up(shape: Shape, obj: dict[str, Any], before: Paths, kept: Paths) -> dict[str, Any]:
    """Return an object without what a manager owned and nobody owns any more."""
    gone = before - kept
    removed: set[Path] = set()
    for path in sorted(path for path in gone if path[-1] == "."):
        item = path[:-1]
        if not any(other[: len(item)] == item for other in kept):
            obj = without(shape, obj, item)
            removed.add(item)
    for path in sorted(path for path in gone if path[-1] != "."):
        inside_removed = any(path[:length] in removed for length in range(1, len(path)))
        is_parent = any(other[: len(path)] == path for other in kept)
        if not inside_removed and not is_parent and not _is_key(path):
            obj = without(shape, obj, path)
    return obj


def _is_key(path: Path) -> bool:
    """Tell whether a path is a field that identifies its list item."""
    if len(path) < 2 or not path[-2].startswith("k:"):
        return False
    return path[-1][2:] in msgspec.json.decode(path[-2][2:])


def owned_paths(shape: Shape, obj: Mapping[str, Any]) -> Paths:
    """Return the paths of everything an object says, but for what identifies it and the system keeps."""
    paths: set[Path] = set()
    _collect(shape, obj, (), paths)
    return frozenset(
        path
        for path in paths
        if path[:1] not in _NOT_OWNED
        and not (path[0] == "f:metadata" and (len(path) == 1 or path[1][2:] in _META_NOT_OWNED))
    )


def _collect(shape: Shape, value: Mapping[str, Any], prefix: Path, paths: set[Path]) -> None:
    for name, child in value.items():
        _collect_member(shape.member(name), child, (*prefix, f"f:{name}"), paths)


def _collect_member(member: Member, value: Any, path: Path, paths: set[Path]) -> None:
    if isinstance(value, dict) and value and not member.atomic and member.shape.form in ("object", "map"):
        _collect(member.shape, value, path, paths)
    elif isinstance(value, list) and member.list_rule == "set" and member.shape.form == "list":
        for item in value:
            paths.add((*path, _set_segment(item)))
    elif isinstance(value, list) and member.list_rule == "map" and member.shape.form == "list":
        for item in value:
            if isinstance(item, dict):
                where = (*path, _key_segment(member, item))
                paths.add((*where, "."))
                _collect(member.shape.item or ANY, item, where, paths)
    else:
        paths.add(path)


def _set_segment(item: Any) -> str:
    return "v:" + msgspec.json.encode(item).decode()


def _key_segment(member: Member, item: Mapping[str, Any]) -> str:
    keys = {key: item.get(key, "TCP" if key == "protocol" else None) for key in sorted(member.keys)}
    return "k:" + msgspec.json.encode({k: v for k, v in keys.items() if v is not None}).decode()


def merge(shape: Shape, live: Any, declared: Any) -> Any:
    """Return `live` with `declared` laid over it, lists by their rules."""
    result = dict(live) if isinstance(live, dict) else {}
    for name, value in declared.items():
        member = shape.member(name)
        result[name] = _merge_member(member, result.get(name), value)
    return result


def _merge_member(member: Member, live: Any, value: Any) -> Any:
    form = member.shape.form
    if isinstance(value, dict) and not member.atomic and form in ("object", "map"):
        return merge(member.shape, live, value)
    if isinstance(value, list) and isinstance(live, list) and form == "list":
        if member.list_rule == "set":
            return live + [item for item in value if item not in live]
        if member.list_rule == "map":
            return _merge_items(member, live, value)
    return value


def _merge_items(member: Member, live: list[Any], value: list[Any]) -> list[Any]:
    item_shape = member.shape.item or ANY
    by_key = {_key_segment(member, item): index for index, item in enumerate(live) if isinstance(item, dict)}
    result = list(live)
    for item in value:
        if not isinstance(item, dict):
            result.append(item)
            continue
        index = by_key.get(_key_segment(member, item))
        if index is None:
            result.append(item)
        else:
            result[index] = merge(item_shape, result[index], item)
    return result


def get_at(shape: Shape, obj: Any, path: Path) -> tuple[bool, Any]:
    """Return whether there is something at `path`, and what."""
    value, member = obj, Member(shape=shape)
    for segment in path:
        if segment == ".":
            continue
        if segment.startswith("f:"):
            if not isinstance(value, dict) or segment[2:] not in value:
                return False, None
            member, value = member.shape.member(segment[2:]), value[segment[2:]]
        else:
            index = _item_index(member, value, segment)
            if index is None:
                return False, None
            member, value = Member(shape=member.shape.item or ANY), value[index]
    return True, value


def equal_at(shape: Shape, left: Any, right: Any, path: Path) -> bool:
    """Tell whether two objects say the same at `path`."""
    return get_at(shape, left, path) == get_at(shape, right, path)


def _item_index(member: Member, value: Any, segment: str) -> int | None:
    if not isinstance(value, list):
        return None
    for index, item in enumerate(value):
        name = _set_segment(item) if segment.startswith("v:") else None
        if name is None and isinstance(item, dict):
            name = _key_segment(member, item)
        if name == segment:
            return index
    return None


def without(shape: Shape, obj: Any, path: Path) -> Any:
    """Return a copy of an object without what is at `path`; emptied parents stay away too."""
    return _without(Member(shape=shape), obj, path)


def _without(member: Member, value: Any, path: Path) -> Any:
    segment, rest = path[0], path[1:]
    if segment.startswith("f:"):
        name = segment[2:]
        if not isinstance(value, dict) or name not in value:
            return value
        result = dict(value)
        if rest:
            child = _without(member.shape.member(name), value[name], rest)
            if child in ({}, []) and value[name] not in ({}, []):
                del result[name]
            else:
                result[name] = child
        else:
            del result[name]
        return result
    index = _item_index(member, value, segment)
    if index is None:
        return value
    items = list(value)
    if rest:
        items[index] = _without(Member(shape=member.shape.item or ANY), items[index], rest)
    else:
        del items[index]
    return items


def decode_managers(entries: Any) -> list[Manager]:
    """Read an object's managedFields."""
    return [
        Manager(
            name=entry.get("manager", ""),
            operation=entry.get("operation", "Update"),
            subresource=entry.get("subresource", ""),
            paths=decode_fields(entry.get("fieldsV1") or {}),
            api_version=entry.get("apiVersion", ""),
            time=entry.get("time", ""),
        )
        for entry in entries or []
        if isinstance(entry, dict)
    ]


def encode_managers(managers: list[Manager]) -> list[dict[str, Any]]:
    """Write managedFields; managers that own nothing any more are left out."""
    entries = []
    for manager in sorted(managers, key=lambda entry: entry.identity):
        if not manager.paths:
            continue
        entry: dict[str, Any] = {"manager": manager.name, "operation": manager.operation}
        entry |= {"apiVersion": manager.api_version, "time": manager.time, "fieldsType": "FieldsV1"}
        entry["fieldsV1"] = encode_fields(manager.paths)
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def encode_fields(paths: Paths) -> dict[str, Any]:
    """Return a path set as nested fieldsV1."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for segment in path:
            node = node.setdefault(segment, {})
    return tree


def decode_fields(tree: Mapping[str, Any]) -> Paths:
    """Return nested fieldsV1 as a path set."""
    paths: set[Path] = set()

    def walk(node: Mapping[str, Any], prefix: Path) -> None:
        for segment, child in node.items():
            path = (*prefix, segment)
            if child:
                walk(child, path)
            else:
                paths.add(path)

    walk(tree, ())
    return frozenset(paths)


def display(path: Path) -> str:
    """Render a path as conflicts show it: `.spec.containers[name="a"].image`."""
    text = ""
    for segment in path:
        if segment == ".":
            continue
        if segment.startswith("f:"):
            text += f".{segment[2:]}"
        elif segment.startswith("k:"):
            keys = msgspec.json.decode(segment[2:])
            inner = ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items())
            text += f"[{inner}]"
        else:
            text += f"[={segment[2:]}]"
    return text
