"""Our judge of our CRDs gives the verdicts of the table, and points at the field."""

from collections import Counter
from functools import lru_cache

import pytest

from karpenter.apis.crds import load_crds
from karpenter.apis.validation import SchemaValidator
from karpenter.testing.crd_cases import CrdCase, crd_cases


@lru_cache
def validator(kind: str) -> SchemaValidator:
    crd = next(crd for crd in load_crds() if crd["spec"]["names"]["kind"] == kind)
    return SchemaValidator.for_crd(crd, crd["spec"]["versions"][0]["name"])


@pytest.mark.parametrize("case", crd_cases(), ids=lambda case: case.name)
def test_verdict(case: CrdCase) -> None:
    """Good objects pass, bad ones are refused at their field."""
    judge = validator(case.obj["kind"])
    old = judge.default_and_prune(case.old) if case.old is not None else None
    found = judge.validate(judge.default_and_prune(case.obj), old)
    if case.good:
        assert found == []
    else:
        assert found
        assert any(e.field.startswith(case.field) and case.message in e.message for e in found), found


def test_the_table_has_both_sides_of_every_kind() -> None:
    """Each kind is shown both valid and invalid objects, and no case is listed twice."""
    cases = crd_cases()
    sides = Counter((case.obj["kind"], case.good) for case in cases)
    assert len(sides) == 2 * len(load_crds())
    assert [name for name, count in Counter(case.name for case in cases).items() if count > 1] == []
