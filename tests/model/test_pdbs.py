"""Which budgets stand in the way of an eviction."""

import msgspec
import pytest

from karpenter.apis.core import IntOrString
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta
from karpenter.apis.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from karpenter.base.clock import parse_time
from karpenter.model.pdbs import PdbLimits
from karpenter.testing.builders import a_pod

NOW = parse_time("2026-01-01T00:00:00Z")
POD = a_pod(labels={"app": "web"}, node_name="n")


def a_pdb(
    name: str = "pdb",
    *,
    allowed: int = 0,
    namespace: str = "default",
    selector: LabelSelector | None = None,
    max_unavailable: IntOrString | None = None,
    min_available: IntOrString | None = None,
    policy: str | None = None,
) -> PodDisruptionBudget:
    """Return a budget over `app: web`."""
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(
            selector=LabelSelector(match_labels={"app": "web"}) if selector is None else selector,
            max_unavailable=max_unavailable,
            min_available=min_available,
            unhealthy_pod_eviction_policy=policy,
        ),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


@pytest.mark.parametrize(
    ("pdb", "blocks"),
    [
        (a_pdb(), True),
        (a_pdb(allowed=1), False),
        (a_pdb(namespace="other"), False),
        (a_pdb(selector=LabelSelector(match_labels={"app": "db"})), False),
        (a_pdb(selector=LabelSelector()), True),
    ],
)
def test_a_budget_without_disruptions_left_blocks_its_pods(pdb: PodDisruptionBudget, blocks: bool) -> None:
    """Only budgets of the namespace whose selector matches count."""
    assert bool(PdbLimits([pdb]).blocking(POD, NOW)) == blocks


@pytest.mark.parametrize(
    ("pdb", "fully"),
    [
        (a_pdb(max_unavailable=0), True),
        (a_pdb(max_unavailable="0%"), True),
        (a_pdb(min_available="100%"), True),
        (a_pdb(max_unavailable=1), False),
        (a_pdb(min_available="99%"), False),
    ],
)
def test_budgets_that_never_let_go(pdb: PodDisruptionBudget, fully: bool) -> None:
    """No tolerance at all blocks for good; the momentary count does not matter."""
    assert bool(PdbLimits([pdb]).fully_blocking(POD)) == fully


def test_two_budgets_over_one_pod_always_block() -> None:
    """The eviction API refuses pods with several budgets."""
    limits = PdbLimits([a_pdb("a", allowed=5), a_pdb("b", allowed=5)])
    assert "default/a default/b" in limits.blocking(POD, NOW)
    assert limits.fully_blocking(POD)


def test_unhealthy_pods_may_go_where_the_budget_says_so() -> None:
    """AlwaysAllow lets pods go that are not ready."""

    status = msgspec.structs.replace(POD.status, conditions=[Condition(type="Ready", status="False")])
    sick = msgspec.structs.replace(POD, status=status)
    limits = PdbLimits([a_pdb(policy="AlwaysAllow", max_unavailable=0)])
    assert limits.blocking(sick, NOW) == limits.fully_blocking(sick) == ""
    assert limits.blocking(POD, NOW)


def test_pods_nobody_evicts_are_not_held_by_budgets() -> None:
    """A protected pod is no business of the budget's."""
    protected = a_pod(
        labels={"app": "web"}, annotations={"karpenter.sh/do-not-disrupt": "true"}, node_name="n"
    )
    assert PdbLimits([a_pdb()]).blocking(protected, NOW) == ""
