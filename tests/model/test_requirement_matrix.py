"""Every operator against every other, on nodes with and without the label, read a second time."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter.model.requirements import Requirement, Requirements

KEY = "example.com/size"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
LABELS = (None, "0", "1", "2", "3", "4", "5", "6", "7", "large")
"""What a node may say: nothing, whole numbers within and beyond all bounds asked for, or a word."""
VALUES = st.lists(st.sampled_from(["1", "2", "3", "5", "large"]), min_size=1, max_size=3, unique=True)


def operands(operator: str) -> st.SearchStrategy[list[str]]:
    """Return the values that go with an operator."""
    if operator in ("Exists", "DoesNotExist"):
        return st.just([])
    if operator in ("In", "NotIn"):
        return VALUES
    return st.integers(1, 6).map(lambda bound: [str(bound)])


def matches(operator: str, values: list[str], label: str | None) -> bool:
    """Tell whether a node with this label is selected, as kube-scheduler reads a node selector term."""
    if label is None:
        return operator in ("NotIn", "DoesNotExist")
    if operator in ("Exists", "DoesNotExist"):
        return operator == "Exists"
    if operator in ("In", "NotIn"):
        return (label in values) == (operator == "In")
    if not label.isdigit():
        return False
    here, bound = int(label), int(values[0])
    return {"Gt": here > bound, "Lt": here < bound, "Gte": here >= bound, "Lte": here <= bound}[operator]


def node(label: str | None) -> Requirements:
    """Return what is known of a node."""
    return Requirements.from_labels({} if label is None else {KEY: label})


@pytest.mark.parametrize(("one", "other"), list(product(OPERATORS, OPERATORS)))
def test_two_operators_select_the_nodes_that_each_selects(one: str, other: str) -> None:
    """Both demands on one label, in either order: a node meets them together if it meets each by itself."""

    @settings(max_examples=12, database=None)
    @given(operands(one), operands(other))
    def holds(first: list[str], second: list[str]) -> None:
        left, right = Requirement.of(KEY, one, first), Requirement.of(KEY, other, second)
        both, again = Requirements.of(left).merge(Requirements.of(right)), Requirements.of(right, left)
        assert both == again
        for label in LABELS:
            wanted = matches(one, first, label) and matches(other, second, label)
            assert (not node(label).compatible(both)) == wanted, (label, str(both))

    holds()


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_selects_the_right_nodes(operator: str) -> None:
    """One demand alone, on each kind of node; a demand that a node fails never selects it by accident."""

    @settings(max_examples=30, database=None)
    @given(operands(operator))
    def holds(values: list[str]) -> None:
        demand = Requirements.of(Requirement.of(KEY, operator, values))
        for label in LABELS:
            assert (not node(label).compatible(demand)) == matches(operator, values, label), (label, values)

    holds()


@pytest.mark.parametrize(("one", "other"), list(product(OPERATORS, OPERATORS)))
def test_min_values_are_kept_whatever_is_added(one: str, other: str) -> None:
    """The larger of two minValues stays, in either order; it never changes what is permitted."""

    @settings(max_examples=8, database=None)
    @given(operands(one), operands(other), st.integers(1, 5), st.one_of(st.none(), st.integers(1, 5)))
    def holds(first: list[str], second: list[str], least: int, more: int | None) -> None:
        left = Requirement.of(KEY, one, first, min_values=least)
        right = Requirement.of(KEY, other, second, min_values=more)
        plain = Requirement.of(KEY, one, first).intersection(Requirement.of(KEY, other, second))
        for found in (left.intersection(right), right.intersection(left)):
            assert found.min_values == max(least, more or 0)
            assert [found.has(label) for label in LABELS if label] == [
                plain.has(label) for label in LABELS if label
            ]

    holds()
