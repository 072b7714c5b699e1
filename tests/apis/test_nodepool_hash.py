"""The NodePool hash: upstream's executed vectors, and what may and may not change it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis.karpenter import NodePool
from karpenter.apis.nodepool_hash import nodepool_hash

REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
SHORT_TAINTS = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
SHORT = {
    "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
    "expireAfter": "1h",
    "terminationGracePeriod": "5m",
    "taints": SHORT_TAINTS,
}
SHORT_HASH = "6429888089974024371"

VECTORS = [
    ({"spec": {"expireAfter": ""}}, "17307646073972311821"),
    ({"spec": {"nodeClassRef": REF, "expireAfter": "720h"}}, "6821555240594823858"),
    ({"spec": {"nodeClassRef": REF, "expireAfter": "Never"}}, "17369979337536258260"),
    (
        {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeClassRef": REF, "expireAfter": "720h"}},
        "11962592403282335759",
    ),
    (
        {
            "metadata": {"annotations": {"a": "b"}},
            "spec": {"nodeClassRef": REF, "expireAfter": "720h", "terminationGracePeriod": "30m"},
        },
        "16374465927817914889",
    ),
    ({"spec": {"nodeClassRef": REF, "expireAfter": "720h", "taints": [TAINT]}}, "17590007864747601603"),
    (
        {"spec": {"nodeClassRef": REF, "expireAfter": "720h", "startupTaints": [TAINT]}},
        "15284629203317741040",
    ),
    ({"spec": SHORT}, SHORT_HASH),
    ({"spec": {**SHORT, "taints": SHORT_TAINTS[::-1]}}, SHORT_HASH),
    ({"spec": {**SHORT, "expireAfter": "60m", "terminationGracePeriod": "300s"}}, SHORT_HASH),
]


def pool(template: dict[str, object], **spec: object) -> NodePool:
    return msgspec.convert({"spec": {"template": template, **spec}}, NodePool)


@pytest.mark.parametrize(("template", "expected"), VECTORS)
def test_vectors(template: dict[str, object], expected: str) -> None:
    """Upstream's own hash of the same template comes out."""
    assert nodepool_hash(pool(template)) == expected


@given(st.dictionaries(st.text("abc", min_size=1), st.text("xyz"), max_size=4))
def test_order_of_labels_does_not_matter(labels: dict[str, str]) -> None:
    """The order in which labels are written never shows in the hash."""
    turned = dict(reversed(labels.items()))
    assert nodepool_hash(pool({"metadata": {"labels": labels}})) == nodepool_hash(
        pool({"metadata": {"labels": turned}})
    )


def test_requirements_and_disruption_are_not_hashed() -> None:
    """Requirements, budgets, limits and weight may change without drift of this kind."""
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    changed = pool(
        {"spec": {**SHORT, "requirements": [requirement]}},
        weight=3,
        limits={"cpu": "10"},
        disruption={"consolidateAfter": "5m", "budgets": [{"nodes": "1"}]},
    )
    assert nodepool_hash(changed) == SHORT_HASH


@pytest.mark.parametrize(
    "change",
    [
        {"expireAfter": "2h"},
        {"terminationGracePeriod": "6m"},
        {"taints": []},
        {"startupTaints": [TAINT]},
        {"nodeClassRef": {"group": "g", "kind": "K", "name": "other"}},
    ],
)
def test_hashed_fields(change: dict[str, object]) -> None:
    """Every hashed field shows in the hash."""
    assert nodepool_hash(pool({"spec": {**SHORT, **change}})) != SHORT_HASH


def test_a_bad_duration_is_an_error() -> None:
    """A duration that is none cannot be hashed."""
    with pytest.raises(ValueError, match="not a duration"):
        nodepool_hash(pool({"spec": {"expireAfter": "soon"}}))
