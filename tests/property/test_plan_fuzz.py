"""`karpenter plan` on mangled manifests: always a plan that holds together, or an error that says where."""

import io
import json
import os
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter.base.clock import ManualClock
from karpenter.cli.plan import PLANNED, REFUSED, PlanOptions, plan_command
from karpenter.cli.planning.report import Report
from karpenter.testing.mangling import Mutation, mangled, sound_manifests, sound_scenario

SOAK = os.environ.get("KARPENTER_SOAK") == "1"
COUNT = 100_000 if SOAK else 1_000
JUNK: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**400, 0.5, -0.5, 1e300, float("inf"), float("nan")),
    *("", "x", "0", "-1", "1Gi", "1e3", "99999999999E", "1" * 300, "a b", "ü", "\x00", "true", "10%", "NaN"),
    *([], [None], [1], ["x", "x"], [[]], {}, {"": ""}, {"x": None}, {"x": {"x": []}}, {"cpu": "1"}),
    *({"key": "x", "operator": "In", "values": []}, {"name": "web"}, "kubernetes.io/hostname"),
    *("Exists", "Gt", "Never", "Immediate", "Deployment", "NodePool", "v1", "karpenter.sh/v1", "default"),
]
DEEDS = ("replace", "replace", "replace", "remove", "rename", "wrap", "double")
mutations = st.lists(
    st.tuples(st.integers(0, 2000), st.sampled_from(DEEDS), st.sampled_from(JUNK)), min_size=1, max_size=4
)
documents = st.sampled_from([sound_scenario(), *([each] for each in sound_manifests()), sound_manifests()])
outcomes: Counter[str] = Counter()


def judged(text: bytes, **options: Any) -> int:
    """Run the command on `text`, hold what it says to what it promises, and return its code."""
    out, err = io.StringIO(), io.StringIO()
    chosen = PlanOptions(
        files=("-",), output="json", instance_types=options.pop("instance_types", ""), deterministic=True
    )
    code = plan_command(chosen, stdin=io.BytesIO(text), out=out, err=err, clock=ManualClock(0.0))
    if code == REFUSED:
        assert out.getvalue() == ""
        assert "karpenter plan: " in err.getvalue()
        assert "Traceback" not in err.getvalue()
    else:
        assert code == PLANNED
        report = msgspec.json.decode(out.getvalue(), type=Report)
        placed = [*(n.pods for n in report.new_nodes), *(n.pods for n in report.existing_nodes)]
        counts = Counter([*(key for pods in placed for key in pods), *report.unschedulable])
        assert all(count == 1 for count in counts.values()), counts
        assert all(case.message and case.reasons for case in report.unschedulable.values())
        assert report.lower_bound_per_hour is None or report.lower_bound_per_hour >= 0
    return code


def as_text(document: Any) -> bytes:
    """Return objects as one JSON document: YAML's superset of it lets NaN and the like through."""
    if isinstance(document, list):
        document = {"apiVersion": "v1", "kind": "List", "items": document}
    return json.dumps(document).encode()


def fuzz(document: Any, deeds: list[Mutation]) -> None:
    """Mangle, plan, count."""
    scenario = isinstance(document, dict)
    code = judged(as_text(mangled(document, deeds)), instance_types="" if scenario else "generic")
    outcomes["planned" if code == PLANNED else "refused"] += 1


def test_sound_input_is_planned() -> None:
    """What is mangled here is sound as it is."""
    assert judged(as_text(sound_manifests()), instance_types="generic") == PLANNED
    assert judged(as_text(sound_scenario())) == PLANNED


@given(documents, mutations)
@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
def test_mangled_input(document: Any, deeds: list[Mutation]) -> None:
    """No traceback, ever: a plan in which every pod is once, or an error."""
    fuzz(document, deeds)


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_any_bytes(text: bytes) -> None:
    """Bytes that are no manifest at all are refused, or mean nothing."""
    assert judged(text, instance_types="generic") in (PLANNED, REFUSED)


@pytest.mark.slow
def test_much_mangled_input(capsys: pytest.CaptureFixture[str]) -> None:
    """The same with many more (100,000 with KARPENTER_SOAK=1); the counts are printed."""
    outcomes.clear()
    many = settings(max_examples=COUNT, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    many(given(documents, mutations)(fuzz))()
    with capsys.disabled():
        print(f"\nplan fuzz: {outcomes['planned']} planned, {outcomes['refused']} refused")
    assert min(outcomes["planned"], outcomes["refused"]) > COUNT // 20
