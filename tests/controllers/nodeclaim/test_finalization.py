"""The end of a claim, step by step."""

import pytest

from karpenter.apis import labels as known
from karpenter.apis.conditions import get
from karpenter.apis.core import Node, NodeSpec, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import ObjectMeta
from karpenter.base.clock import format_time
from karpenter.base.timestamps import parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.model import taints
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

DEADLINE = known.TERMINATION_TIMESTAMP


async def _claim(env: Environment, condition: str = "Initialized", **pool: object) -> NodeClaim:
    """Return a claim that has come so far, and whose pod is gone since."""
    await env.create(a_nodepool(**pool))  # type: ignore[arg-type]
    await env.create(a_pod())
    claim = (await env.expect_claims(1))[0]
    claim = await env.expect_condition(claim.name, condition)
    await env.client.delete(Pod, "pod", namespace="default")
    return claim


async def _is_gone(env: Environment, claim: NodeClaim) -> bool:
    try:
        await env.client.get(NodeClaim, claim.name)
    except NotFound:
        return True
    return False


async def _let_go(env: Environment, node: str) -> None:
    """Take our finalizer off a Node, as the end of its drain does."""
    await env.client.patch(Node, node, merge({"metadata": {"finalizers": None}}))


@pytest.mark.parametrize("noted", [False, True], ids=["first", "there is a deadline already"])
def test_the_deadline_is_the_deletion_plus_the_grace_period(noted: bool) -> None:
    """It is annotated and told once; one that is there is never changed."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env, termination_grace_period="30m")
            before = format_time(env.clock.now() + 60)
            if noted:
                note = {"metadata": {"annotations": {DEADLINE: before}}}
                await env.client.patch(NodeClaim, claim.name, merge(note))
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(3)
            ending = await env.client.get(NodeClaim, claim.name)
            deadline = ending.metadata.annotations[DEADLINE]
            if noted:
                assert deadline == before
                assert not await env.events("TerminationGracePeriodExpiring")
                return
            assert parse_time(deadline) == parse_time(ending.metadata.deletion_timestamp or "") + 1800
            event = await env.expect_event("TerminationGracePeriodExpiring")
            assert event.message == f"All pods will be deleted by {deadline}"
            assert event.involved_object.kind == "NodeClaim"

    run_virtual(scenario())


def test_a_claim_without_a_grace_period_has_no_deadline() -> None:
    """It may take as long as it takes."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env)
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(3)
            ending = await env.client.get(NodeClaim, claim.name)
            assert DEADLINE not in ending.metadata.annotations

    run_virtual(scenario())


def test_all_nodes_of_a_claim_go_before_its_machine() -> None:
    """Also a second Node of the same machine; the instance lives until the last of them is gone."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env)
            meta = ObjectMeta(name="second", finalizers=["example.com/hold"])
            await env.create(Node(metadata=meta, spec=NodeSpec(provider_id=claim.status.provider_id)))
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(3)
            assert all(node.deleting for node in await env.nodes())
            await _let_go(env, claim.status.node_name)
            await env.wait(20)
            assert not env.cloud.deleted
            await _let_go(env, "second")
            await env.expect("the claim is gone", lambda: _is_gone(env, claim), within=20)
            assert env.cloud.deleted == [claim.status.provider_id]

    run_virtual(scenario())


def test_a_node_that_never_registered_is_the_clouds_to_remove() -> None:
    """The claim does not wait for it."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = None
            claim = await _claim(env, "Launched")
            await env.operator.kill()
            meta = ObjectMeta(name="early", finalizers=["example.com/hold"])
            spec = NodeSpec(provider_id=claim.status.provider_id, taints=[taints.UNREGISTERED])
            await env.create(Node(metadata=meta, spec=spec))
            await env.client.delete(NodeClaim, claim.name)
            await env.restart()
            await env.expect("the claim is gone", lambda: _is_gone(env, claim), within=20)
            assert not (await env.client.get(Node, "early")).deleting
            assert env.cloud.deleted == [claim.status.provider_id]

    run_virtual(scenario())


def test_a_claim_that_was_never_launched_goes_at_once() -> None:
    """There is nothing to wait for."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.next_errors = [CreateError("No", "no")] * 1000
            await env.create(a_nodepool())
            pod = await env.create(a_pod())
            claim = (await env.expect_claims(1))[0]
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await env.client.delete(NodeClaim, claim.name)
            await env.expect("the claim is gone", lambda: _is_gone(env, claim), within=5)

    run_virtual(scenario())


def test_the_cloud_is_asked_until_the_machine_is_gone() -> None:
    """The claim says that its instance is terminating; how long that took is measured."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.delete_seconds = 22.0
            claim = await _claim(env)
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(2)
            await _let_go(env, claim.status.node_name)
            await env.wait(10)
            ending = await env.client.get(NodeClaim, claim.name)
            terminating = get(ending.status.conditions, "InstanceTerminating")
            assert terminating is not None
            assert terminating.status == "True"
            await env.expect("the claim is gone", lambda: _is_gone(env, claim), within=30)
            seconds = "karpenter_nodeclaims_instance_termination_duration_seconds_sum"
            assert env.metric(seconds, nodepool="default") == pytest.approx(25, abs=3)
            assert (
                env.metric("karpenter_nodeclaims_termination_duration_seconds_count", nodepool="default") == 1
            )
            gone = {"nodepool": "default", "capacity_type": "spot", "zone": "zone-a"}
            assert env.metric("karpenter_nodeclaims_terminated_total", **gone) == 1

    run_virtual(scenario())


def test_a_cloud_that_fails_to_end_a_machine_is_asked_again() -> None:
    """The claim stays until the cloud has said that the machine is gone."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env)
            works = env.operator.provider.delete

            async def fails(claim: NodeClaim) -> None:
                raise CreateError("Throttled", "slow down")

            env.operator.provider.delete = fails  # type: ignore[method-assign]
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(2)
            await _let_go(env, claim.status.node_name)
            await env.wait(60)
            assert not await _is_gone(env, claim)
            env.operator.provider.delete = works  # type: ignore[method-assign]
            await env.expect("the claim is gone", lambda: _is_gone(env, claim), within=70)

    run_virtual(scenario())


def test_a_claim_that_others_hold_is_not_ended_twice() -> None:
    """When our finalizer is off, somebody else's keeps the object, and nothing more is done to it."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env)
            both = [known.TERMINATION_FINALIZER, "example.com/hold"]
            await env.client.patch(NodeClaim, claim.name, merge({"metadata": {"finalizers": both}}))
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(2)
            await _let_go(env, claim.status.node_name)
            await env.wait(120)
            left = await env.client.get(NodeClaim, claim.name)
            assert left.metadata.finalizers == ["example.com/hold"]
            place = {key: claim.metadata.labels[label] for key, label in _PLACE.items()}
            assert env.metric("karpenter_nodeclaims_terminated_total", nodepool="default", **place) == 1

    run_virtual(scenario())


_PLACE = {"capacity_type": known.CAPACITY_TYPE, "zone": known.ZONE}


def test_a_claim_that_is_deleted_while_it_is_launched_takes_its_machine_along() -> None:
    """Its status never told of the machine; nothing is left running."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.create_seconds = 5.0
            await env.create(a_nodepool())
            await env.create(a_pod())
            claim = (await env.expect_claims(1))[0]
            await env.client.delete(Pod, "pod", namespace="default")
            await env.client.delete(NodeClaim, claim.name)
            await env.expect("the claim is gone", lambda: _is_gone(env, claim), within=20)
            assert env.cloud.deleted == [f"fake://{claim.metadata.uid}"]

    run_virtual(scenario())
