"""Why a drain waits, in words and as data: what holds each pod, whether waiting helps, and what would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis.core import IntOrString, Pod
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta
from karpenter.apis.workloads import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
)
from karpenter.base.timestamps import format_time, parse_time
from karpenter.disruption.drainblocks import DrainBlock, drain_blocks, in_words, volume_blocks
from karpenter.model.pdbs import PdbLimits
from karpenter.testing.builders import a_node, a_pod, an_owner

NOW = parse_time("2026-01-01T12:00:00Z")
READY = Condition(type="Ready", status="True")


def web(name: str = "web-1", *, ready: bool = True, deleted: float | None = None, **fields: object) -> Pod:
    """Return a running pod; `deleted` is in how many seconds its grace ends."""
    stamp = None if deleted is None else format_time(NOW + deleted)
    pod = a_pod(name, node_name="node", labels={"app": "web"}, deleted=stamp, **fields)  # type: ignore[arg-type]
    return replace(pod, status=replace(pod.status, conditions=[READY] if ready else []))


def a_budget(
    name: str = "web",
    *,
    healthy: int = 3,
    desired: int = 3,
    expected: int = 3,
    min_available: IntOrString | None = None,
    max_unavailable: IntOrString | None = None,
    generation: int = 0,
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default", generation=generation),
        spec=PodDisruptionBudgetSpec(
            min_available=min_available,
            max_unavailable=max_unavailable,
            selector=LabelSelector(match_labels={"app": "web"}),
        ),
        status=PodDisruptionBudgetStatus(
            disruptions_allowed=max(0, healthy - desired),
            current_healthy=healthy,
            desired_healthy=desired,
            expected_pods=expected,
        ),
    )


def only(pod: Pod, *budgets: PodDisruptionBudget, **fields: object) -> DrainBlock | None:
    blocks = drain_blocks([pod], PdbLimits(budgets), NOW, **fields)  # type: ignore[arg-type]
    assert len(blocks) <= 1
    return blocks[0] if blocks else None


@pytest.mark.parametrize(
    ("budget", "message", "remedy"),
    [
        (
            a_budget(min_available=1, healthy=1, desired=1, expected=1),
            "minAvailable 1 of 1 pod can never allow an eviction",
            "raise replicas to 2 or set maxUnavailable 1",
        ),
        (
            a_budget(min_available=5),
            "minAvailable 5 of 3 pods can never allow an eviction",
            "raise replicas to 4 or set maxUnavailable 1",
        ),
        (
            a_budget(min_available="100%"),
            "minAvailable 100% of 3 pods can never allow an eviction",
            "set maxUnavailable 1",
        ),
        (
            a_budget(min_available="90%"),
            "minAvailable 90% of 3 pods can never allow an eviction",
            "raise replicas to 10 or set maxUnavailable 1",
        ),
        (
            a_budget(min_available="50%", healthy=1, desired=1, expected=1),
            "minAvailable 50% of 1 pod can never allow an eviction",
            "raise replicas to 2 or set maxUnavailable 1",
        ),
        (
            a_budget(max_unavailable=0),
            "maxUnavailable 0 of 3 pods can never allow an eviction",
            "set maxUnavailable 1",
        ),
        (
            a_budget(max_unavailable="0%", healthy=0, desired=0, expected=0),
            "maxUnavailable 0% can never allow an eviction",
            "set maxUnavailable 1",
        ),
    ],
)
def test_a_budget_that_can_never_allow_an_eviction(
    budget: PodDisruptionBudget, message: str, remedy: str
) -> None:
    """It is said with its arithmetic, and with the smallest change that helps."""
    block = only(web(), budget)
    assert block == DrainBlock(
        pod="default/web-1",
        kind="pdbNever",
        message=f"PodDisruptionBudget default/web: {message}",
        remedy=remedy,
        permanent=True,
    )


@pytest.mark.parametrize(
    ("kind", "annotations", "told"),
    [
        ("ReplicaSet", {}, True),
        ("StatefulSet", {}, False),
        ("ReplicaSet", {"karpenter-py.dev/surge": "true"}, False),
    ],
)
def test_surging_is_a_way_out_for_deployments(kind: str, annotations: dict[str, str], told: bool) -> None:
    """It is named where it could help and was not asked for yet."""
    block = only(web(owner=an_owner(kind), annotations=annotations), a_budget(max_unavailable=0))
    assert block is not None
    surge = ', or annotate its template karpenter-py.dev/surge: "true"'
    assert block.remedy == "set maxUnavailable 1" + (surge if told else "")


@pytest.mark.parametrize("replicas", range(1, 30))
@pytest.mark.parametrize("percent", [1, 33, 50, 75, 90, 99])
def test_the_remedy_for_a_percentage_is_the_smallest_that_helps(percent: int, replicas: int) -> None:
    """As many replicas as said would let one pod go; one less would not."""

    def kept(pods: int) -> int:
        return -(-percent * pods // 100)

    budget = a_budget(
        min_available=f"{percent}%", healthy=replicas, desired=kept(replicas), expected=replicas
    )
    block = only(web(), budget)
    if kept(replicas) < replicas:
        assert block is None
        return
    assert block is not None
    enough = int(block.remedy.removeprefix("raise replicas to ").partition(" ")[0])
    assert kept(enough) < enough
    assert kept(enough - 1) >= enough - 1


@pytest.mark.parametrize(
    ("budget", "said", "remedy"),
    [
        (
            a_budget(min_available=2, healthy=2, desired=2),
            "minAvailable 2 of 3 pods: 2 of 3 healthy, 2 must stay: no eviction now",
            "1 more of its pods must become Ready",
        ),
        (
            a_budget(max_unavailable=1, healthy=0, desired=2),
            "maxUnavailable 1 of 3 pods: 0 of 3 healthy, 2 must stay: no eviction now",
            "3 more of its pods must become Ready, or unhealthyPodEvictionPolicy: AlwaysAllow lets unready "
            "ones go",
        ),
        (
            a_budget(min_available=2, healthy=3, desired=2, generation=1),
            "minAvailable 2 of 3 pods: its status does not tell of its latest change yet",
            "",
        ),
    ],
)
def test_not_now_is_told_from_never(budget: PodDisruptionBudget, said: str, remedy: str) -> None:
    """A budget that is short of healthy pods only delays, and says by how many."""
    block = only(web(), budget)
    assert block is not None
    assert (block.kind, block.permanent) == ("pdbNotNow", False)
    assert block.message == f"PodDisruptionBudget default/web: {said}"
    assert block.remedy == remedy


def test_several_budgets_over_a_pod() -> None:
    """All are named; no waiting helps, however much each allows."""
    block = only(web(), a_budget("b", desired=1), a_budget("a", desired=1))
    assert block is not None
    assert (block.kind, block.permanent) == ("severalPdbs", True)
    assert "default/a, default/b" in block.message


@pytest.mark.parametrize(
    ("value", "started", "message", "permanent"),
    [
        ("true", -60.0, "protects it for as long as it runs", True),
        ("30m", -60.0, "protects it until 2026-01-01T12:29:00Z (30m from its start)", False),
        ("30m", None, "protects it for 30m from its start, and it has not started", False),
    ],
)
def test_how_long_do_not_disrupt_holds(
    value: str, started: float | None, message: str, permanent: bool
) -> None:
    """The moment it ends is named, if it does."""
    pod = web(annotations={"karpenter.sh/do-not-disrupt": value})
    start = None if started is None else format_time(NOW + started)
    pod = replace(pod, status=replace(pod.status, start_time=start))
    block = only(pod)
    assert block is not None
    assert block.kind == "doNotDisrupt"
    assert block.message == f'annotation "karpenter.sh/do-not-disrupt" {message}'
    assert block.permanent is permanent


@pytest.mark.parametrize("value", ["30m", "false", "soon", "-5m"])
def test_protection_that_does_not_hold_blocks_nothing(value: str) -> None:
    """Durations that are over and values that are ignored keep no node."""
    pod = web(annotations={"karpenter.sh/do-not-disrupt": value})
    assert only(replace(pod, status=replace(pod.status, start_time=format_time(NOW - 1800)))) is None


def test_finalizers_of_a_pod_that_should_be_gone() -> None:
    """They are named, and when the drain goes on without it."""
    pod = web(deleted=-10)
    block = only(replace(pod, metadata=replace(pod.metadata, finalizers=["example.com/hold"])))
    assert block is not None
    assert (block.kind, block.permanent) == ("finalizer", False)
    assert block.message == (
        "should have ended at 2026-01-01T11:59:50Z, but its finalizers (example.com/hold) keep it; "
        "the drain goes on without it at 2026-01-01T12:00:50Z"
    )
    assert "example.com/hold" in block.remedy


def test_a_kubelet_that_is_gone_is_named() -> None:
    """Nobody can say that the pod has ended while its node does not report."""
    node = a_node(ready=False)
    block = only(web(deleted=-10), node=node)
    assert block is not None
    assert block.kind == "kubeletGone"
    assert "the kubelet of node is not ready" in block.message
    late = only(web(deleted=-10), node=a_node())
    assert late is not None
    assert late.kind == "slowEnd"


@pytest.mark.parametrize(
    ("grace", "ends_in", "named"),
    [(30, 20, False), (60, 50, False), (61, 50, True), (3600, 3000, True), (30, -4, False), (30, -5, True)],
)
def test_only_long_ends_are_worth_a_word(grace: int, ends_in: float, named: bool) -> None:
    """A pod that takes its half minute is no block; one that takes an hour, or is late, is."""
    pod = web(deleted=ends_in)
    pod = replace(pod, metadata=replace(pod.metadata, deletion_grace_period_seconds=grace))
    assert (only(pod, node=a_node()) is not None) is named


@pytest.mark.parametrize(
    "pod", [web(deleted=-61), web(phase="Succeeded"), web("free")], ids=["stuck", "ended", "free"]
)
def test_pods_that_hold_nothing(pod: Pod) -> None:
    """Those given up, those that have ended, and those that nothing protects."""
    assert only(pod) is None


def test_a_deadline_ends_every_block() -> None:
    """With a grace period nothing holds for good, and the words say when it is over."""
    held = web(annotations={"karpenter.sh/do-not-disrupt": "true"})
    blocks = drain_blocks([held], PdbLimits([]), NOW, deadline=NOW + 600)
    assert [block.permanent for block in blocks] == [False]
    assert in_words(blocks, NOW + 600).endswith(
        "remove the annotation. Whatever is left is deleted in time for 2026-01-01T12:10:00Z"
    )


def test_what_waiting_will_not_end_comes_first() -> None:
    """Then what is likelier to need a hand; pods by name."""
    pods = [
        web("a", annotations={"karpenter.sh/do-not-disrupt": "30m"}),
        web("b", annotations={"karpenter.sh/do-not-disrupt": "true"}),
        web("c"),
    ]
    blocks = drain_blocks(pods, PdbLimits([a_budget(max_unavailable=0)]), NOW)
    assert [b.pod for b in blocks] == ["default/c", "default/b", "default/a"]


def test_one_cause_is_said_once() -> None:
    """With the pods it holds, the first by name; long lists are cut, with how many more."""
    pods = [web(f"web-{i}") for i in range(5)]
    words = in_words(drain_blocks(pods, PdbLimits([a_budget(max_unavailable=0)]), NOW))
    assert words == (
        "pods default/web-0, default/web-1, default/web-2 and 2 more: PodDisruptionBudget default/web: "
        "maxUnavailable 0 of 3 pods can never allow an eviction; set maxUnavailable 1"
    )
    many = [
        DrainBlock(pod=f"p{i}", kind="slowEnd", message=f"m{i}", remedy="", permanent=False) for i in range(5)
    ]
    assert in_words(many) == "pod p0: m0. pod p1: m1. pod p2: m2. And 2 more"
    assert in_words(()) == ""


def test_volumes_that_stay_attached() -> None:
    """The attachment, the volume and who should detach it."""
    spec = VolumeAttachmentSpec(
        node_name="node",
        attacher="csi.example.com",
        source=VolumeAttachmentSource(persistent_volume_name="pv-1"),
    )
    (block,) = volume_blocks([VolumeAttachment(metadata=ObjectMeta(name="va"), spec=spec)])
    assert in_words([block]) == (
        "VolumeAttachment va still attaches PersistentVolume pv-1; "
        "see why the attacher csi.example.com does not detach it"
    )
    assert block.kind == "volumeAttached"


PODS = st.builds(
    lambda i, ready, deleted, held: web(
        f"p{i}",
        ready=ready,
        deleted=deleted,
        annotations={"karpenter.sh/do-not-disrupt": held} if held else {},
    ),
    st.integers(0, 9),
    st.booleans(),
    st.none() | st.floats(-100, 100),
    st.sampled_from(["", "true", "1h", "nonsense"]),
)


@given(st.lists(PODS, unique_by=lambda p: p.name, max_size=6), st.integers(0, 3), st.integers(0, 3))
def test_blocks_do_not_depend_on_the_order_of_pods(pods: list[Pod], healthy: int, desired: int) -> None:
    """Each pod has one block at most, always in the same order, none of them without words."""
    limits = PdbLimits([a_budget(min_available=desired, healthy=healthy, desired=desired)])
    blocks = drain_blocks(pods, limits, NOW)
    assert blocks == drain_blocks(pods[::-1], limits, NOW)
    assert len({b.pod for b in blocks}) == len(blocks)
    assert all(b.message for b in blocks)
