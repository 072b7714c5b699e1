"""Strategic merge patches: RFC 7386 with lists that merge by key, and directives.

Directives: `$patch: replace|delete|merge`, `$retainKeys`, `$setElementOrder/FIELD`,
`$deleteFromPrimitiveList/FIELD`. The merge keys come from the kind's shape. Inputs are not changed.
"""

from collections.abc import Mapping
from typing import Any

from karpenter.embedded.patches import PatchError
from karpenter.embedded.shapes import Member, Shape

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def strategic_merge(shape: Shape, target: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """Return `target` with a strategic merge patch applied.

    Raises:
        PatchError: when a directive is malformed or a list item lacks its merge key.
    """
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch must be an object", 400)
    return _merge_object(shape, target, patch, "")


def _merge_object(
    shape: Shape, target: Mapping[str, Any], patch: Mapping[str, Any], path: str
) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"{path or 'the patch'}: unknown $patch directive {directive!r}", 400)
    result = dict(target)
    retain = patch.get("$retainKeys")
    if retain is not None:
        if not isinstance(retain, list):
            raise PatchError(f"{path}: $retainKeys must be a list", 400)
        result = {name: value for name, value in result.items() if name in retain}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        where = f"{path}.{name}" if path else name
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge_value(shape.member(name), result.get(name), value, where)
    for name, value in patch.items():
        if name.startswith(_DELETE):
            _delete_primitives(result, name.removeprefix(_DELETE), value)
    for name, value in patch.items():
        if name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            if isinstance(result.get(field), list) and isinstance(value, list):
                result[field] = _ordered(shape.member(field), result[field], value)
    return result


def _merge_value(member: Member, current: Any, value: Any, where: str) -> Any:
    if isinstance(value, dict):
        base = current if isinstance(current, dict) else {}
        if "retainKeys" in member.strategic and "$retainKeys" not in value and "$patch" not in value:
            return _clean(value) if not base else _merge_object(member.shape, base, value, where)
        return _merge_object(member.shape, base, value, where)
    if isinstance(value, list):
        merges = member.strategic.split(",")[0] == "merge"
        if not merges:
            return [_clean(item) for item in value]
        base_list = current if isinstance(current, list) else []
        if member.merge_key:
            return _merge_list(member, base_list, value, where)
        return base_list + [item for item in value if item not in base_list]
    return value


def _merge_list(member: Member, current: list[Any], patch: list[Any], where: str) -> list[Any]:
    key = member.merge_key
    item_shape = member.shape.item or Shape(form="any")
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [
            _clean(item) for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")
        ]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchError(f"{where}: a list item of the patch has no merge key {key!r}", 400)
        matches = [
            i for i, have in enumerate(result) if isinstance(have, dict) and have.get(key) == item[key]
        ]
        if item.get("$patch") == "delete":
            result = [have for i, have in enumerate(result) if i not in matches]
        elif not matches:
            result.append(_merge_object(item_shape, {}, item, where))
        else:
            result[matches[0]] = _merge_object(item_shape, result[matches[0]], item, where)
    return _interleaved(key, result, current, patch)


def _interleaved(key: str, merged: list[Any], before: list[Any], patch: list[Any]) -> list[Any]:
    """Put what the patch names in its order, and what only the server has before what it stood before."""
    place = {_hashable(item.get(key)): i for i, item in reversed(list(enumerate(before)))}
    order = {_hashable(item.get(key)): i for i, item in reversed(list(enumerate(patch)))}
    named = [item for item in merged if _hashable(item.get(key)) in order]
    named.sort(key=lambda item: order[_hashable(item.get(key))])
    others = [item for item in merged if _hashable(item.get(key)) not in order]
    result: list[Any] = []
    while named and others:
        left = place.get(_hashable(others[0].get(key)), -1)
        right = place.get(_hashable(named[0].get(key)), -1)
        result.append(others.pop(0) if 0 <= left < right else named.pop(0))
    return result + others + named


def _delete_primitives(result: dict[str, Any], field: str, values: Any) -> None:
    current = result.get(field)
    if isinstance(current, list) and isinstance(values, list):
        result[field] = [item for item in current if item not in values]


def _ordered(member: Member, items: list[Any], order: list[Any]) -> list[Any]:
    """Put the items the patch names in its order; others keep their place relative to their predecessor."""
    key = member.merge_key

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    positions = {_hashable(name): index for index, name in enumerate(wanted)}
    named = sorted(
        (item for item in items if _hashable(identity(item)) in positions),
        key=lambda item: positions[_hashable(identity(item))],
    )
    queue = iter(named)
    return [next(queue) if _hashable(identity(item)) in positions else item for item in items]


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _clean(value: Any) -> Any:
    """Drop directives and nulls from what is taken over as it is."""
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items() if not k.startswith("$") and v is not None}
    return [_clean(item) for item in value] if isinstance(value, list) else value
