"""Merge, JSON and strategic patches."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.embedded.kinds import BUILTIN
from karpenter.embedded.patches import PatchError, json_patch, merge_patch, same
from karpenter.embedded.shapes import shape_of
from karpenter.embedded.strategic import strategic_merge

POD = shape_of(next(kind for kind in BUILTIN if kind.plural == "pods" and kind.group == ""))
SERVICE = shape_of(next(kind for kind in BUILTIN if kind.plural == "services"))
KEYS = st.sampled_from("abc")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples(target: Any, patch: Any, result: Any) -> None:
    """The examples of RFC 7386."""
    assert merge_patch(target, patch) == result


@given(VALUES, VALUES)
def test_merge_patch_is_idempotent_and_pure(target: Any, patch: Any) -> None:
    """Applying a patch twice is applying it once, and inputs stay as they were."""
    before, patch_before = copy.deepcopy(target), copy.deepcopy(patch)
    once = merge_patch(target, patch)
    assert same(merge_patch(once, patch), once)
    assert (target, patch) == (before, patch_before)


@given(VALUES, st.dictionaries(KEYS, VALUES, max_size=3).map(without_nulls))
def test_merge_patch_onto_nothing_gives_the_patch(target: Any, document: Any) -> None:
    """An empty object patched with a document without nulls is that document, and {} changes no object."""
    assert same(merge_patch({}, document), document)
    if isinstance(target, dict):
        assert same(merge_patch(target, {}), target)


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/b"}], {"a": 1}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": {"x": 1}}], {"a": {"x": 1}}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
        ({"x/y~z": 1}, [{"op": "replace", "path": "/x~1y~0z", "value": 2}], {"x/y~z": 2}),
        ({"a": 1}, [{"op": "add", "path": "", "value": []}], []),
    ],
)
def test_json_patch_examples(target: Any, operations: Any, result: Any) -> None:
    """Each operation of RFC 6902."""
    before = copy.deepcopy(target)
    assert json_patch(target, operations) == result
    assert target == before


@pytest.mark.parametrize(
    ("target", "operations", "complaint"),
    [
        ({}, [{"op": "remove", "path": "/a"}], "there is no 'a'"),
        ({"a": [1]}, [{"op": "add", "path": "/a/3", "value": 1}], "beyond"),
        ({"a": [1]}, [{"op": "add", "path": "/a/01", "value": 1}], "not a list index"),
        ({"a": True}, [{"op": "test", "path": "/a", "value": 1}], "the value is True"),
        ({}, [{"op": "frob", "path": "/a"}], "unknown op 'frob'"),
        ({}, [{"op": "add", "path": "a", "value": 1}], "not a JSON pointer"),
        ({}, [{"op": "add", "path": "/a"}], "has no value"),
        ({}, {"op": "add"}, "is a list"),
        ({"a": {}}, [{"op": "move", "from": "/a", "path": "/a/b"}], "into itself"),
    ],
)
def test_json_patch_refusals(target: Any, operations: Any, complaint: str) -> None:
    """A patch that does not fit says which operation and why."""
    with pytest.raises(PatchError, match=complaint):
        json_patch(target, operations)


def test_strategic_merges_containers_by_name() -> None:
    """A named container is changed in place, a new one is added, others stay."""
    pod = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    patch = {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}}
    result = strategic_merge(POD, pod, patch)
    images = [(c["name"], c["image"]) for c in result["spec"]["containers"]]
    assert images == [("a", "1"), ("b", "2"), ("c", "3")]
    assert pod["spec"]["containers"][1]["image"] == "1"


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            {"spec": {"containers": [{"name": "b"}]}},
        ),
        (
            {"spec": {"containers": [{"name": "a"}]}},
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}},
            {"spec": {"containers": [{"name": "z"}]}},
        ),
        (
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"$patch": "replace", "c": "3"}}},
            {"metadata": {"labels": {"c": "3"}}},
        ),
        (
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b"]}},
        ),
        (
            {"metadata": {"finalizers": ["a"]}},
            {"metadata": {"finalizers": ["c"]}},
            {"metadata": {"finalizers": ["a", "c"]}},
        ),
        (
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {
                "spec": {
                    "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]
                }
            },
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
        ),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
                    "containers": [{"name": "c"}],
                }
            },
            {"spec": {"containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}},
        ),
        (
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
        ),
    ],
)
def test_strategic_directives(target: Any, patch: Any, result: Any) -> None:
    """Directives and lists without merge key."""
    assert strategic_merge(POD, target, patch) == result


def test_strategic_merge_keys_depend_on_the_kind() -> None:
    """A service's ports merge by port, a container's by containerPort."""
    service = {"spec": {"ports": [{"port": 80, "name": "a"}]}}
    merged = strategic_merge(SERVICE, service, {"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 81}]}})
    assert merged["spec"]["ports"] == [{"port": 80, "name": "b"}, {"port": 81}]


def test_strategic_refuses_items_without_key() -> None:
    """A list item that cannot be matched is an error, not an append."""
    with pytest.raises(PatchError, match=r"spec.containers.*merge key 'name'"):
        strategic_merge(POD, {}, {"spec": {"containers": [{"image": "x"}]}})
