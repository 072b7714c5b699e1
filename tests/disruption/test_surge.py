"""Whether a pod can have its stand-in before it goes: what is asked of whom, and what stands in the way."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import (
    IntOrString,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    PodTemplateSpec,
    TemplateMeta,
)
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta
from karpenter.apis.workloads import (
    Deployment,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    RollingUpdate,
    RolloutStrategy,
    WorkloadSpec,
    WorkloadStatus,
)
from karpenter.disruption.surge import (
    bears_eviction,
    is_rolling_out,
    moves_freely,
    plan_surge,
    surge_and_unavailable,
    why_no_surge,
    why_no_surge_of,
    why_no_surge_with,
)
from karpenter.model.pdbs import PdbLimits
from karpenter.model.pods import asks_for_surge, expects_stand_in
from karpenter.testing.builders import a_pod, an_owner

READY = Condition(type="Ready", status="True")
NODE = "uid-of-the-node"


def web(*, ready: bool = True, annotations: dict[str, str] | None = None) -> Pod:
    pod = a_pod("web-1", node_name="node", labels={"app": "web"}, annotations=annotations)
    return replace(pod, status=replace(pod.status, conditions=[READY] if ready else []))


def a_budget(desired: int, expected: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=PodDisruptionBudgetSpec(
            min_available=desired, selector=LabelSelector(match_labels={"app": "web"})
        ),
        status=PodDisruptionBudgetStatus(
            disruptions_allowed=max(0, expected - desired),
            current_healthy=expected,
            desired_healthy=desired,
            expected_pods=expected,
        ),
    )


def a_deployment(
    replicas: int | None = 1,
    *,
    surge: IntOrString | None = None,
    unavailable: IntOrString | None = None,
    kind: str = "RollingUpdate",
    paused: bool = False,
    marked_for: str = "",
    updated: int | None = None,
    total: int | None = None,
    generation: int = 1,
    stuck: bool = False,
) -> Deployment:
    """Return a Deployment at rest unless `updated` (of `total`) pods are of its newest template."""
    count = 1 if replicas is None else replicas
    mark = {labels.SURGED_FOR: marked_for} if marked_for else {}
    failed = Condition(type="Progressing", status="False", reason="ProgressDeadlineExceeded")
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="default", generation=generation),
        spec=WorkloadSpec(
            replicas=replicas,
            paused=paused,
            strategy=RolloutStrategy(
                type=kind, rolling_update=RollingUpdate(max_surge=surge, max_unavailable=unavailable)
            ),
            template=PodTemplateSpec(metadata=TemplateMeta(annotations=mark)),
        ),
        status=WorkloadStatus(
            replicas=count if total is None else total,
            updated_replicas=count if updated is None else updated,
            available_replicas=count,
            observed_generation=1,
            conditions=[failed] if stuck else [],
        ),
    )


@pytest.mark.parametrize(("value", "asks"), [("true", True), ("True", False), ("", False), ("yes", False)])
def test_opting_in(value: str, asks: bool) -> None:
    """The annotation says `true`, nothing else; only pods of ReplicaSets can expect another."""
    pod = a_pod(annotations={labels.SURGE: value})
    assert asks_for_surge(pod) is asks
    owned = a_pod(annotations={labels.SURGE: value}, owner=an_owner("ReplicaSet"))
    assert expects_stand_in(owned) is asks
    assert not expects_stand_in(a_pod(annotations={labels.SURGE: value}, owner=an_owner("StatefulSet")))


@pytest.mark.parametrize(
    ("budgets", "others", "ready", "bears"),
    [
        ([], 1, True, True),
        ([], 0, True, False),
        ([], 0, False, True),
        ([a_budget(2, 2)], 1, True, False),
        ([a_budget(1, 2)], 1, True, True),
        ([a_budget(1, 2)], 0, True, False),
        ([a_budget(2, 2)], 1, False, True),
    ],
)
def test_who_cannot_bear_an_eviction(
    budgets: list[PodDisruptionBudget], others: int, ready: bool, bears: bool
) -> None:
    """Who is held by its budget for ever, or is the last to serve; not who serves nobody."""
    assert bears_eviction(web(ready=ready), PdbLimits(budgets), others) is bears


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "counts"),
    [
        (1, None, None, (1, 0)),
        (3, None, None, (1, 0)),
        (4, None, None, (1, 1)),
        (10, "25%", "25%", (3, 2)),
        (None, 1, 0, (1, 0)),
        (5, 0, 0, (0, 1)),
        (5, "0%", "10%", (0, 1)),
        (0, None, None, (0, 1)),
    ],
)
def test_strategies_count_as_for_the_deployment_controller(
    replicas: int | None, surge: IntOrString | None, unavailable: IntOrString | None, counts: tuple[int, int]
) -> None:
    """Surge rounds up, unavailability down; both cannot be none."""
    made = a_deployment(replicas, surge=surge, unavailable=unavailable)
    assert surge_and_unavailable(made) == counts


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (a_deployment(), ""),
        (a_deployment(4, surge=1, unavailable=0), ""),
        (a_deployment(paused=True), "Deployment default/web is paused: resume it"),
        (a_deployment(kind="Recreate"), "Deployment default/web has strategy Recreate: use RollingUpdate"),
        (a_deployment(surge=0, unavailable=1), "Deployment default/web has maxSurge 0: set maxSurge 1"),
        (a_deployment(4), "Deployment default/web may miss 1 of its pods while it rolls out"),
    ],
)
def test_what_keeps_a_deployment_from_surging(made: Deployment, why: str) -> None:
    """With what to set; nothing where the new pod comes first and none is missed."""
    assert why_no_surge(made).startswith(why)
    assert bool(why_no_surge(made)) == bool(why)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("StatefulSet", "StatefulSet owner replaces a pod under its old name, after it has gone"),
        ("Job", "Job owner has no rollouts: use a Deployment"),
        (None, "nobody owns the pod"),
    ],
)
def test_who_else_cannot_surge(kind: str | None, why: str) -> None:
    """The reason is the owner's."""
    assert why_no_surge_of(an_owner(kind) if kind else None).startswith(why)


@pytest.mark.parametrize(
    ("modes", "shared"),
    [
        ([["ReadWriteMany"]], True),
        ([["ReadOnlyMany"], ["ReadWriteOnce", "ReadWriteMany"]], True),
        ([["ReadWriteOnce"]], False),
        ([["ReadWriteMany"], ["ReadWriteOncePod"]], False),
        ([], True),
    ],
)
def test_volumes_that_two_pods_cannot_share(modes: list[list[str]], shared: bool) -> None:
    """A stand-in would wait for the volume, and the pod for its stand-in: that is not begun."""
    claims = [
        PersistentVolumeClaim(
            metadata=ObjectMeta(name=f"data-{i}", namespace="default"),
            spec=PersistentVolumeClaimSpec(access_modes=each),
        )
        for i, each in enumerate(modes)
    ]
    why = why_no_surge_with(claims)
    assert (why == "") is shared
    assert shared or why.startswith(f"PersistentVolumeClaim default/data-{len(modes) - 1} (ReadWriteOnce")


@pytest.mark.parametrize(
    ("made", "step"),
    [
        (a_deployment(), "roll"),
        (a_deployment(marked_for="another-node"), "roll"),
        (a_deployment(marked_for=NODE), "wait"),
        (a_deployment(marked_for=NODE, paused=True), "wait"),
        (a_deployment(updated=0), "wait"),
        (a_deployment(total=2), "wait"),
        (a_deployment(generation=2), "wait"),
        (a_deployment(paused=True), "evict"),
    ],
)
def test_one_rollout_a_drain_and_one_at_a_time(made: Deployment, step: str) -> None:
    """It starts when none is under way and none was started for this node."""
    surge = plan_surge(web(), made, NODE)
    assert surge.step == step
    assert (surge.block is None) == (step == "evict")
    assert bool(surge.impossible) == (step == "evict")


def test_no_rollout_takes_a_protected_pod() -> None:
    """One that is under way already is waited for; none is begun while another pod must not be disrupted."""
    held = a_pod("web-2", annotations={labels.DO_NOT_DISRUPT: "true"})
    surge = plan_surge(web(), a_deployment(2, surge=1, unavailable=0), NODE, held)
    assert surge.step == "wait"
    assert surge.block is not None
    assert (surge.block.pod, surge.block.kind, surge.block.permanent) == ("default/web-1", "surge", True)
    assert "a rollout would take pod default/web-2" in surge.block.message
    assert plan_surge(web(), a_deployment(marked_for=NODE), NODE, held).step == "wait"


def test_a_pod_of_the_rollout_for_this_node_goes_as_any_other() -> None:
    """Should its own rollout put a pod where it must leave again, there is no second one."""
    pod = web(annotations={labels.SURGED_FOR: NODE})
    assert plan_surge(pod, a_deployment(marked_for=NODE), NODE).step == "evict"
    assert (
        plan_surge(web(annotations={labels.SURGED_FOR: "another-node"}), a_deployment(), NODE).step == "roll"
    )


@pytest.mark.parametrize(
    ("made", "words", "permanent"),
    [
        (a_deployment(marked_for=NODE, total=2), "rolls out for that (1 new, 1 available)", False),
        (a_deployment(total=2), "waits for a rollout of Deployment default/web to end", False),
        (a_deployment(marked_for=NODE, total=2, stuck=True), "rolls out for that", True),
        (a_deployment(marked_for=NODE, total=2, paused=True), "rolls out for that", True),
    ],
)
def test_what_a_surging_pod_waits_for_is_said(made: Deployment, words: str, permanent: bool) -> None:
    """Whose rollout, how far it is, and whether somebody has to see to it."""
    block = plan_surge(web(), made, NODE).block
    assert block is not None
    assert block.kind == "surge"
    assert words in block.message
    assert block.permanent is permanent
    assert bool(block.remedy) is permanent


@pytest.mark.parametrize(
    ("value", "made", "freely"),
    [
        ("true", a_deployment(), True),
        ("true", a_deployment(None), True),
        ("true", a_deployment(2, surge=1, unavailable=0), False),
        ("true", a_deployment(kind="Recreate"), False),
        ("", a_deployment(), False),
    ],
)
def test_whose_node_may_be_disrupted_at_will(value: str, made: Deployment, freely: bool) -> None:
    """A single replica's that surges; a rollout of many pods is too much for the sake of one node."""
    assert moves_freely(web(annotations={labels.SURGE: value}), made) is freely


def test_being_at_rest() -> None:
    """A Deployment without replicas is not rolling out."""
    assert not is_rolling_out(a_deployment(0))
    assert not is_rolling_out(a_deployment(None))
