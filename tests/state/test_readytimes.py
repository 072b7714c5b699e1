"""What is learned of how long pods take until they are ready."""

import pytest
from msgspec.structs import replace

from karpenter.apis.core import ContainerStatus, Pod
from karpenter.apis.meta import Condition
from karpenter.base.timestamps import format_time
from karpenter.base.virtualtime import run_virtual
from karpenter.state.readytimes import REMEMBERED, ReadyTimes, seconds_to_ready
from karpenter.testing.builders import a_pod, an_owner
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import world

BOUND = 1_767_225_600.0
WEB = an_owner("ReplicaSet", "web")


def started(
    name: str, seconds: float | None, *, bound: bool = True, restarts: int = 0, kind: str = "ReplicaSet"
) -> Pod:
    """Return a pod that was ready so many seconds after it had its node; None: it is not ready yet."""
    at = BOUND + (seconds or 0.0)
    conditions = [
        Condition(
            type="Ready",
            status="False" if seconds is None else "True",
            last_transition_time=format_time(at),
        )
    ]
    if bound:
        conditions.append(
            Condition(type="PodScheduled", status="True", last_transition_time=format_time(BOUND))
        )
    pod = a_pod(name, owner=an_owner(kind, "web"), node_name="n")
    statuses = [ContainerStatus(name="main", ready=True, restart_count=restarts)]
    return replace(pod, status=replace(pod.status, conditions=conditions, container_statuses=statuses))


def learned(*pods: Pod) -> ReadyTimes:
    times = ReadyTimes()
    for pod in pods:
        times.note(pod)
    return times


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [
        pytest.param(started("a", 90), 90, id="from having a node to being ready"),
        pytest.param(started("a", None), None, id="not ready yet"),
        pytest.param(started("a", 90, bound=False), None, id="nobody knows when it got its node"),
        pytest.param(started("a", 90, restarts=1), None, id="its containers were restarted since"),
        pytest.param(started("a", 86400), 3600, id="more than an hour is not believed"),
        pytest.param(started("a", -2), 0, id="clocks differ"),
    ],
)
def test_a_pod_tells_how_long_it_took(pod: Pod, seconds: float | None) -> None:
    """What it waited for a node before is not counted."""
    assert seconds_to_ready(pod) == seconds


def test_the_median_of_the_latest_pods_counts() -> None:
    """One slow pull does not make a workload slow, and a workload that has become fast is fast."""
    assert learned(started("a", 60), started("b", 3000), started("c", 72)).hours() == {WEB.uid: 72 / 3600}
    pods = [*(started(f"old-{i}", 600) for i in range(40)), *(started(f"{i}", 36) for i in range(REMEMBERED))]
    assert learned(*pods).hours() == {WEB.uid: pytest.approx(0.01)}


def test_a_pod_counts_once() -> None:
    """A probe that fails and recovers is no slow start."""
    times = learned(started("a", 36), started("a", 3000), started("a", 3600))
    assert times.hours() == {WEB.uid: pytest.approx(0.01)}


def test_daemons_and_pods_of_nobody_are_not_counted() -> None:
    """The former go with their node, the latter do not come back."""
    assert learned(started("a", 36, kind="DaemonSet"), a_pod("bare", node_name="n")).hours() == {}


def test_a_workload_is_forgotten_with_its_last_pod() -> None:
    """So that memory is bounded by what is there."""
    times = learned(started("a", 36), started("b", 36))
    before = times.hours()
    times.forget(started("a", 36))
    assert times.hours() is before
    times.forget(started("b", 36))
    times.forget(started("b", 36))
    assert times.hours() == {}


def test_a_running_operator_learns_from_its_pods() -> None:
    """Also one that has just been started, from pods that are there."""

    async def scenario() -> None:
        async with world() as w:
            await w.apply([node_class(), pool()])
            await w.apply(deployment("web", 3))
            await w.until_replicas("web", 3)
            (owner,) = {o.uid for p in await w.pods("web") for o in p.metadata.owner_references}
            assert set(w.operator.context.cluster.ready_times.hours()) == {owner}
            await w.restart_operator()
            await w.wait(30)
            hours = w.operator.context.cluster.ready_times.hours()
            assert set(hours) == {owner}
            assert 0 <= hours[owner] < 60 / 3600

    run_virtual(scenario())
