"""Taints and tolerations."""

import pytest

from karpenter.apis.core import Taint, Toleration
from karpenter.model.taints import DISRUPTED, UNREGISTERED, is_ephemeral, merge, tolerated, tolerates

GPU = Taint(key="gpu", value="a100", effect="NoSchedule")
LEVEL = Taint(key="level", value="7", effect="NoExecute")


@pytest.mark.parametrize(
    ("taint", "toleration", "covered"),
    [
        (GPU, Toleration(key="gpu", value="a100"), True),
        (GPU, Toleration(key="gpu", value="a100", effect="NoSchedule"), True),
        (GPU, Toleration(key="gpu", value="a100", effect="NoExecute"), False),
        (GPU, Toleration(key="gpu", value="t4"), False),
        (GPU, Toleration(key="gpu", operator="Exists"), True),
        (GPU, Toleration(operator="Exists"), True),
        (GPU, Toleration(operator="Exists", effect="PreferNoSchedule"), False),
        (GPU, Toleration(key="other", operator="Exists"), False),
        (LEVEL, Toleration(key="level", operator="Lt", value="8"), True),
        (LEVEL, Toleration(key="level", operator="Gt", value="8"), False),
        (GPU, Toleration(key="gpu", operator="Gt", value="1"), False),
        (GPU, Toleration(key="gpu", operator="Matches", value="a100"), False),
    ],
)
def test_toleration(taint: Taint, toleration: Toleration, covered: bool) -> None:
    """Keys, values, effects and numeric comparison, as Kubernetes defines them."""
    assert tolerated(taint, toleration) == covered


def test_all_untolerated_taints_are_reported_of_any_effect() -> None:
    """Nothing is left out, soft taints included."""
    soft = Taint(key="soft", effect="PreferNoSchedule")
    error = tolerates([GPU, soft, LEVEL], [Toleration(key="level", operator="Exists")])
    assert error == "did not tolerate taint gpu=a100:NoSchedule; did not tolerate taint soft:PreferNoSchedule"
    assert tolerates([GPU], [Toleration(operator="Exists")]) == ""


@pytest.mark.parametrize(
    ("taint", "ephemeral"),
    [
        (Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"), True),
        (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"), False),
        (Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect="NoSchedule"), True),
        (Taint(key="readiness.k8s.io/network", effect="NoExecute"), True),
        (Taint(key="my.readiness.k8s.io/network", effect="NoExecute"), False),
        (UNREGISTERED, True),
        (DISRUPTED, False),
    ],
)
def test_ephemeral_taints(taint: Taint, ephemeral: bool) -> None:
    """Taints that a starting node loses by itself, by key and effect."""
    assert is_ephemeral(taint) == ephemeral


def test_merge_keeps_the_first_of_a_kind() -> None:
    """Same key and effect is the same taint."""
    other = Taint(key="gpu", value="x", effect="NoSchedule")
    assert merge([GPU], [other, LEVEL]) == [GPU, LEVEL]
    assert merge([LEVEL, GPU], [other]) == [LEVEL, GPU]
