"""Pruning, defaults, schema and CEL, on schemas of any kind."""

from typing import Any

import pytest

from karpenter.apis.crds import load_crds
from karpenter.apis.validation import SchemaValidator
from karpenter.testing.crd_cases import NODECLAIM, NODEPOOL

SET = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}


def judge(**field: Any) -> SchemaValidator:
    """A kind with one field `a`."""
    return SchemaValidator({"type": "object", "properties": {"a": field}})


def fields(validator: SchemaValidator, a: Any, old: Any = None) -> list[str]:
    return [e.field for e in validator.validate({"a": a}, {"a": old} if old is not None else None)]


def shipped(kind: str) -> SchemaValidator:
    crd = next(crd for crd in load_crds() if crd["spec"]["names"]["kind"] == kind)
    return SchemaValidator.for_crd(crd, crd["spec"]["versions"][0]["name"])


def test_defaults_of_a_pool() -> None:
    """A bare pool gets what upstream's gets, and the given object is left alone."""
    shaped = shipped("NodePool").default_and_prune(NODEPOOL)
    assert shaped["spec"]["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    }
    assert shaped["spec"]["template"]["spec"]["expireAfter"] == "720h"
    assert "disruption" not in NODEPOOL["spec"]


def test_shaping_is_idempotent() -> None:
    """Shaping what is shaped changes nothing."""
    validator = shipped("NodeClaim")
    once = validator.default_and_prune(NODECLAIM)
    assert validator.default_and_prune(once) == once


def test_pruning() -> None:
    """Unknown fields go, except below preserve-unknown-fields; metadata stays whole."""
    validator = SchemaValidator(
        {
            "type": "object",
            "properties": {
                "a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "b": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "string"}}}},
            },
        }
    )
    obj = {"metadata": {"name": "n"}, "a": {"x": 1}, "b": [{"c": "d", "y": 1}], "z": 1}
    assert validator.default_and_prune(obj) == {
        "metadata": {"name": "n"},
        "a": {"x": 1},
        "b": [{"c": "d"}],
    }


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "format": "int32"}, [0, -(2**31)], [2**31, "1", 1.5, True]),
        ({"type": "string", "format": "date-time"}, ["2026-01-31T12:00:00Z"], ["yesterday", ""]),
        ({"type": "string", "pattern": "^a$"}, ["a"], ["a\n", "b"]),
        ({"x-kubernetes-int-or-string": True}, [1, "1"], [1.5, True, []]),
        ({"type": "string", "nullable": True}, [None, "x"], [1]),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            [["a"]],
            [["a", "a"]],
        ),
        ({"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "b$"}]}, ["a", "b"], ["c"]),
        ({"type": "string", "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]}, ["a", "b"], ["c", "ab"]),
        ({"type": "string", "allOf": [{"pattern": "^a"}, {"maxLength": 2}]}, ["ab"], ["b", "abc"]),
        ({"type": "string", "not": {"enum": ["x"]}}, ["y"], ["x"]),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, [0.1], [0, -1]),
    ],
)
def test_schema_words(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    """Each word of the schema lets the good values pass and refuses the bad ones."""
    validator = judge(**schema)
    assert [value for value in good if fields(validator, value)] == []
    assert [value for value in bad if not fields(validator, value)] == []


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        ("self.find('^x+') == 'xx'", "xxy", True),
        ("self.split(',').size() == 2", "a,b", True),
        ("self.lowerAscii() == 'ab'", "AB", True),
        ("self.indexOf('b') == 1 && self.substring(1, 2) == 'b'", "abc", True),
        ("isURL(self)", "https://x.io", True),
        ("isURL(self)", "x", False),
        ("isQuantity(self)", "1.5Gi", True),
        ("isQuantity(self)", "one", False),
        ("int(self) > 0", "x", False),
    ],
)
def test_kubernetes_functions(rule: str, value: str, holds: bool) -> None:
    """Kubernetes' extensions of CEL work; what cannot be evaluated does not hold."""
    validator = judge(type="string", **{"x-kubernetes-validations": [{"rule": rule, "message": "no"}]})
    assert (fields(validator, value) == []) is holds


def test_transition_rules_in_a_keyed_list() -> None:
    """`oldSelf` of a keyed list's entry is the old entry of the same key; new entries have none."""
    rules = [{"rule": "self.v >= oldSelf.v", "message": "may only grow"}]
    item = {
        "type": "object",
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": rules,
    }
    extra = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    validator = judge(type="array", items=item, **extra)
    old = [{"k": "a", "v": 1}, {"k": "b", "v": 5}]
    assert fields(validator, [{"k": "b", "v": 6}, {"k": "a", "v": 1}, {"k": "c", "v": 0}], old) == []
    assert fields(validator, [{"k": "b", "v": 4}, {"k": "a", "v": 1}], old) == ["a[0]"]


@pytest.mark.parametrize(
    ("schema", "old", "new", "wrong"),
    [
        ({"type": "integer"}, 7, 7, []),
        ({"type": "integer"}, 7, 8, ["a"]),
        ({"type": "array", "items": {"type": "integer"}}, [7, 1], [7, 1], []),
        ({"type": "array", "items": {"type": "integer"}}, [7, 1], [7, 2], ["a[0]"]),
    ],
)
def test_updates_are_judged_by_what_they_change(
    schema: dict[str, Any], old: Any, new: Any, wrong: list[str]
) -> None:
    """A value that broke a rule before the rule was there may stay, as since Kubernetes 1.30; not change."""
    rules = {"x-kubernetes-validations": [{"rule": "self < 5", "message": "too large"}]}
    if "items" in schema:
        validator = judge(**{**schema, "items": {**schema["items"], **rules}})
    else:
        validator = judge(**schema, **rules)
    assert fields(validator, new, old) == wrong


def test_rules_about_changes_are_asked_of_what_did_not_change() -> None:
    """A rule that mentions `oldSelf` is asked on every update."""
    rules = [{"rule": "self > oldSelf", "message": "must grow"}]
    validator = judge(type="integer", **{"x-kubernetes-validations": rules})
    assert fields(validator, 7, 7) == ["a"]
    assert fields(validator, 8, 7) == []
