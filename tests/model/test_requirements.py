"""The algebra of requirements: tables for what it says, laws for what it must not break."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.apis.karpenter import RequirementSpec
from karpenter.model.requirements import Requirement, Requirements, is_restricted, unconstrained

R = Requirement.of
CANDIDATES = ("A", "B", "0", "1", "2", "3", "5", "9", "10", "19", "-1", "x9", "")


def all_of(*requirements: Requirement) -> Requirements:
    """Return the requirements together."""
    return Requirements.of(*requirements)


@pytest.mark.parametrize(
    ("requirement", "has", "has_not"),
    [
        (R("k", "In", ["A"]), ["A"], ["B", ""]),
        (R("k", "NotIn", ["A"]), ["B", "1"], ["A"]),
        (R("k", "Exists"), ["A", "1"], []),
        (R("k", "DoesNotExist"), [], ["A", "1"]),
        (R("k", "Gt", ["1"]), ["2", "9"], ["1", "0", "A"]),
        (R("k", "Lt", ["9"]), ["8", "0"], ["9", "A"]),
        (R("k", "Gte", ["1"]), ["1"], ["0", "A"]),
        (R("k", "Lte", ["1"]), ["1", "0"], ["2"]),
        (R("k", "Lt", ["0"]), [], ["0", "1"]),
    ],
)
def test_has(requirement: Requirement, has: list[str], has_not: list[str]) -> None:
    """Each operator permits what kube-scheduler permits."""
    assert all(requirement.has(v) for v in has)
    assert not any(requirement.has(v) for v in has_not)


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        (R("k", "Exists"), R("k", "DoesNotExist"), "k DoesNotExist"),
        (R("k", "Exists"), R("k", "In", ["A"]), "k In [A]"),
        (R("k", "Exists"), R("k", "NotIn", ["A"]), "k NotIn [A]"),
        (R("k", "In", ["A"]), R("k", "In", ["A", "B"]), "k In [A]"),
        (R("k", "In", ["A"]), R("k", "In", ["B"]), "k DoesNotExist"),
        (R("k", "In", ["A", "B"]), R("k", "NotIn", ["A"]), "k In [B]"),
        (R("k", "NotIn", ["1"]), R("k", "NotIn", ["2"]), "k NotIn [1 2]"),
        (R("k", "In", ["A", "5"]), R("k", "Gt", ["1"]), "k In [5]"),
        (R("k", "Gt", ["5"]), R("k", "Lt", ["5"]), "k DoesNotExist"),
        (R("k", "Gt", ["1"]), R("k", "NotIn", ["3", "0"]), "k NotIn [3] >=2"),
        (R("k", "Gte", ["1"]), R("k", "Lte", ["9"]), "k Exists >=1 <=9"),
        (R("k", "Gt", ["1"]), R("k", "Gt", ["9"]), "k Exists >=10"),
        (R("k", "Gte", ["4"]), R("k", "Gt", ["3"]), "k Exists >=4"),
        (R("k", "Lt", ["9"]), R("k", "Lte", ["5"]), "k Exists <=5"),
        (R("k", "Lt", ["5"]), R("k", "Exists"), "k Exists <=4"),
        (R("k", "In", ["A"], 2), R("k", "In", ["A", "B"], 3), "k In [A] minValues 3"),
        (R("k", "In", ["A"], 2), R("k", "In", ["B"]), "k DoesNotExist minValues 2"),
    ],
)
def test_intersection(left: Requirement, right: Requirement, text: str) -> None:
    """Two requirements on one label become one, the same from both sides."""
    assert str(left.intersection(right)) == text
    assert left.intersection(right) == right.intersection(left)


def test_numbers_written_twice_leave_the_others() -> None:
    """Two spellings of one number exclude one integer of two."""
    between = R("k", "Gt", ["0"]).intersection(R("k", "Lt", ["3"])).intersection(R("k", "NotIn", ["1", "01"]))
    assert not between.impossible
    assert between.has("2")


def test_an_empty_range_is_found_out() -> None:
    """Bounds whose every integer is excluded permit nothing; the label may not be missing either."""
    requirement = (
        R("k", "Gte", ["1"]).intersection(R("k", "Lte", ["2"])).intersection(R("k", "NotIn", ["1", "2"]))
    )
    assert requirement.impossible
    assert (
        not R("k", "Gte", ["1"]).intersection(R("k", "Lte", ["1"])).has_intersection(R("k", "NotIn", ["1"]))
    )


def test_a_contradiction_is_not_the_absence_of_the_label() -> None:
    """In [A] and In [B] cannot be met by a node that lacks the label."""
    clash = R("k", "In", ["A"]).intersection(R("k", "In", ["B"]))
    assert clash.impossible
    assert not clash.has_intersection(R("k", "DoesNotExist"))
    assert Requirements().compatible(all_of(R("k", "In", ["A"]), R("k", "In", ["B"]))) != ""


@pytest.mark.parametrize(
    ("requirement", "value"),
    [
        (R("k", "In", ["10", "9", "b"]), "9"),
        (R("k", "In", ["b", "a"]), "a"),
        (R("k", "DoesNotExist"), ""),
        (R("k", "Exists"), "0"),
        (R("k", "NotIn", ["0", "1"]), "2"),
        (R("k", "Lt", ["1"]), "0"),
        (R("k", "Gt", ["7"]), "8"),
        (R("k", "Lte", ["3"]).intersection(R("k", "NotIn", ["0", "2"])), "1"),
    ],
)
def test_any_is_the_smallest_permitted_value(requirement: Requirement, value: str) -> None:
    """The value chosen for a label is always the same, and always permitted."""
    assert requirement.any() == value
    assert value == "" or requirement.has(value)


@pytest.mark.parametrize(
    ("requirement", "length"),
    [(R("k", "In", ["a", "b"]), 2), (R("k", "DoesNotExist"), 0), (R("k", "Exists"), 2**63 - 1)],
)
def test_len(requirement: Requirement, length: int) -> None:
    """The length is the number of permitted values."""
    assert len(requirement) == length
    assert requirement


@pytest.mark.parametrize(
    ("requirement", "specs"),
    [
        (R("k", "In", ["b", "a"]), [("In", ["a", "b"])]),
        (R("k", "NotIn", ["b", "a"]), [("NotIn", ["a", "b"])]),
        (R("k", "Exists"), [("Exists", [])]),
        (R("k", "DoesNotExist"), [("DoesNotExist", [])]),
        (R("k", "Gt", ["1"]), [("Gte", ["2"])]),
        (R("k", "Gte", ["1"]).intersection(R("k", "Lte", ["9"])), [("Gte", ["1"]), ("Lte", ["9"])]),
        (R("k", "Gt", ["1"]).intersection(R("k", "NotIn", ["3"])), [("Gte", ["2"]), ("NotIn", ["3"])]),
        (R("k", "Exists").intersection(R("k", "NotIn", ["3"])), [("Exists", []), ("NotIn", ["3"])]),
    ],
)
def test_serialisation_loses_nothing(requirement: Requirement, specs: list[tuple[str, list[str]]]) -> None:
    """What is written to the API reads back as the same requirement, exclusions beside bounds included."""
    written = requirement.to_specs()
    assert [(s.operator, s.values) for s in written] == specs
    assert Requirements.from_specs(written) == all_of(requirement)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["a"], "k In [a]"),
        (list("gfedcba"), "k In [a b c d e and 2 others]"),
    ],
)
def test_text_shows_at_most_five_values(values: list[str], text: str) -> None:
    """Long lists are cut."""
    assert str(R("k", "In", values)) == text


def test_retired_keys_mean_the_new_ones() -> None:
    """Aliases are normalised wherever a requirement is built."""
    assert R("beta.kubernetes.io/arch", "In", ["amd64"]).key == labels.ARCH
    assert unconstrained("failure-domain.beta.kubernetes.io/zone").key == labels.ZONE


@pytest.mark.parametrize(
    ("operator", "values"), [("Gt", []), ("Gt", ["x"]), ("Lte", ["1", "2"]), ("Like", ["a"])]
)
def test_bad_input_is_named(operator: str, values: list[str]) -> None:
    """A bound that is no integer and an unknown operator are refused, naming the key."""
    with pytest.raises(ValueError, match="requirement k"):
        R("k", operator, values)


CUSTOM = [R("k", "In", ["A"]), R("k", "Exists"), R("k", "Gt", ["1"])]
LENIENT = [R("k", "NotIn", ["A"]), R("k", "DoesNotExist")]


@pytest.mark.parametrize("requirement", CUSTOM)
def test_an_undefined_label_is_missing(requirement: Requirement) -> None:
    """A label nobody defines satisfies nothing that wants a value, unless it may still be given one."""
    assert Requirements().compatible(all_of(requirement)) == 'label "k" does not have known values'
    assert Requirements().compatible(all_of(requirement), frozenset({"k"})) == ""


@pytest.mark.parametrize("requirement", LENIENT)
def test_an_undefined_label_satisfies_negations(requirement: Requirement) -> None:
    """NotIn and DoesNotExist hold where the label is missing."""
    assert Requirements().compatible(all_of(requirement)) == ""


@pytest.mark.parametrize(
    ("receiver", "incoming", "fine"),
    [
        *[(R("k", "DoesNotExist"), r, False) for r in CUSTOM],
        *[(r, R("k", "DoesNotExist"), False) for r in CUSTOM],
        *[(R("k", "DoesNotExist"), r, True) for r in LENIENT],
        *[(r, R("k", "DoesNotExist"), True) for r in LENIENT],
        (R("k", "In", ["A"]), R("k", "In", ["A", "B"]), True),
        (R("k", "In", ["A"]), R("k", "In", ["B"]), False),
        (R("k", "In", ["A"]), R("k", "NotIn", ["A"]), False),
        (R("k", "In", ["9"]), R("k", "Lt", ["9"]), False),
    ],
)
def test_compatible_when_both_define_the_label(
    receiver: Requirement, incoming: Requirement, fine: bool
) -> None:
    """Where both speak of a label they must have a value, or its absence, in common."""
    assert (all_of(receiver).compatible(all_of(incoming)) == "") == fine
    assert (all_of(receiver).intersects(all_of(incoming)) == "") == fine


def test_a_clash_is_described() -> None:
    """The message shows both sides."""
    error = all_of(R("k", "In", ["A"])).intersects(all_of(R("k", "In", ["B"])))
    assert error == "key k, k In [B] not in k In [A]"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("zone", labels.ZONE),
        ("example.com/zone", labels.ZONE),
        ("one", labels.ZONE),
        ("ne", ""),
        ("example.com/ne", ""),
        ("team", ""),
    ],
)
def test_typos_are_guessed(key: str, meant: str) -> None:
    """A label that looks like a known one is hinted at; two letters look like too many."""
    error = Requirements().compatible(all_of(R(key, "In", ["a"])), frozenset({labels.ZONE}))
    hint = f' (typo of "{meant}"?)' if meant else ""
    assert error == f'label "{key}" does not have known values{hint}'


def test_labels_are_what_a_node_must_be_given() -> None:
    """Custom labels that must exist get a value; the cloud's, restricted and optional ones are left out."""
    requirements = all_of(
        R("team", "In", ["red", "blue"]),
        R("size", "Gt", ["3"]),
        R("maybe", "NotIn", ["x"]),
        R(labels.ZONE, "In", ["zone-a"]),
        R(labels.KUBERNETES_HOSTNAME, "In", ["h"]),
        R(labels.REGISTERED, "In", ["true"]),
    )
    assert requirements.labels() == {"size": "4", "team": "blue"}


@pytest.mark.parametrize(
    ("key", "restricted"),
    [
        ("karpenter.sh/custom", True),
        ("sub.karpenter.sh/custom", True),
        ("notkarpenter.sh/custom", False),
        (labels.KUBERNETES_HOSTNAME, True),
        ("node.kubernetes.io/foo", False),
        ("team", False),
    ],
)
def test_restricted_keys(key: str, restricted: bool) -> None:
    """karpenter.sh and what is below it are ours, and the host name is nobody's to choose."""
    assert is_restricted(key) == restricted


def test_requirements_are_a_sorted_immutable_mapping() -> None:
    """Keys iterate sorted, adding returns a new object, equal ones hash alike and survive pickling."""
    some = all_of(R("b", "In", ["1"]), R("a", "Exists"))
    more = some.add(R("b", "In", ["1", "2"]))
    assert list(some) == ["a", "b"]
    assert more == some
    assert hash(more) == hash(some)
    assert pickle.loads(pickle.dumps(some)) == some
    assert some.single_value("b") == "1"
    assert some.single_value("a") == some.single_value("c") == ""
    assert str(some.without("a")) == "b In [1]"


def test_specs_keep_min_values() -> None:
    """minValues of several entries on one key merge by maximum."""
    specs = [
        RequirementSpec(key="k", operator="In", values=["a", "b"], min_values=1),
        RequirementSpec(key="k", operator="Exists", min_values=2),
    ]
    assert Requirements.from_specs(specs)["k"].min_values == 2


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    """Draw any requirement on `k`, bounded and excluding ones included."""
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]))
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        values = [str(draw(st.integers(0, 10)))]
    else:
        values = (
            draw(st.lists(st.sampled_from(CANDIDATES), max_size=4)) if operator in ("In", "NotIn") else []
        )
    return R("k", operator, values, draw(st.none() | st.integers(1, 4)))


@given(requirements(), requirements())
def test_intersection_is_commutative(a: Requirement, b: Requirement) -> None:
    """The order of two requirements does not matter."""
    assert a.intersection(b) == b.intersection(a)


@given(requirements(), requirements(), requirements())
def test_intersection_is_associative(a: Requirement, b: Requirement, c: Requirement) -> None:
    """Nor does grouping three."""
    assert a.intersection(b).intersection(c) == a.intersection(b.intersection(c))


@given(requirements())
def test_intersection_is_idempotent(a: Requirement) -> None:
    """Saying it twice changes nothing; nor does adding what everything satisfies."""
    assert a.intersection(a) == a
    assert a.intersection(unconstrained("k")) == a


@given(requirements(), requirements(), st.sampled_from(CANDIDATES))
def test_intersection_permits_what_both_permit(a: Requirement, b: Requirement, value: str) -> None:
    """A value is permitted by both exactly when the intersection permits it; absence likewise."""
    both = a.intersection(b)
    assert both.has(value) == (a.has(value) and b.has(value))
    assert both.absent == (a.absent and b.absent)


@given(requirements(), requirements())
def test_has_intersection_agrees_with_intersection(a: Requirement, b: Requirement) -> None:
    """The quick question has the same answer as the long way."""
    assert a.has_intersection(b) == (not a.intersection(b).impossible)


@given(requirements(), requirements())
def test_specs_read_back(a: Requirement, b: Requirement) -> None:
    """Any requirement that can be met reads back from the API as it was."""
    both = a.intersection(b)
    if not both.impossible and both != unconstrained("k") and both.to_specs():
        assert Requirements.from_specs(both.to_specs())["k"] == both


@given(requirements())
def test_any_is_permitted(a: Requirement) -> None:
    """The chosen value is a permitted one, whenever there is one."""
    value = a.any()
    assert a.has(value) if value or (a.values and not a.complement) else not a.complement or a.impossible
