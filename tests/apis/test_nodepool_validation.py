"""The checks behind ValidationSucceeded."""

import msgspec
import pytest

from karpenter.apis.karpenter import NodeOverlay, NodePool
from karpenter.apis.nodepool_validation import validate_nodepool, validate_overlay

IN = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


def problems(spec: dict[str, object], labels: dict[str, str] | None = None) -> list[str]:
    raw = {"spec": {"template": {"metadata": {"labels": labels or {}}, "spec": spec}}}
    return [f"{e.field}: {e.message}" for e in validate_nodepool(msgspec.convert(raw, NodePool))]


def requirement(key: str, operator: str, *values: str, least: int | None = None) -> dict[str, object]:
    spec: dict[str, object] = {"key": key, "operator": operator, "values": list(values)}
    return {**spec, "minValues": least} if least is not None else spec


@pytest.mark.parametrize(
    "spec",
    [
        requirement("kubernetes.io/arch", "In", "amd64"),
        requirement("node.kubernetes.io/foo", "Exists"),
        requirement("kops.k8s.io/gpu", "DoesNotExist"),
        requirement("karpenter.sh/capacity-type", "In", "spot", "no-such"),
        requirement("karpenter.sh/capacity-type", "NotIn", "no-such"),
        requirement("notkarpenter.sh/x", "Exists"),
        requirement("a", "Gt", "0"),
        requirement("a", "NotIn"),
        requirement("beta.kubernetes.io/arch", "In", "arm64"),
        requirement("a", "In", "x", "y", least=2),
    ],
)
def test_good_requirements(spec: dict[str, object]) -> None:
    """These requirements stand."""
    assert problems({"requirements": [spec]}) == []


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (requirement("kubernetes.io/hostname", "In", "n"), "key", "different on every node"),
        (requirement("karpenter.sh/foo", "Exists"), "key", "is reserved"),
        (requirement("sub.karpenter.sh/foo", "Exists"), "key", "is reserved"),
        (requirement("karpenter.sh/nodepool", "In", "p"), "key", "cannot be required"),
        (requirement("a", "in", "x"), "operator", "not an operator"),
        (requirement("a" * 64, "Exists"), "key", "64 characters"),
        (requirement("UPPER/x", "Exists"), "key", "prefix"),
        (requirement("a/b/c", "Exists"), "key", "more than one slash"),
        (requirement("a", "In", "x y"), "values[0]", "not a label value"),
        (requirement("a", "In"), "values", "at least one value"),
        (requirement("a", "In", "x", least=2), "minValues", "only 1 are listed"),
        (requirement("a", "Gt", "x"), "values", "whole number"),
        (requirement("a", "Lt", "-1"), "values", "whole number"),
        (requirement("a", "Gte", "1", "2"), "values", "whole number"),
        (requirement("a", "Lte", str(2**63)), "values", "whole number"),
        (requirement("karpenter.sh/capacity-type", "In", "xspot"), "values", "none is a value"),
        (requirement("karpenter.sh/capacity-type", "In", "spot", "x", least=2), "values", "fewer than minV"),
    ],
)
def test_bad_requirements(spec: dict[str, object], field: str, message: str) -> None:
    """Each of these is named with its field."""
    found = problems({"requirements": [IN, spec]})
    assert any(p.startswith(f"spec.template.spec.requirements[1].{field}: ") and message in p for p in found)


@pytest.mark.parametrize(
    ("value", "good"), [("", True), ("a.b_c-1", True), ("a/b", False), ("-a", False), ("a" * 64, False)]
)
def test_a_taints_value_is_a_label_value(value: str, good: bool) -> None:
    """As Kubernetes demands of nodes, or they could never join."""
    found = problems({"taints": [{"key": "a", "value": value, "effect": "NoSchedule"}]})
    assert [f.partition(":")[0] for f in found] == ([] if good else ["spec.template.spec.taints[0].value"])


def test_taints_repeat_across_both_lists() -> None:
    """A startup taint may not repeat a taint's key and effect; another effect is fine."""
    taint = {"key": "a", "effect": "NoSchedule"}
    assert problems({"taints": [taint, {"key": "a", "effect": "NoExecute"}]}) == []
    assert problems({"taints": [taint], "startupTaints": [taint]}) == [
        "spec.template.spec.startupTaints[0]: repeats key and effect of spec.template.spec.taints[0]"
    ]


@pytest.mark.parametrize(
    ("taint", "field"),
    [
        ({"key": "", "effect": "NoSchedule"}, "key"),
        ({"key": "a" * 64, "effect": "NoSchedule"}, "key"),
        ({"key": "a", "value": "???", "effect": "NoSchedule"}, "value"),
        ({"key": "a", "effect": "Never"}, "effect"),
    ],
)
def test_bad_taints(taint: dict[str, str], field: str) -> None:
    """Key, value and effect are checked."""
    assert problems({"taints": [taint]})[0].startswith(f"spec.template.spec.taints[0].{field}: ")


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("team", "a", True),
        ("kops.k8s.io/instancegroup", "a", True),
        ("karpenter.sh/capacity-type", "spot", True),
        ("karpenter.sh/nodepool", "p", False),
        ("karpenter.sh/other", "p", False),
        ("kubernetes.io/hostname", "p", False),
        ("x" * 64, "p", False),
        ("team", "a b", False),
    ],
)
def test_labels(key: str, value: str, good: bool) -> None:
    """Labels keep to the same rules as requirements."""
    assert (problems({}, {key: value}) == []) is good


def test_providers_labels_may_be_well_known() -> None:
    """A reserved domain's label is fine when a provider made it well known."""
    raw = {"spec": {"template": {"spec": {"requirements": [requirement("x.karpenter.sh/family", "Exists")]}}}}
    pool = msgspec.convert(raw, NodePool)
    assert validate_nodepool(pool)
    assert validate_nodepool(pool, well_known=frozenset({"x.karpenter.sh/family"})) == []


def test_overlays() -> None:
    """NotIn needs values, and what the cloud measures cannot be overlaid."""
    raw = {
        "spec": {
            "requirements": [requirement("a", "NotIn"), requirement("karpenter.sh/nodepool", "In", "p")],
            "capacity": {"cpu": "1", "example.com/gpu": "1"},
        }
    }
    found = validate_overlay(msgspec.convert(raw, NodeOverlay))
    assert [e.field for e in found] == ["spec.requirements[0].values", "spec.capacity.cpu"]
    assert all(e.fix for e in found)
