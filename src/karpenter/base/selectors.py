"""Selectors as queries write them: `app in (a,b),!debug` and `spec.nodeName=n1,status.phase!=Failed`."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

_IDENTIFIER = r"[A-Za-z0-9./_-]+"
_TERM = re.compile(
    rf"\s*(?:(?P<not>!)\s*(?P<absent>{_IDENTIFIER})"
    rf"|(?P<key>{_IDENTIFIER})\s*(?:"
    r"(?P<in>(?<=\s)(?:in|notin))\s*\((?P<values>[^)]*)\)"
    r"|(?P<op>==|!=|=)\s*(?P<value>[A-Za-z0-9._-]*)"
    r")?)\s*"
)


class LabelTerm(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Literal["in", "notin", "exists", "absent"]
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet the condition; what is absent meets `notin`."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        return (value is not None) is (self.operator == "exists")


class LabelQuery(msgspec.Struct, frozen=True):
    """All conditions of a label selector; none matches everything."""

    terms: tuple[LabelTerm, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet every condition."""
        return all(term.matches(labels) for term in self.terms)


class FieldTerm(msgspec.Struct, frozen=True):
    """One condition on one field."""

    path: str
    op: Literal["=", "!="]
    value: str


def parse_label_selector(text: str) -> LabelQuery:
    """Return the query that `text` writes.

    Raises:
        ValueError: when it is malformed, naming the place.
    """
    terms: list[LabelTerm] = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise ValueError(f"label selector {text!r} is malformed at position {position}")
        terms.append(_label_term(match))
        position = match.end() + 1
    if text.rstrip().endswith(","):
        raise ValueError(f"label selector {text!r} ends with a comma")
    return LabelQuery(tuple(terms))


def _label_term(match: re.Match[str]) -> LabelTerm:
    if match["not"]:
        return LabelTerm(match["absent"], "absent")
    key = match["key"]
    if match["in"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return LabelTerm(key, "in" if match["in"].strip() == "in" else "notin", values)
    if match["op"]:
        return LabelTerm(key, "notin" if match["op"] == "!=" else "in", frozenset({match["value"]}))
    return LabelTerm(key, "exists")


def parse_field_selector(text: str) -> tuple[FieldTerm, ...]:
    """Return the conditions that `text` writes.

    Raises:
        ValueError: when one is not `path=value` or `path!=value`.
    """
    terms: list[FieldTerm] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([A-Za-z0-9_.\[\]'/-]+)(==|!=|=)(.*)", part)
        if match is None:
            raise ValueError(f"field selector {text!r}: {part!r} is not path=value or path!=value")
        terms.append(FieldTerm(match[1], "!=" if match[2] == "!=" else "=", match[3]))
    return tuple(terms)
