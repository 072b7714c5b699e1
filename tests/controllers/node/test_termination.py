"""The end of Nodes over an embedded cluster: what goes when, what holds it up, and what never does."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node, Pod, PodTemplateSpec, TemplateMeta
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.apis.workloads import (
    DaemonSet,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    WorkloadSpec,
)
from karpenter.base.timestamps import parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import node, nodeclaim, nodepool, provisioning
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_node, a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool)
HELD = {labels.DO_NOT_DISRUPT: "true"}
RELEASE = merge({"metadata": {"annotations": {labels.DO_NOT_DISRUPT: None}}})


async def _a_node_with(env: Environment, pod: Pod | None = None, **pool: Any) -> Node:
    """Buy a node for `pod` and wait until it is initialized."""
    await env.create(a_nodepool(**pool))
    created = await env.create(pod or a_pod())
    await env.expect_scheduled([created])
    claim = (await env.expect_claims(1))[0]
    await env.expect_condition(claim.name, "Initialized")
    return (await env.nodes())[0]


async def _gone(env: Environment, name: str) -> bool:
    return name not in {found.name for found in await env.nodes()}


async def _expect_gone(env: Environment, name: str, *, within: float = 60.0) -> float:
    """Wait until a Node is gone; return how long it took."""
    began = env.clock.now()
    await env.expect(f"node {name} is gone", lambda: _gone(env, name), within=within)
    return env.clock.now() - began


async def _expect_stalled(env: Environment, name: str, *, seconds: float = 60.0) -> None:
    await env.wait(seconds)
    assert not await _gone(env, name), f"node {name} went within {seconds:g} s"


def a_pdb(name: str = "budget", **spec: Any) -> PodDisruptionBudget:
    selector = LabelSelector(match_labels={"app": "web"})
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=selector, **spec),
    )


def an_attachment(node_name: str, volume: str = "volume") -> VolumeAttachment:
    source = VolumeAttachmentSource(persistent_volume_name=volume)
    spec = VolumeAttachmentSpec(node_name=node_name, attacher="csi.example.com", source=source)
    return VolumeAttachment(metadata=ObjectMeta(name=f"attached-{volume}"), spec=spec)


def a_daemonset(name: str, pod: Pod) -> DaemonSet:
    template = PodTemplateSpec(metadata=TemplateMeta(labels={"app": name}), spec=pod.spec)
    spec = WorkloadSpec(selector=LabelSelector(match_labels={"app": name}), template=template)
    return DaemonSet(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def test_a_node_deleted_by_a_user_ends_in_order() -> None:
    """Taint and label, pods, machine, Node, claim; nothing is left, and it is counted."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            env.cloud.delete_seconds = 7.0
            target = await _a_node_with(env, replace(a_pod(), spec=a_pod(cpu="1").spec))
            await env.client.delete(Node, target.name)
            await env.wait(0.5)
            going = await env.client.get(Node, target.name)
            assert [t.key for t in going.spec.taints] == [labels.DISRUPTED_TAINT]
            assert going.metadata.labels[labels.EXCLUDE_FROM_LOAD_BALANCERS] == "karpenter"
            assert (await env.claims())[0].deleting
            while not await _gone(env, target.name):
                if not env.cloud.instances:
                    break
                await env.wait(0.25)
            assert env.cloud.deleted == [target.spec.provider_id], "the Node went before its machine"
            await _expect_gone(env, target.name)
            await env.expect_claims(0)
            pool = {"nodepool": "default"}
            assert env.metric("karpenter_nodes_drained_total", **pool) == 1
            assert env.metric("karpenter_nodes_terminated_total", zone="zone-a", **pool) == 1
            assert env.metric("karpenter_pods_drained_total", reason="Forceful Termination") == 1
            assert env.metric("karpenter_pods_eviction_requests_total", code="200") == 1
            assert env.metric("karpenter_nodes_lifetime_duration_seconds_count", **pool) == 1

    run_virtual(scenario())


def test_pods_go_in_four_groups() -> None:
    """Ordinary pods before daemons, those before critical pods, critical daemons last."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env)
            critical = {"priority_class_name": "system-cluster-critical"}
            small = {"cpu": "10m", "memory": "1Mi"}
            await env.create(a_daemonset("agent", a_pod(**small)))  # type: ignore[arg-type]
            await env.create(a_pod("dns", node_name=target.name, spec=critical, **small))  # type: ignore[arg-type]
            await env.create(a_daemonset("proxy", a_pod(spec=critical, **small)))  # type: ignore[arg-type]
            await env.wait(5)
            await env.client.delete(Node, target.name)
            order: list[str] = []
            while not await _gone(env, target.name):
                for pod in await env.client.list(Pod):
                    name = pod.name.partition("-")[0]
                    if pod.deleting and pod.spec.node_name == target.name and name not in order:
                        order.append(name)
                await env.wait(0.1)
            assert order == ["pod", "agent", "dns", "proxy"]

    run_virtual(scenario())


def test_a_disruption_budget_is_respected_and_explained() -> None:
    """The pod is not evicted while its budget forbids it; the event does the sum; retries back off."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env, a_pod("web", labels={"app": "web"}))
            await env.create(a_pdb(min_available=1))
            await env.wait(5)
            await env.client.delete(Node, target.name)
            await _expect_stalled(env, target.name, seconds=60)
            (event,) = await env.events("FailedDraining")
            why = (
                "pod default/web: PodDisruptionBudget default/budget: minAvailable 1 of 1 pod can never "
                "allow an eviction; raise replicas to 2 or set maxUnavailable 1"
            )
            assert event.message == f"Failed to drain node, 1 pods are waiting to be evicted: {why}"
            drained = conditions.get((await env.claims())[0].status.conditions, "Drained")
            assert drained is not None
            assert (drained.status, drained.reason, drained.message) == ("Unknown", "Draining", why)
            refused = env.metric("karpenter_pods_eviction_requests_total", code="429")
            assert 5 <= refused <= 25, refused
            await env.client.delete(PodDisruptionBudget, "budget", namespace="default")
            await _expect_gone(env, target.name)

    run_virtual(scenario())


def test_a_drain_that_cannot_finish_says_so_within_seconds() -> None:
    """Event, condition and gauges name the cause at once; they follow when it is another, and end with it."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env, a_pod("web", labels={"app": "web"}))
            await env.create(a_pdb(max_unavailable=0))
            await env.wait(5)
            await env.client.delete(Node, target.name)
            await env.wait(2)
            never = {"nodepool": "default", "reason": "pdbNever"}
            held = {"nodepool": "default", "reason": "doNotDisrupt"}
            assert "can never allow an eviction" in (await env.expect_event("FailedDraining")).message
            assert "can never allow" in await _drained_message(env)
            assert env.metric("karpenter_nodes_drain_blocked", **never) == 1
            await env.wait(58)
            assert env.metric("karpenter_nodes_drain_blocked_seconds", **never) == pytest.approx(60, abs=2)
            hold = merge({"metadata": {"annotations": HELD}})
            await env.client.patch(Pod, "web", hold, namespace="default")
            await env.client.delete(PodDisruptionBudget, "budget", namespace="default")
            await env.wait(15)
            assert "remove the annotation" in await _drained_message(env)
            assert any("remove the annotation" in e.message for e in await env.events("FailedDraining"))
            assert env.metric("karpenter_nodes_drain_blocked", **never) == 0
            assert env.metric("karpenter_nodes_drain_blocked", **held) == 1
            await env.client.patch(Pod, "web", RELEASE, namespace="default")
            await _expect_gone(env, target.name)
            assert "drain_blocked{" not in env.operator.metrics.render().decode()

    run_virtual(scenario())


async def _drained_message(env: Environment) -> str:
    drained = conditions.get((await env.claims())[0].status.conditions, "Drained")
    assert drained is not None
    assert (drained.status, drained.reason) == ("Unknown", "Draining")
    return drained.message


def test_a_stuck_drain_writes_little() -> None:
    """In an hour without change the claim is not written again, and events repeat every two minutes."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env, a_pod("held", annotations=HELD))
            await env.client.delete(Node, target.name)
            await env.wait(60)
            before = (await env.claims())[0].metadata.resource_version
            events = len(await env.events("FailedDraining"))
            await _expect_stalled(env, target.name, seconds=3600)
            assert (await env.claims())[0].metadata.resource_version == before
            assert 25 <= len(await env.events("FailedDraining")) - events <= 31

    run_virtual(scenario())


def test_two_budgets_over_one_pod_are_told_apart() -> None:
    """The Eviction API cannot take them; the event names both, and one less is enough."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env, a_pod("web", labels={"app": "web"}))
            await env.create(a_pdb("one", max_unavailable=1))
            await env.create(a_pdb("two", max_unavailable=1))
            await env.wait(5)
            await env.client.delete(Node, target.name)
            await _expect_stalled(env, target.name, seconds=40)
            messages = " ".join(event.message for event in await env.events("FailedDraining"))
            assert "pod default/web: PodDisruptionBudgets default/one, default/two cover it" in messages
            await env.client.delete(PodDisruptionBudget, "two", namespace="default")
            await _expect_gone(env, target.name)

    run_virtual(scenario())


def test_do_not_disrupt_stalls_the_drain_also_over_a_restart() -> None:
    """Without a grace period a protected pod is waited for; a new operator waits on, and goes on."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env, a_pod("held", annotations=HELD))
            await env.client.delete(Node, target.name)
            await _expect_stalled(env, target.name, seconds=120)
            await env.restart()
            await _expect_stalled(env, target.name, seconds=120)
            assert len(env.cloud.created) == 1, "a pod that may not move needs no other machine"
            await env.client.patch(Pod, "held", RELEASE, namespace="default")
            await _expect_gone(env, target.name)
            await env.wait(5)
            assert target.name not in {claim.name for claim in await env.claims()}
            assert env.cloud.deleted == [target.spec.provider_id]

    run_virtual(scenario())


def test_the_grace_period_ends_the_waiting_with_enough_grace() -> None:
    """A protected pod is deleted its own 20 s before the deadline, told so, and the node goes in time."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            spec = {"termination_grace_period_seconds": 20}
            held = a_pod("held", annotations=HELD, spec=spec)
            target = await _a_node_with(env, held, termination_grace_period="60s")
            await env.client.delete(Node, target.name)
            began = env.clock.now()
            await _expect_stalled(env, target.name, seconds=38)
            deadline = parse_time((await env.claims())[0].metadata.annotations[labels.TERMINATION_TIMESTAMP])
            assert deadline == pytest.approx(began + 60, abs=1.5)
            assert not (await env.client.get(Pod, "held", namespace="default")).deleting
            event = await env.expect_event("Disrupted", within=5)
            assert "of its 20 terminationGracePeriodSeconds" in event.message
            granted = int(event.message.partition("granted ")[2].partition(" ")[0])
            assert 18 <= granted <= 20
            await _expect_gone(env, target.name, within=40)
            assert env.clock.now() <= deadline + 10
            assert (await env.events("TerminationGracePeriodExpiring")) != []
            assert env.metric("karpenter_pods_drained_total", reason="Forceful Termination") == 1

    run_virtual(scenario())


def test_a_budget_does_not_hold_past_the_deadline() -> None:
    """With a grace period, a budget that never allows anything delays the node only so long."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            pod = a_pod("web", labels={"app": "web"})
            target = await _a_node_with(env, pod, termination_grace_period="90s")
            await env.create(a_pdb(max_unavailable=0))
            await env.wait(5)  # a pod that does not run yet would need nobody's consent
            await env.client.delete(Node, target.name)
            await _expect_stalled(env, target.name, seconds=55)
            await _expect_gone(env, target.name, within=60)

    run_virtual(scenario())


def test_volumes_are_waited_for() -> None:
    """The machine stays while a volume is attached to it; the claim tells, and an event names them."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env)
            await env.create(an_attachment(target.name))
            await env.create(an_attachment("elsewhere", "other"))
            await env.client.delete(Node, target.name)
            await _expect_stalled(env, target.name)
            claim = (await env.claims())[0]
            detached = conditions.get(claim.status.conditions, "VolumesDetached")
            assert detached is not None
            assert (detached.status, detached.reason) == ("Unknown", "AwaitingVolumeDetachment")
            assert conditions.is_true(claim.status.conditions, "Drained")
            event = await env.expect_event("AwaitingVolumeDetachment")
            assert event.message == "Awaiting deletion of bound volumeattachments (attached-volume)"
            assert env.cloud.deleted == []
            await env.client.delete(VolumeAttachment, "attached-volume")
            await _expect_gone(env, target.name)

    run_virtual(scenario())


def test_the_deadline_ends_the_wait_for_volumes() -> None:
    """After the grace period the machine goes with the volume still attached."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env, termination_grace_period="60s")
            await env.create(an_attachment(target.name))
            await env.client.delete(Node, target.name)
            await _expect_stalled(env, target.name, seconds=55)
            await _expect_gone(env, target.name, within=30)

    run_virtual(scenario())


def test_an_empty_node_waits_five_seconds_for_pods_on_their_way() -> None:
    """A pod bound in the moment before the taint is still drained, not lost with the machine."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env)
            await env.client.delete(Pod, "pod", namespace="default")
            await env.wait(5)
            await env.client.delete(Node, target.name)
            await env.wait(2)
            await env.create(a_pod("late", node_name=target.name, annotations=HELD))
            await _expect_stalled(env, target.name, seconds=30)
            await env.client.patch(Pod, "late", RELEASE, namespace="default")
            await _expect_gone(env, target.name)

    run_virtual(scenario())


def test_a_dead_machine_is_not_drained() -> None:
    """When an unready node's machine is gone its Node goes at once, protected pods or not."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env, a_pod("held", annotations=HELD))
            env.cloud.end(target.spec.provider_id)
            down = [replace(c, status="False") if c.type == "Ready" else c for c in target.status.conditions]
            unready = merge({"status": {"conditions": down}})
            await env.client.patch(Node, target.name, unready, subresource="status")
            await env.client.delete(Node, target.name)
            assert await _expect_gone(env, target.name, within=15) < 10

    run_virtual(scenario())


def test_deleting_the_claim_ends_the_node_the_same_way() -> None:
    """The Node is deleted with its claim, and the claim outlives it."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target = await _a_node_with(env)
            await env.client.delete(NodeClaim, (await env.claims())[0].name)
            while not await _gone(env, target.name):
                assert await env.claims() != []
                await env.wait(0.25)
            await env.expect_claims(0, within=30)

    run_virtual(scenario())


def test_another_operators_node_is_left_alone() -> None:
    """A Node with the finalizer but of a node class that is not ours is not touched."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            theirs = a_node("theirs", labels={"other.example.com/otherclass": "x"}, provider_id="other://1")
            meta = replace(theirs.metadata, finalizers=[labels.TERMINATION_FINALIZER])
            await env.create(replace(theirs, metadata=meta))
            await env.client.delete(Node, "theirs")
            await _expect_stalled(env, "theirs", seconds=60)
            found = await env.client.get(Node, "theirs")
            assert not any(t.key == labels.DISRUPTED_TAINT for t in found.spec.taints)

    run_virtual(scenario())


def test_a_node_without_a_claim_is_drained_and_let_go() -> None:
    """When the claim was lost, its Node still ends: pods first, then the object."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            ours = a_node(
                "ours", labels={"karpenter.kwok.sh/kwoknodeclass": "default"}, provider_id="fake://x"
            )
            alive = {"kwok.x-k8s.io/node": "fake"}  # so that a kubelet ends its pods
            meta = replace(ours.metadata, finalizers=[labels.TERMINATION_FINALIZER], annotations=alive)
            env.cloud.join_seconds = None
            await env.create(replace(ours, metadata=meta))
            down = merge({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up"}]}})
            await env.client.patch(Node, "ours", down, subresource="status")
            await env.create(a_pod("held", node_name="ours", annotations=HELD))
            await env.client.delete(Node, "ours")
            await _expect_stalled(env, "ours", seconds=20)
            await env.client.patch(Pod, "held", RELEASE, namespace="default")
            await _expect_gone(env, "ours")
            with pytest.raises(NotFound):
                await env.client.get(Pod, "held", namespace="default")

    run_virtual(scenario())
