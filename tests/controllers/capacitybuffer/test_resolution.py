"""What the status of a CapacityBuffer says, and when."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter.apis import conditions
from karpenter.apis.autoscaling import CapacityBuffer, CapacityBufferSpec, PodTemplateRef, ScalableRef
from karpenter.apis.core import Node, Pod, PodTemplate, PodTemplateSpec, TemplateMeta
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta
from karpenter.apis.workloads import Deployment, WorkloadSpec
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import capacitybuffer, node, nodeclaim, nodepool, provisioning
from karpenter.controllers.capacitybuffer.resolution import verdict
from karpenter.controllers.context import Settings
from karpenter.kube.patch import merge
from karpenter.state.buffers import Outcome
from karpenter.testing.builders import a_nodepool, a_pod, some_pods
from karpenter.testing.environment import Environment, environment

OPEN: dict[str, Any] = {
    "rooms": (provisioning, nodeclaim, node, nodepool, capacitybuffer),
    "settings": Settings(feature_gates={"CapacityBuffer": True}),
}
UNIT = PodTemplateRef(name="unit")
WEB = ScalableRef(api_group="apps", kind="Deployment", name="web")


def _template(cpu: str = "1") -> PodTemplate:
    return PodTemplate(
        metadata=ObjectMeta(name="unit", namespace="default"),
        template=PodTemplateSpec(spec=a_pod(cpu=cpu).spec),
    )


def _deployment(replicas: int | None) -> Deployment:
    spec = a_pod(cpu="1").spec
    labels = {"app": "web"}
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=WorkloadSpec(
            replicas=replicas,
            selector=LabelSelector(match_labels=labels),
            template=PodTemplateSpec(metadata=TemplateMeta(labels=labels), spec=spec),
        ),
    )


def _buffer(**spec: Any) -> CapacityBuffer:
    return CapacityBuffer(
        metadata=ObjectMeta(name="spare", namespace="default"), spec=CapacityBufferSpec(**spec)
    )


async def _status(
    env: Environment, holds: Callable[[CapacityBuffer], bool], *, within: float = 20.0
) -> CapacityBuffer:
    async def there() -> bool:
        return holds(await env.client.get(CapacityBuffer, "spare", "default"))

    await env.expect("the buffer's status is as expected", there, within=within)
    return await env.client.get(CapacityBuffer, "spare", "default")


def _is(type: str, status: str, reason: str) -> Callable[[CapacityBuffer], bool]:
    def holds(buffer: CapacityBuffer) -> bool:
        found = conditions.get(buffer.status.conditions, type)
        return found is not None and (found.status, found.reason) == (status, reason)

    return holds


def _provisioning_says(words: str) -> Callable[[CapacityBuffer], bool]:
    def holds(buffer: CapacityBuffer) -> bool:
        found = conditions.get(buffer.status.conditions, "Provisioning")
        return found is not None and found.message.startswith(words)

    return holds


def _of(buffer: CapacityBuffer, type: str) -> Condition:
    found = conditions.get(buffer.status.conditions, type)
    assert found is not None
    return found


def test_a_resolved_buffer_says_what_it_wants_and_gets_it() -> None:
    """Template, its generation, strategy and size are in the status; then the room is there."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool())
            await env.create(_template())
            await env.create(_buffer(pod_template_ref=UNIT, replicas=2))
            buffer = await _status(env, _is("ReadyForProvisioning", "True", "Resolved"))
            assert buffer.status.replicas == 2
            assert buffer.status.pod_template_ref == UNIT
            assert (
                buffer.status.pod_template_generation
                == (await env.client.get(PodTemplate, "unit", "default")).metadata.generation
            )
            assert buffer.status.provisioning_strategy == "buffer.x-k8s.io/active-capacity"
            buffer = await _status(env, _is("Provisioning", "True", "FitsExistingCapacity"), within=60)
            assert _of(buffer, "Provisioning").message == "All 2 virtual pods fit on existing capacity"
            assert len(env.cloud.created) == len(await env.claims()) == 1
            assert env.metric("karpenter_capacitybuffers_units", namespace="default", name="spare") == 2

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        ({"pod_template_ref": UNIT, "replicas": 1}, "PodTemplateNotFound", "PodTemplate default/unit"),
        ({"scalable_ref": WEB, "percentage": 50}, "ScalableRefNotFound", "Deployment default/web"),
        ({"replicas": 1}, "ResolutionFailed", "Neither podTemplateRef nor scalableRef"),
        (
            {"scalable_ref": ScalableRef(api_group="apps", kind="DaemonSet", name="d")},
            "ResolutionFailed",
            "Deployment, ReplicaSet, StatefulSet",
        ),
        (
            {"scalable_ref": ScalableRef(api_group="example.com", kind="Deployment", name="d")},
            "ResolutionFailed",
            'apiGroup "example.com"',
        ),
    ],
)
def test_a_buffer_without_a_unit_says_why(spec: dict[str, Any], reason: str, says: str) -> None:
    """Nothing is kept for it, and the condition names what is missing."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool())
            await env.create(_buffer(**spec))
            buffer = await _status(env, _is("ReadyForProvisioning", "False", reason))
            assert says in _of(buffer, "ReadyForProvisioning").message
            assert _of(buffer, "Provisioning").reason == "NotReadyForProvisioning"
            await env.wait(40)
            assert await env.claims() == []

    run_virtual(scenario())


def test_what_is_missing_may_come_and_go() -> None:
    """A template that comes is taken up within a second; one that goes takes the room with it."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool())
            await env.create(_buffer(pod_template_ref=UNIT, replicas=1))
            await _status(env, _is("ReadyForProvisioning", "False", "PodTemplateNotFound"))
            await env.create(_template())
            await _status(env, _is("ReadyForProvisioning", "True", "Resolved"), within=1)
            await _status(env, _is("Provisioning", "True", "FitsExistingCapacity"), within=60)
            assert sum(row.headroom_pods for row in env.cluster.nodes()) == 1
            await env.client.delete(PodTemplate, "unit", namespace="default")
            await _status(env, _is("ReadyForProvisioning", "False", "PodTemplateNotFound"), within=1)
            await env.wait(5)
            assert sum(row.headroom_pods for row in env.cluster.nodes()) == 0

    run_virtual(scenario())


@pytest.mark.parametrize(("replicas", "units"), [(10, 5), (None, 1), (0, 0)])
def test_a_share_of_a_workload(replicas: int | None, units: int) -> None:
    """Half of a Deployment; one without replicas has one; of none there is no half."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(_deployment(replicas))
            await env.create(_buffer(scalable_ref=WEB, percentage=50))
            await _status(env, lambda b: b.status.replicas == units)
            await env.client.patch(Deployment, "web", merge({"spec": {"replicas": 40}}), namespace="default")
            await _status(env, lambda b: b.status.replicas == 20, within=1)

    run_virtual(scenario())


def test_virtual_pods_leave_no_trace() -> None:
    """No event, nomination or reservation is about a pod that does not exist, fit or not."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool(limits={"nodes": "1"}))
            await env.create(_template(cpu="9"))
            await env.create(_buffer(pod_template_ref=UNIT, replicas=3))
            for bought in (1, 0):
                says = f"{bought}/3 virtual pods required new capacity, 2 failed: nodepool/default: "
                await _status(env, _provisioning_says(says), within=60)
            await env.wait(60)
            assert [await env.events(reason) for reason in ("FailedScheduling", "Nominated")] == [[], []]
            (claim,) = await env.claims()
            assert "karpenter-py.dev/planned-pods" not in claim.metadata.annotations
            assert env.metric("karpenter_scheduler_unschedulable_pods_count", controller="provisioner") == 0
            assert all(row.nominated_until == 0 for row in env.cluster.nodes())

    run_virtual(scenario())


def test_nonsense_in_a_template_is_told_by_the_buffer() -> None:
    """A selector that no pod may have is the buffer's failure; other buffers get their room."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool())
            template = _template()
            wrong = a_pod(node_selector={"karpenter.sh/nonsense": "x"}).spec
            await env.create(PodTemplate(metadata=template.metadata, template=PodTemplateSpec(spec=wrong)))
            await env.create(_buffer(pod_template_ref=UNIT, replicas=1))
            await env.create(_deployment(2))
            other = _buffer(scalable_ref=WEB, percentage=100)
            meta = ObjectMeta(name="other", namespace="default")
            await env.create(CapacityBuffer(metadata=meta, spec=other.spec))
            buffer = await _status(env, _is("Provisioning", "False", "RequiresNewCapacity"), within=60)
            assert "karpenter.sh/nonsense is restricted" in _of(buffer, "Provisioning").message

            async def good() -> bool:
                found = await env.client.get(CapacityBuffer, "other", "default")
                return _is("Provisioning", "True", "FitsExistingCapacity")(found)

            await env.expect("the other buffer has its room", good)

    run_virtual(scenario())


def test_pods_that_wait_get_the_room_that_is_there() -> None:
    """With one node's worth of room and a pod for it, the pod gets it; the buffer gets a new node."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool())
            await env.create(_template(cpu="1500m"))
            await env.create(_buffer(pod_template_ref=UNIT, replicas=1))
            await _status(env, _is("Provisioning", "True", "FitsExistingCapacity"), within=60)
            before = {n.name for n in await env.client.list(Node)}
            pods = await env.create_all(some_pods(1, cpu="1500m"))
            await env.expect_scheduled(pods, within=10)
            assert (await env.client.list(Pod))[0].spec.node_name in before
            await env.expect_claims(2)
            held = {row.name: row.headroom_pods for row in env.cluster.nodes()}
            await env.wait(10)
            held = {row.name: row.headroom_pods for row in env.cluster.nodes()}
            assert {name for name, count in held.items() if count} == held.keys() - before

    run_virtual(scenario())


def test_a_closed_gate_leaves_buffers_alone() -> None:
    """Without the feature gate nothing is written and nothing bought."""

    async def scenario() -> None:
        async with environment(rooms=OPEN["rooms"]) as env:
            await env.create(a_nodepool())
            await env.create(_template())
            await env.create(_buffer(pod_template_ref=UNIT, replicas=2))
            await env.wait(60)
            assert (await env.client.get(CapacityBuffer, "spare", "default")).status.conditions == []
            assert await env.claims() == []

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            Outcome(existing=3),
            ("True", "FitsExistingCapacity", "All 3 virtual pods fit on existing capacity"),
        ),
        (
            Outcome(existing=1, new=2),
            ("False", "RequiresNewCapacity", "2/3 virtual pods required new capacity, 0 failed"),
        ),
        (
            Outcome(existing=1, new=1, failed=1, error="too large"),
            ("False", "RequiresNewCapacity", "1/3 virtual pods required new capacity, 1 failed: too large"),
        ),
    ],
)
def test_the_words_of_the_condition(outcome: Outcome, words: tuple[str, str, str]) -> None:
    """Provisioning tells how many found room where."""
    assert verdict(outcome) == words


def test_a_slip_of_the_finger_does_no_harm() -> None:
    """Of two thousand million units, room is kept for ten thousand at most; the condition says so."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(_template())
            await env.create(_buffer(pod_template_ref=UNIT, replicas=2**31 - 1))
            buffer = await _status(env, lambda b: b.status.replicas == 10_000)
            assert _of(buffer, "ReadyForProvisioning").message.startswith("2147483647 are wanted")

    run_virtual(scenario())


async def _bought(pauses: list[float]) -> int:
    async with environment(**OPEN) as env:
        env.cloud.create_seconds = 2.0
        await env.create(a_nodepool())
        await env.create(_template(cpu="1500m"))
        await env.create(_buffer(pod_template_ref=UNIT, replicas=12))
        for pause in pauses:
            await env.wait(pause)
            await env.restart()
        await _status(env, _is("Provisioning", "True", "FitsExistingCapacity"), within=120)
        await env.wait(90)
        return len(env.cloud.created)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(pauses=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=3))
def test_a_killed_operator_buys_no_room_twice(pauses: list[float]) -> None:
    """Killed at any moments and started again without memory, it buys what it would have bought anyway."""
    assert run_virtual(_bought(pauses)) == run_virtual(_bought([]))


def test_a_quiet_buffer_writes_nothing() -> None:
    """Once all is said, the status is not written again."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool())
            await env.create(_template())
            await env.create(_buffer(pod_template_ref=UNIT, replicas=2))
            await _status(env, _is("Provisioning", "True", "FitsExistingCapacity"), within=60)
            await env.wait(5)
            before = (await env.client.get(CapacityBuffer, "spare", "default")).metadata.resource_version
            await env.wait(300)
            after = (await env.client.get(CapacityBuffer, "spare", "default")).metadata.resource_version
            assert before == after

    run_virtual(scenario())
