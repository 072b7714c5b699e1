"""Which pods of a draining node go now, and when one is deleted past everything that protects it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis.core import Pod, Toleration
from karpenter.base.timestamps import format_time, parse_time
from karpenter.controllers.node.drain import grace_seconds, needs_force_delete, next_look, plan_drain
from karpenter.testing.builders import a_daemon, a_pod, an_owner

NOW = parse_time("2026-01-01T12:00:00Z")
CRITICAL = {"priority_class_name": "system-cluster-critical"}
NODE_CRITICAL = {"priority_class_name": "system-node-critical"}


def pod(name: str, **fields: object) -> Pod:
    return a_pod(name, node_name="node", **fields)  # type: ignore[arg-type]


def daemon(name: str, **fields: object) -> Pod:
    return a_daemon(name, node_name="node", namespace="default", **fields)


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [p.name for p in pods]


ORDER = [
    [pod("app-1"), pod("app-2")],
    [daemon("agent")],
    [pod("dns", spec=CRITICAL), pod("mesh", spec=NODE_CRITICAL)],
    [daemon("proxy", spec=NODE_CRITICAL)],
]


@pytest.mark.parametrize("gone", range(4))
def test_the_four_groups_go_one_after_the_other(gone: int) -> None:
    """Ordinary pods, ordinary daemons, critical pods, critical daemons: each when the one before has gone."""
    left = [p for group in ORDER[gone:] for p in group]
    drain = plan_drain(left[::-1], NOW, None)
    assert names(drain.evict) == [p.name for p in ORDER[gone]]
    assert names(drain.waiting) == sorted(p.name for p in left)


def test_a_terminating_pod_holds_the_next_group_back() -> None:
    """A group is through when its pods have gone, not when they were asked to go."""
    going = pod("app", deleted=format_time(NOW + 20))
    drain = plan_drain([going, daemon("agent")], NOW, None)
    assert names(drain.evict) == ["app"]
    assert names(drain.waiting) == ["agent", "app"]


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (pod("done", phase="Succeeded"), "it has run to its end"),
        (pod("failed", phase="Failed"), "it has run to its end"),
        (pod("static", owner=an_owner("Node", api_version="v1")), "it is a mirror of a static pod"),
        (pod("stuck", deleted=format_time(NOW - 61)), "it should have gone a minute ago"),
        (
            pod("tolerant", tolerations=[Toleration(key="karpenter.sh/disrupted", operator="Exists")]),
            "it tolerates the taint of nodes that go",
        ),
        (
            pod("equal", tolerations=[Toleration(key="karpenter.sh/disrupted", operator="Equal")]),
            "it tolerates just the taint, and Equal with no value is its value",
        ),
        (
            pod(
                "no-schedule",
                tolerations=[
                    Toleration(key="karpenter.sh/disrupted", operator="Exists", effect="NoSchedule")
                ],
            ),
            "it tolerates the taint's effect",
        ),
        (pod("tolerates-all", tolerations=[Toleration(operator="Exists")]), "it tolerates everything"),
    ],
)
def test_pods_a_drain_leaves_alone(left: Pod, why: str) -> None:
    """Some pods neither go nor hold the node."""
    assert plan_drain([left], NOW, None).waiting == (), why


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),
        Toleration(key="karpenter.sh/disrupted", operator="Exists", effect="NoExecute"),
        Toleration(key="karpenter.sh/disrupted", operator="Equal", value="yes"),
    ],
)
def test_other_tolerations_do_not_keep_a_pod(toleration: Toleration) -> None:
    """Who tolerates cordons, or another taint of that key, goes like everybody."""
    assert names(plan_drain([pod("goes", tolerations=[toleration])], NOW, None).evict) == ["goes"]


@pytest.mark.parametrize(
    ("ends_in", "grace", "deadline_in", "seconds"),
    [
        (None, 30, None, 10.0),
        (None, 30, 36, 6.0),
        (None, 30, 30, 1.0),
        (4, 30, None, 4.0),
        (-55, 30, None, 5.0),
        (400, 30, None, 10.0),
    ],
)
def test_a_drain_is_looked_at_again_when_something_is_due(
    ends_in: float | None, grace: int, deadline_in: float | None, seconds: float
) -> None:
    """When a pod must be forced, should have ended, or is given up; else every ten seconds."""
    deleted = None if ends_in is None else format_time(NOW + ends_in)
    waiting = pod("p", deleted=deleted, spec={"termination_grace_period_seconds": grace})
    deadline = None if deadline_in is None else NOW + deadline_in
    assert next_look([waiting], NOW, deadline, least=1.0, most=10.0) == seconds


def test_a_protected_pod_stalls_the_drain() -> None:
    """do-not-disrupt pods are waited for."""
    held = pod("held", annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert names(plan_drain([held], NOW, None).waiting) == ["held"]


@pytest.mark.parametrize(
    ("grace", "deleted_in", "deadline_in", "forced"),
    [
        (30, None, None, False),  # no deadline: never
        (30, None, 31, False),
        (30, None, 30, False),  # exactly enough is enough
        (30, None, 29, True),
        (0, None, 0, False),
        (0, None, -1, True),
        (None, None, -100, False),  # no period known: nothing to work back from
        (30, 10, 10, False),  # terminating, gone in time
        (30, 11, 10, True),  # terminating, but beyond the deadline
        (3600, 10, 10, False),  # its own period does not count any more
    ],
)
def test_needs_force_delete(
    grace: int | None, deleted_in: float | None, deadline_in: float | None, forced: bool
) -> None:
    """A pod is forced from its grace period before the deadline on; one that ends too late is hurried."""
    deleted = None if deleted_in is None else format_time(NOW + deleted_in)
    found = pod("p", deleted=deleted, spec={"termination_grace_period_seconds": grace})
    deadline = None if deadline_in is None else NOW + deadline_in
    assert needs_force_delete(found, NOW, deadline) is forced


@pytest.mark.parametrize(
    ("left", "grace"), [(30.0, 30), (29.9, 29), (1.0, 1), (0.5, 1), (0.0, 1), (-100.0, 1)]
)
def test_grace_seconds(left: float, grace: int) -> None:
    """What is left until the deadline, in whole seconds, and never none."""
    assert grace_seconds(NOW, NOW + left) == grace


def test_what_must_be_forced_goes_whatever_its_group() -> None:
    """A critical pod with a long grace period goes at once, beside the first group."""
    slow = pod("slow", spec={**CRITICAL, "termination_grace_period_seconds": 600})
    quick = pod("quick", spec={**CRITICAL, "termination_grace_period_seconds": 5})
    drain = plan_drain([pod("app"), slow, quick], NOW, NOW + 100)
    assert names(drain.evict) == ["app", "slow"]


PODS = st.builds(
    lambda i, critical, owned, grace: (daemon if owned else pod)(
        f"p{i}", spec={**(CRITICAL if critical else {}), "termination_grace_period_seconds": grace}
    ),
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
    st.integers(0, 200),
)


@given(st.lists(PODS, unique_by=lambda p: p.name, max_size=12), st.none() | st.integers(-50, 250))
def test_a_drain_always_goes_on(pods: list[Pod], deadline_in: int | None) -> None:
    """While pods wait some are asked to go; all that must be forced are; order in does not matter."""
    deadline = None if deadline_in is None else NOW + deadline_in
    drain = plan_drain(pods, NOW, deadline)
    assert bool(drain.evict) == bool(drain.waiting)
    assert set(names(drain.evict)) <= set(names(drain.waiting))
    assert {p.name for p in pods if needs_force_delete(p, NOW, deadline)} <= set(names(drain.evict))
    assert plan_drain(pods[::-1], NOW, deadline) == drain
