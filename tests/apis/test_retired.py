"""Old manifests are refused with the names their fields have today."""

from typing import Any

import pytest

from karpenter.apis.retired import RETIRED, retired_errors


def nested(path: str) -> dict[str, Any]:
    value: Any = "x"
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [(*key, path) for key, kind in RETIRED.items() for path in kind.fields],
)
def test_every_retired_field_is_sent_to_its_successor(version: str, kind: str, path: str) -> None:
    """The kind is refused, and a field that moved is named with its new place."""
    found = retired_errors({"apiVersion": version, "kind": kind, **nested(path)})
    entry = RETIRED[(version, kind)]
    assert found[0].field == "apiVersion"
    assert entry.successor in found[0].fix
    moved = entry.fields[path] != path
    assert [e.field for e in found[1:]] == ([path] if moved else [])
    if moved:
        assert entry.fields[path] in found[1].fix


def test_current_kinds_pass() -> None:
    """What is not retired is not touched."""
    assert retired_errors({"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}) == []
    assert retired_errors({"kind": "NodePool"}) == []
