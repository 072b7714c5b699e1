"""The end of a Node where things are not as they should be: pods that do not end, claims that are several or
none, annotations nobody can read, volumes shared with pods that stay."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import conditions, labels
from karpenter.apis.core import (
    Node,
    PersistentVolumeClaim,
    Pod,
    PVCSource,
    Taint,
    Toleration,
    Volume,
    VolumeResources,
)
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import ObjectMeta
from karpenter.apis.workloads import VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec
from karpenter.base.timestamps import format_time, parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import node
from karpenter.kube.errors import ApiError, NotFound
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_node, a_nodeclaim, a_pod
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import Instance

ROOMS = (node,)
HELD = {labels.DO_NOT_DISRUPT: "true"}
STAYS = [Toleration(key=labels.DISRUPTED_TAINT, operator="Exists")]
CLASS = {"karpenter.kwok.sh/kwoknodeclass": "default", labels.NODEPOOL: "default", labels.ZONE: "zone-a"}


async def _a_node(env: Environment, *, ready: bool = True, taints: list[Taint] | None = None) -> None:
    """Create a Node of ours that no kubelet serves: its pods end when their grace is over, not before."""
    made = a_node("node", labels=CLASS, provider_id="fake://one", taints=taints or [])
    meta = replace(made.metadata, finalizers=[labels.TERMINATION_FINALIZER])
    await env.create(replace(made, metadata=meta))
    await _say_ready(env, "True" if ready else "False")


async def _say_ready(env: Environment, status: str) -> None:
    state = [{"type": "Ready", "status": status, "reason": "Test"}]
    await env.client.patch(Node, "node", merge({"status": {"conditions": state}}), subresource="status")


async def _a_claim(env: Environment, name: str = "claim", **annotations: str) -> None:
    made = await env.create(a_nodeclaim(name, annotations=annotations, requirements=[("a", "Exists", ())]))
    status: dict[str, Any] = {"providerID": "fake://one", "nodeName": "node", "conditions": []}
    await env.client.patch(NodeClaim, made.name, merge({"status": status}), subresource="status")


async def _a_pod(env: Environment, name: str = "web", **fields: Any) -> Pod:
    await env.create(a_pod(name, node_name="node", **fields))
    running = merge({"status": {"phase": "Running"}})
    return await env.client.patch(Pod, name, running, namespace="default", subresource="status")


async def _delete_node(env: Environment) -> None:
    await env.wait(0.1)
    await env.client.delete(Node, "node")


async def _pod(env: Environment, name: str = "web") -> Pod | None:
    try:
        return await env.client.get(Pod, name, namespace="default")
    except NotFound:
        return None


async def _is_gone(env: Environment) -> bool:
    return not await env.nodes()


async def _condition(env: Environment, kind: str) -> tuple[str, str] | None:
    claim = await env.client.get(NodeClaim, "claim")
    found = conditions.get(claim.status.conditions, kind)
    return (found.status, found.reason) if found else None


def _attached(volume: str) -> VolumeAttachment:
    source = VolumeAttachmentSource(persistent_volume_name=volume)
    spec = VolumeAttachmentSpec(node_name="node", attacher="csi.example.com", source=source)
    return VolumeAttachment(metadata=ObjectMeta(name=f"attached-{volume}"), spec=spec)


def _claimed(volume: str) -> PersistentVolumeClaim:
    made = PersistentVolumeClaim(metadata=ObjectMeta(name=f"claim-{volume}", namespace="default"))
    size = VolumeResources(requests={"storage": "1Gi"})
    spec = replace(made.spec, volume_name=volume, access_modes=["ReadWriteMany"], resources=size)
    return replace(made, spec=spec)


def _uses(volume: str) -> dict[str, Any]:
    source = PVCSource(claim_name=f"claim-{volume}")
    return {"volumes": [Volume(name="data", persistent_volume_claim=source)]}


def test_a_pod_that_never_ends_is_given_up_after_a_minute() -> None:
    """A finalizer nobody removes holds the node for a minute past the pod's end, and is named meanwhile."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            await _a_pod(env, spec={"termination_grace_period_seconds": 30})
            hold = merge({"metadata": {"finalizers": ["example.com/hold"]}})
            await env.client.patch(Pod, "web", hold, namespace="default")
            await _delete_node(env)
            await env.wait(40)
            assert env.metric("karpenter_nodes_drain_blocked", nodepool="default", reason="finalizer") == 1
            assert any("example.com/hold" in e.message for e in await env.events("FailedDraining"))
            await env.wait(45)
            assert not await _is_gone(env)
            await env.wait(10)
            assert await _is_gone(env)
            assert await _pod(env) is not None

    run_virtual(scenario())


def test_pods_of_a_dead_kubelet_hold_the_node_only_so_long() -> None:
    """The machine is still there but its kubelet is not: drained, and its pods given up after a minute."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            env.cloud.instances["fake://one"] = await _an_instance(env)
            await _a_pod(env, spec={"termination_grace_period_seconds": 5})
            hold = merge({"metadata": {"finalizers": ["kubelet.example.com/alive"]}})
            await env.client.patch(Pod, "web", hold, namespace="default")
            await _say_ready(env, "Unknown")
            await _delete_node(env)
            await env.wait(20)
            assert (await _pod(env) or a_pod()).deleting, "not even asked to go"
            assert env.cloud.deleted == [], "the machine went with pods on it"
            await env.wait(55)
            assert env.cloud.deleted == ["fake://one"]
            assert await _is_gone(env)

    run_virtual(scenario())


async def _an_instance(env: Environment) -> Instance:
    return Instance(await env.client.get(NodeClaim, "claim"), env.clock.now(), joined=True)


def test_a_failing_cloud_does_not_make_a_node_vanish() -> None:
    """While the cloud cannot say whether an unready node's machine is there, nothing is done to it."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env, ready=False)
            await _a_claim(env)
            await _a_pod(env, annotations=HELD)
            fails = True
            look = env.operator.provider.get

            async def get(provider_id: str) -> NodeClaim:
                if fails:
                    raise ApiError(500, "InternalError", "the cloud is down")
                return await look(provider_id)

            env.operator.provider.get = get  # type: ignore[method-assign]
            await _delete_node(env)
            await env.wait(60)
            assert not await _is_gone(env)
            fails = False
            await env.wait(15)
            assert await _is_gone(env)

    run_virtual(scenario())


@pytest.mark.parametrize("count", [0, 2])
def test_without_one_claim_to_go_by_the_node_is_drained_all_the_same(count: int) -> None:
    """No claim or several: pods go first, nothing is deleted for the others, and the Node is let go."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            for i in range(count):
                await _a_claim(env, f"claim-{i}")
            await _a_pod(env, spec={"termination_grace_period_seconds": 8})
            await _delete_node(env)
            await env.wait(5)
            assert not await _is_gone(env)
            await env.wait(75)  # nobody confirms the pod's end
            assert await _is_gone(env)
            assert [c.deleting for c in await env.claims()] == [False] * count
            assert env.cloud.deleted == []

    run_virtual(scenario())


def test_a_pod_with_more_grace_than_the_node_is_deleted_at_once() -> None:
    """It gets all the time there is, past its budget and annotation; nothing is left to evict for."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env, **{labels.TERMINATION_TIMESTAMP: format_time(env.clock.now() + 60)})
            await _a_pod(env, annotations=HELD, spec={"termination_grace_period_seconds": 300})
            await _a_pod(env, "quick", annotations=HELD, spec={"termination_grace_period_seconds": 10})
            await _delete_node(env)
            await env.wait(5)
            slow, quick = await _pod(env), await _pod(env, "quick")
            assert slow is not None
            assert quick is not None
            assert slow.metadata.deletion_grace_period_seconds in (58, 59)
            assert not quick.deleting
            await env.wait(47)
            quick = await _pod(env, "quick")
            assert quick is not None
            assert quick.metadata.deletion_grace_period_seconds in (9, 10)

    run_virtual(scenario())


def test_a_slow_end_begun_by_others_is_cut_short_for_the_deadline() -> None:
    """A pod that a user deleted with an hour of grace is deleted again with what the node has left."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env, **{labels.TERMINATION_TIMESTAMP: format_time(env.clock.now() + 60)})
            await _a_pod(env, spec={"termination_grace_period_seconds": 3600})
            await env.client.delete(Pod, "web", namespace="default")
            await _delete_node(env)
            await env.wait(2)
            pod = await _pod(env)
            assert pod is not None
            assert pod.metadata.deletion_grace_period_seconds in (57, 58, 59)
            assert (await env.expect_event("Disrupted")).message.count("3600") == 1

    run_virtual(scenario())


def test_a_deadline_set_later_is_heard_of_at_once() -> None:
    """Node repair moves it to now: protected pods go within a second, not at the next look."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            await _a_pod(env, annotations=HELD, spec={"termination_grace_period_seconds": 30})
            await _delete_node(env)
            await env.wait(33)
            now = {labels.TERMINATION_TIMESTAMP: format_time(env.clock.now())}
            await env.client.patch(NodeClaim, "claim", merge({"metadata": {"annotations": now}}))
            await env.wait(1)
            pod = await _pod(env)
            assert pod is not None
            assert pod.metadata.deletion_grace_period_seconds == 1

    run_virtual(scenario())


def test_a_deadline_nobody_can_read_is_said_and_not_guessed() -> None:
    """The drain goes on by budgets and annotations, and an event names the annotation and its form."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env, **{labels.TERMINATION_TIMESTAMP: "tomorrow"})
            await _a_pod(env, "held", annotations=HELD, spec={"termination_grace_period_seconds": 0})
            await _a_pod(env, "free", spec={"termination_grace_period_seconds": 0})
            await _delete_node(env)
            await env.wait(30)
            assert await _pod(env, "free") is None
            assert not (await _pod(env, "held") or a_pod(deleted="now")).deleting
            event = await env.expect_event("InvalidTerminationTimestamp")
            assert "NodeClaim claim" in event.message
            assert "'tomorrow'" in event.message
            assert "2026-01-31T12:00:00Z" in event.message

    run_virtual(scenario())


def test_the_next_step_follows_the_last_pod_at_once() -> None:
    """When the last pod has gone after the first seconds, the node does not wait for a next look."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            await _a_pod(env, annotations=HELD)
            await env.create(_attached("one"))
            await _delete_node(env)
            await env.wait(33.3)
            await env.client.delete(Pod, "web", namespace="default", grace_period_seconds=0)
            await env.wait(0.2)
            assert await _condition(env, "Drained") == ("True", "Drained")
            assert await _condition(env, "VolumesDetached") == ("Unknown", "AwaitingVolumeDetachment")
            await env.wait(33.3)
            await env.client.delete(VolumeAttachment, "attached-one")
            await env.wait(0.2)
            assert await _condition(env, "VolumesDetached") == ("True", "VolumesDetached")
            assert await _is_gone(env)

    run_virtual(scenario())


def test_an_empty_node_is_not_called_drained_before_five_seconds() -> None:
    """The scheduler may still bind a pod in the moment before it sees the taint."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            await _delete_node(env)
            await env.wait(4)
            assert await _condition(env, "Drained") == ("Unknown", "Draining")
            await env.wait(3)
            assert await _condition(env, "Drained") == ("True", "Drained")
            assert env.metric("karpenter_nodes_drained_total", nodepool="default") == 1

    run_virtual(scenario())


def test_the_first_cause_is_written_at_once_further_ones_now_and_then() -> None:
    """A drain that began freely tells within a second what holds it up; changes follow within ten."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            await _a_pod(env, spec={"termination_grace_period_seconds": 30})
            await _delete_node(env)
            await env.wait(2)
            await _a_pod(env, "first", annotations=HELD)
            await env.wait(1)
            assert "default/first" in await _words(env)
            await _a_pod(env, "another", annotations=HELD)
            await env.wait(1)
            assert "default/another" not in await _words(env)
            await env.wait(20)
            assert "default/another" in await _words(env)

    run_virtual(scenario())


async def _words(env: Environment) -> str:
    claim = await env.client.get(NodeClaim, "claim")
    found = conditions.get(claim.status.conditions, "Drained")
    return found.message if found else ""


def test_volumes_of_pods_that_stay_are_not_waited_for() -> None:
    """Nor those a staying pod shares with one that goes; those of pods that go are."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            for volume in ("stays", "shared", "goes"):
                await env.create(_claimed(volume))
                await env.create(_attached(volume))
            gone = {"termination_grace_period_seconds": 0}
            await _a_pod(env, "stays", tolerations=STAYS, spec=_uses("stays"))
            await _a_pod(env, "shares", tolerations=STAYS, spec=_uses("shared"))
            await _a_pod(env, "other", spec={**_uses("shared"), **gone})
            await _a_pod(env, "goes", spec={**_uses("goes"), **gone})
            await _delete_node(env)
            event = await env.expect_event("AwaitingVolumeDetachment")
            assert "(attached-goes)" in event.message
            assert env.metric("karpenter_nodes_drain_blocked", nodepool="default", reason="volumeAttached")
            assert not (await _pod(env, "stays") or a_pod(deleted="now")).deleting
            await env.client.delete(VolumeAttachment, "attached-goes")
            await env.wait(5)
            assert await _is_gone(env)

    run_virtual(scenario())


def test_volumes_that_stay_attached_past_the_deadline_are_told_of() -> None:
    """The claim says that its grace period ended the wait."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env, **{labels.TERMINATION_TIMESTAMP: format_time(env.clock.now() + 30)})
            await env.create(_attached("one"))
            env.cloud.delete_seconds = 60
            env.cloud.instances["fake://one"] = await _an_instance(env)
            await _delete_node(env)
            await env.wait(28)
            assert await _condition(env, "VolumesDetached") == ("Unknown", "AwaitingVolumeDetachment")
            await env.wait(4)
            assert await _condition(env, "InstanceTerminating") == ("True", "InstanceTerminating")
            claim = await env.client.get(NodeClaim, "claim")
            found = conditions.get(claim.status.conditions, "VolumesDetached")
            assert found is not None
            assert (found.status, found.reason) == ("False", "TerminationGracePeriodElapsed")

    run_virtual(scenario())


def test_a_node_torn_away_counts_as_blocked_no_more() -> None:
    """When somebody takes our finalizer off, the gauges do not go on counting the Node."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            await _a_pod(env, annotations=HELD)
            await _delete_node(env)
            await env.wait(5)
            held = {"nodepool": "default", "reason": "doNotDisrupt"}
            assert env.metric("karpenter_nodes_drain_blocked", **held) == 1
            await env.client.patch(Node, "node", merge({"metadata": {"finalizers": None}}))
            await env.wait(1)
            assert env.metric("karpenter_nodes_drain_blocked", **held) == 0

    run_virtual(scenario())


def test_only_our_taint_is_changed() -> None:
    """One of its key with another effect is replaced, the user's own taints stay."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            own = Taint(key="team", value="a", effect="NoSchedule")
            await _a_node(env, taints=[Taint(key=labels.DISRUPTED_TAINT, effect="NoExecute"), own])
            await _a_claim(env)
            await _a_pod(env, annotations=HELD)
            await _delete_node(env)
            await env.wait(1)
            found = await env.client.get(Node, "node")
            taints = {(t.key, t.effect) for t in found.spec.taints}
            assert taints == {("team", "NoSchedule"), (labels.DISRUPTED_TAINT, "NoSchedule")}

    run_virtual(scenario())


def test_the_claim_of_a_deleted_node_is_deleted_with_it() -> None:
    """Whoever deletes the Node gets rid of the machine."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_node(env)
            await _a_claim(env)
            await _a_pod(env, annotations=HELD)
            await _delete_node(env)
            await env.wait(1)
            (claim,) = await env.claims()
            assert parse_time(claim.metadata.deletion_timestamp or "") > 0

    run_virtual(scenario())
