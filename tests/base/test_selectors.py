"""Label and field selectors as queries write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis.meta import LabelSelector, SelectorRequirement
from karpenter.apis.selectors import label_selector_matches
from karpenter.base.selectors import FieldTerm, parse_field_selector, parse_label_selector

LABELS = {"app": "web", "tier": "front", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("none", False),
        ("!none", True),
        ("! none", True),
        ("app=web", True),
        ("app == web", True),
        ("app=db", False),
        ("app!=db", True),
        ("none!=x", True),
        ("empty=", True),
        ("app in (db,web)", True),
        ("app in (db, web )", True),
        ("app notin (db)", True),
        ("app notin (web)", False),
        ("none notin (web)", True),
        ("none in (web)", False),
        ("app in (web),tier!=back,!none", True),
        ("app=web,tier=back", False),
        ("karpenter.sh/nodepool", False),
        ("in in (a)", False),
    ],
)
def test_label_queries(text: str, matches: bool) -> None:
    """Every operator means what Kubernetes says; what is absent meets the negative ones."""
    assert parse_label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["app=web,", "=web", "app in web", "app in (a", "a=b c=d", "a==="])
def test_malformed_label_queries(text: str) -> None:
    """What cannot be read is refused with the text in the message."""
    with pytest.raises(ValueError, match="label selector"):
        parse_label_selector(text)


def test_field_queries() -> None:
    """Fields are compared for equality or its opposite; values may be empty."""
    assert parse_field_selector("spec.nodeName=n1,status.phase!=Failed,metadata.name==a,x=") == (
        FieldTerm("spec.nodeName", "=", "n1"),
        FieldTerm("status.phase", "!=", "Failed"),
        FieldTerm("metadata.name", "=", "a"),
        FieldTerm("x", "=", ""),
    )
    with pytest.raises(ValueError, match=r"spec\.nodeName"):
        parse_field_selector("spec.nodeName")


@pytest.mark.parametrize(
    ("operator", "key", "values", "matches"),
    [
        ("In", "app", ["web", "db"], True),
        ("In", "none", ["web"], False),
        ("NotIn", "app", ["web"], False),
        ("NotIn", "none", ["web"], True),
        ("Exists", "app", None, True),
        ("Exists", "none", None, False),
        ("DoesNotExist", "none", None, True),
        ("DoesNotExist", "app", None, False),
        ("Near", "app", ["web"], False),
    ],
)
def test_selector_expressions(operator: str, key: str, values: list[str] | None, matches: bool) -> None:
    """Each operator of a label selector holds as the API defines it; an unknown one never does."""
    requirement = SelectorRequirement(key=key, operator=operator, values=values)
    assert label_selector_matches(LabelSelector(match_expressions=[requirement]), LABELS) is matches


def test_no_selector_and_the_empty_selector() -> None:
    """None matches nothing, the empty selector everything."""
    assert not label_selector_matches(None, LABELS)
    assert label_selector_matches(LabelSelector(), {})


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["x", "y"])


@given(st.dictionaries(KEYS, VALUES), KEYS, st.lists(VALUES, min_size=1))
def test_the_two_forms_agree(labels: dict[str, str], key: str, values: list[str]) -> None:
    """Text and struct forms of one condition give one answer, and `notin` is the opposite of `in`."""
    text = parse_label_selector(f"{key} in ({','.join(values)})").matches(labels)
    struct = LabelSelector(match_expressions=[SelectorRequirement(key=key, operator="In", values=values)])
    assert text is label_selector_matches(struct, labels)
    assert parse_label_selector(f"{key} notin ({','.join(values)})").matches(labels) is not text
