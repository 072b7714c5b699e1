"""OpenAPI v3 structural schemas, as CustomResourceDefinitions carry them.

`default_and_prune` gives an object its defaults and drops what the schema does not know; `validate` lists
what is wrong, types and patterns first, then CEL rules. The messages are the API server's.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from karpenter.apis.validation.cel import CelError, Facts, compile_rule
from karpenter.apis.validation.errors import FieldError
from karpenter.base.timestamps import parse_time

Schema = Mapping[str, Any]

_METADATA: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_ROOT_FIELDS: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _METADATA}
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_MISSING = object()


class SchemaValidator:
    """The rules of one version of one custom kind."""

    def __init__(self, schema: Schema) -> None:
        properties = {**_ROOT_FIELDS, **schema.get("properties", {}), "metadata": _METADATA}
        self._schema: Schema = {**schema, "type": "object", "properties": properties}
        for rule in _rules_of(self._schema):
            compile_rule(rule["rule"])

    @classmethod
    def for_crd(cls, crd: Mapping[str, Any], version: str) -> "SchemaValidator":
        """Return the validator of `version` of a CustomResourceDefinition.

        Raises:
            KeyError: when the CRD has no such version.
            CelError: when one of its rules is not CEL.
        """
        for candidate in crd["spec"]["versions"]:
            if candidate["name"] == version:
                schema = (candidate.get("schema") or {}).get("openAPIV3Schema")
                return cls(schema or {"x-kubernetes-preserve-unknown-fields": True})
        raise KeyError(f"{crd['metadata']['name']} has no version {version}")

    def default_and_prune(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Return `obj` with defaults filled in and without fields the schema does not know."""
        shaped: dict[str, Any] = _shape(obj, self._schema)
        return shaped

    def validate(self, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[FieldError]:
        """Return what is wrong with `obj` (an update of `old`, when given), by path.

        As in the API server, CEL rules are only evaluated when the schema holds, and for values that an
        update changes, but for rules about the change itself.
        """
        found = list(_check(obj, self._schema, ""))
        if not found:
            found = list(_check_rules(obj, old if old is not None else _MISSING, self._schema, ""))
        return found


def _rules_of(schema: Schema) -> Iterator[Mapping[str, str]]:
    """Yield every rule of a schema, so that bad ones are refused at once."""
    yield from schema.get("x-kubernetes-validations", ())
    for child in schema.get("properties", {}).values():
        yield from _rules_of(child)
    for key in ("items", "additionalProperties"):
        child = schema.get(key)
        if isinstance(child, Mapping):
            yield from _rules_of(child)


def _shape(value: Any, schema: Schema) -> Any:
    """Default and prune one value."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _shape_object(value, schema)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_shape(item, schema["items"]) for item in value]
    return value


def _shape_object(value: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    keep = schema.get("x-kubernetes-preserve-unknown-fields") or extra is True
    result: dict[str, Any] = {}
    for key, item in value.items():
        if key in properties:
            if item is None and not properties[key].get("nullable"):
                continue  # a null that may not be is dropped, and a default may take its place
            result[key] = _shape(item, properties[key])
        elif isinstance(extra, Mapping):
            result[key] = _shape(item, extra)
        elif keep:
            result[key] = item
    for key, child in properties.items():
        if key not in result and "default" in child:
            result[key] = _shape(json.loads(_frozen_default(child)), child)
    return result


def _frozen_default(schema: Schema) -> str:
    return json.dumps(schema["default"])


def _check(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield what breaks types, formats, sizes, patterns and enumerations."""
    if value is None:
        if not schema.get("nullable"):
            yield FieldError(
                path, value, f"Required value: {schema.get('type', 'a value')} expected, got null"
            )
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _type_error(path, value, "integer or string")
        else:
            yield from _check_string(str(value), schema, path)
        return
    kind = schema.get("type")
    if kind is not None and not _is_type(value, kind):
        yield _type_error(path, value, kind)
        return
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        shown = ", ".join(json.dumps(choice) for choice in choices)
        yield FieldError(
            path,
            value,
            f"Unsupported value: {json.dumps(value)}: supported values: {shown}",
            f"use one of {shown}",
        )
    yield from _check_combined(value, schema, path)
    if isinstance(value, str):
        yield from _check_string(value, schema, path)
    elif isinstance(value, bool):
        return
    elif isinstance(value, int | float):
        yield from _check_number(value, schema, path)
    elif isinstance(value, list):
        yield from _check_list(value, schema, path)
    elif isinstance(value, Mapping):
        yield from _check_object(value, schema, path)


def _check_combined(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield what breaks allOf, anyOf, oneOf and not (which add rules, never fields)."""
    for part in schema.get("allOf", ()):
        yield from _check(value, part, path)
    for word in ("anyOf", "oneOf"):
        parts = schema.get(word)
        fitting = sum(not any(_check(value, part, path)) for part in parts or ())
        if parts and (fitting == 0 or (word == "oneOf" and fitting > 1)):
            which = "at least one of" if word == "anyOf" else "exactly one of"
            fix = f"meet {which} the {len(parts)} alternatives"
            yield _invalid(path, value, f"must validate {which} the schemas ({word})", fix)
    banned = schema.get("not")
    if banned is not None and not any(_check(value, banned, path)):
        yield _invalid(path, value, "must not validate the schema (not)", "see the kind's schema")


def _is_type(value: Any, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
    return True


def _type_error(path: str, value: Any, wanted: str) -> FieldError:
    given = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
    }.get(type(value), "object")
    message = f'Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'
    return FieldError(path, value, message, f"give {_article(wanted)} {wanted}")


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _invalid(path: str, value: Any, problem: str, fix: str) -> FieldError:
    return FieldError(path, value, f"Invalid value: {json.dumps(value)}: {path} in body {problem}", fix)


def _check_string(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        yield FieldError(path, value, f"Too long: may not be more than {longest} bytes", "shorten it")
    if shortest is not None and len(value) < shortest:
        yield _invalid(path, value, f"should be at least {shortest} chars long", "give a value")
    pattern = schema.get("pattern")
    if pattern is not None and not _pattern(pattern).search(value):
        yield _invalid(path, value, f"should match '{pattern}'", f"match {pattern}")
    if schema.get("format") == "date-time":
        try:
            parse_time(value)
        except ValueError:
            yield _invalid(
                path, value, "must be of type date-time", "give RFC 3339, e.g. 2026-01-31T12:00:00Z"
            )


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    # `$` of RE2 is the very end; Python's would also match before a last newline.
    return re.compile(re.sub(r"(?<!\\)\$(?=\)|$)", r"\\Z", text))


def _check_number(value: float, schema: Schema, path: str) -> Iterator[FieldError]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        yield _invalid(path, value, f"should be greater than or equal to {low}", f"give {low} or more")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        yield _invalid(path, value, f"should be less than or equal to {high}", f"give {high} or less")
    span = _RANGES.get(schema.get("format", ""))
    if span is not None and not span[0] <= value <= span[1]:
        yield _invalid(path, value, f"must be of type {schema['format']}", "give a smaller number")


def _is_plain(schema: Schema) -> bool:
    """Tell whether a schema asks nothing of a value but its type."""
    return schema.keys() <= {"type", "description"}


def _check_list(value: list[Any], schema: Schema, path: str) -> Iterator[FieldError]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield FieldError(path, value, f"Too many: {len(value)}: must have at most {most} items", "give fewer")
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"should have at least {least} items", "give more")
    items = schema.get("items")
    if isinstance(items, Mapping):
        plain = _is_plain(items) and items.get("type") == "string"
        for number, item in enumerate(value):
            if not (plain and isinstance(item, str)):
                yield from _check(item, items, f"{path}[{number}]")
    yield from _check_unique(value, schema, path)


def _check_unique(value: list[Any], schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield repeated entries of sets and of maps by key."""
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: set[str] = set()
    for number, item in enumerate(value):
        identity = (
            {key: item.get(key) for key in keys} if kind == "map" and isinstance(item, Mapping) else item
        )
        text = json.dumps(identity, sort_keys=True)
        if text in seen:
            yield FieldError(f"{path}[{number}]", item, f"Duplicate value: {text}", "remove one of them")
        seen.add(text)


def _check_object(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[FieldError]:
    prefix = f"{path}." if path else ""
    for key in schema.get("required", ()):
        if key not in value:
            yield FieldError(f"{prefix}{key}", None, "Required value", f"add {prefix}{key}")
    most = schema.get("maxProperties")
    if most is not None and len(value) > most:
        yield FieldError(path, value, f"Too many: {len(value)}: must have at most {most} items", "give fewer")
    properties: Mapping[str, Schema] = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from _check(item, properties[key], f"{prefix}{key}")
        elif isinstance(extra, Mapping):
            yield from _check(item, extra, f"{prefix}{key}")


def _check_rules(value: Any, old: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield the CEL rules that do not hold, outermost first."""
    if value is None:
        return
    rules = schema.get("x-kubernetes-validations", ())
    if rules:
        facts = Facts(value, None if old is _MISSING else old)
        unchanged = old is not _MISSING and old == value
        for rule in rules:
            transition = compile_rule(rule["rule"]).transition
            if old is not _MISSING if transition else not unchanged:
                yield from _check_rule(rule, facts, path)
    if isinstance(value, Mapping):
        prefix = f"{path}." if path else ""
        properties: Mapping[str, Schema] = schema.get("properties", {})
        extra = schema.get("additionalProperties")
        for key, item in value.items():
            child = properties.get(key) or (extra if isinstance(extra, Mapping) else None)
            if child is not None:
                before = old.get(key, _MISSING) if isinstance(old, Mapping) else _MISSING
                yield from _check_rules(item, before, child, f"{prefix}{key}")
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        before = _by_keys(old, schema)
        if _is_plain(schema["items"]) or (not before and old == value):
            return  # without keys, the entries of a list that is as it was have no past to be judged by
        for number, item in enumerate(value):
            was = before.get(_identity(item, schema), _MISSING) if before else _MISSING
            yield from _check_rules(item, was, schema["items"], f"{path}[{number}]")


def _by_keys(old: Any, schema: Schema) -> dict[str, Any]:
    """Index the old entries of a list that is a map; entries of other lists have no past."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {_identity(item, schema): item for item in old}


def _identity(item: Any, schema: Schema) -> str:
    keys = schema.get("x-kubernetes-list-map-keys", ())
    return json.dumps([item.get(key) for key in keys] if isinstance(item, Mapping) else item)


def _check_rule(rule: Mapping[str, str], facts: Facts, path: str) -> Iterator[FieldError]:
    if compile_rule(rule["rule"]).holds(facts):
        return
    message = rule.get("message", f"failed rule: {rule['rule'].strip()}")
    if "messageExpression" in rule:
        with contextlib.suppress(CelError):  # Kubernetes too falls back to the plain message
            message = str(compile_rule(rule["messageExpression"]).evaluate(facts))
    shown = '"object"' if isinstance(facts.value, Mapping) else json.dumps(facts.value)
    yield FieldError(path, facts.value, f"Invalid value: {shown}: {message}", message)
