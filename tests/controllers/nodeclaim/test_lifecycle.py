"""A NodeClaim's life and its ends."""

from karpenter.apis.core import Node, NodeSpec, Taint
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import ObjectMeta
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.model import taints
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment


async def _one_claim(env: Environment, **pool: object) -> NodeClaim:
    """Create a pool and a pod, and return the claim that comes of it."""
    await env.create(a_nodepool(**pool))  # type: ignore[arg-type]
    await env.create(a_pod())
    return (await env.expect_claims(1))[0]


async def _is_gone(env: Environment, claim: NodeClaim) -> bool:
    try:
        return (await env.client.get(NodeClaim, claim.name)).metadata.uid != claim.metadata.uid
    except NotFound:
        return True


def test_a_create_error_is_written_down_and_tried_again() -> None:
    """A failing launch shows in the Launched condition; when it works later, the claim goes on."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.next_errors = [CreateError("QuotaExceeded", "no more than 3")] * 3
            claim = await _one_claim(env)
            claim = await env.expect_condition(claim.name, "Launched", "Unknown")
            launched = next(c for c in claim.status.conditions if c.type == "Launched")
            assert (launched.reason, launched.message) == ("QuotaExceeded", "no more than 3")
            await env.expect_condition(claim.name, "Launched")
            assert len(env.cloud.created) == 1

    run_virtual(scenario())


def test_a_claim_that_cannot_launch_is_given_up_after_five_minutes() -> None:
    """Then it is deleted, and counted."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.next_errors = [CreateError("Broken", "always")] * 1000
            claim = await _one_claim(env)
            await env.wait(280)
            assert not await _is_gone(env, claim)
            await env.expect("it is gone", lambda: _is_gone(env, claim), within=60)
            event = await env.expect_event("LaunchTimeout")
            assert event.message == "Not launched within 5m0s, the NodeClaim is deleted (Broken: always)"
            count = env.metric(
                "karpenter_nodeclaims_disrupted_total",
                reason="launch_timeout",
                nodepool="default",
                capacity_type="",
                consolidation_policy="",
                termination_mode="graceful",
            )
            assert count == 1

    run_virtual(scenario())


def test_a_machine_that_never_joins_is_given_up_after_fifteen_minutes() -> None:
    """The claim and the instance go; after the second time the pool counts as unhealthy."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = None
            claim = await _one_claim(env)
            await env.wait(14 * 60)
            assert not await _is_gone(env, claim)
            await env.expect("it is gone", lambda: _is_gone(env, claim), within=120)
            assert len(env.cloud.deleted) == 1
            event = await env.expect_event("RegistrationTimeout")
            words = "Not registered within 15m0s, the NodeClaim is deleted (NodeNotFound: Node not registered"
            assert event.message.startswith(words)
            await env.wait(16 * 60)
            pool = await env.client.get(NodePool, "default")
            health = next(c for c in pool.status.conditions if c.type == "NodeRegistrationHealthy")
            assert (health.status, health.reason) == ("False", "RegistrationFailed")

    run_virtual(scenario())


def test_startup_taints_hold_initialization_back() -> None:
    """The node is registered with them, and initialized when somebody takes them off."""

    async def scenario() -> None:
        async with environment() as env:
            taint = Taint(key="example.com/starting", effect="NoSchedule")
            claim = await _one_claim(env, startup_taints=[taint])
            await env.expect_condition(claim.name, "Registered")
            await env.wait(30)
            claim = await env.expect_condition(claim.name, "Initialized", "Unknown")
            condition = next(c for c in claim.status.conditions if c.type == "Initialized")
            assert condition.reason == "StartupTaintsExist"
            assert len(env.cloud.created) == 1
            await env.client.patch(Node, claim.status.node_name, merge({"spec": {"taints": None}}))
            await env.expect_condition(claim.name, "Initialized")

    run_virtual(scenario())


def test_two_nodes_for_one_claim_heal_when_one_goes() -> None:
    """A duplicate holds registration back only while it is there; the other one is registered then."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = None
            claim = await _one_claim(env)
            claim = await env.expect_condition(claim.name, "Launched")
            await env.operator.kill()
            for name in ("first", "second"):
                spec = NodeSpec(provider_id=claim.status.provider_id, taints=[taints.UNREGISTERED])
                await env.client.create(Node(metadata=ObjectMeta(name=name), spec=spec))
            await env.restart()
            claim = await env.expect_condition(claim.name, "Registered", "False")
            registered = next(c for c in claim.status.conditions if c.type == "Registered")
            assert registered.reason == "MultipleNodesFound"
            assert "first, second" in registered.message
            for name in ("first", "second"):
                node = await env.client.get(Node, name)
                assert not node.metadata.finalizers, "none of them is taken for the claim's"
            await env.client.delete(Node, "first")
            claim = await env.expect_condition(claim.name, "Registered")
            assert claim.status.node_name == "second"
            assert len(env.cloud.created) == 1

    run_virtual(scenario())


def test_a_deleted_claim_waits_for_its_node_and_then_ends_its_instance() -> None:
    """Node first, instance second, object last."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.delete_seconds = 12.0
            claim = await _one_claim(env, termination_grace_period="1h")
            claim = await env.expect_condition(claim.name, "Initialized")
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(10)
            node = await env.client.get(Node, claim.status.node_name)
            assert node.deleting
            assert not env.cloud.deleted
            ending = await env.client.get(NodeClaim, claim.name)
            assert "karpenter.sh/nodeclaim-termination-timestamp" in ending.metadata.annotations
            await env.client.patch(Node, node.name, merge({"metadata": {"finalizers": None}}))
            await env.wait(8)
            assert not await _is_gone(env, claim)
            await env.expect("it is gone", lambda: _is_gone(env, claim), within=20)
            assert env.cloud.deleted == [claim.status.provider_id]

    run_virtual(scenario())


def test_an_expired_claim_is_deleted() -> None:
    """A claim ends when it is as old as its pool allows."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _one_claim(env, expire_after="10m")
            await env.wait(500)
            assert not (await env.client.get(NodeClaim, claim.name)).deleting
            await env.wait(150)
            assert (await env.client.get(NodeClaim, claim.name)).deleting

    run_virtual(scenario())


def test_an_orphaned_instance_is_ended() -> None:
    """An instance whose claim is gone is ended by the garbage collection, others are left alone."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _one_claim(env)
            await env.expect_condition(claim.name, "Initialized")
            orphan = env.cloud.created[0]
            status = type(orphan.status)(provider_id="fake://orphan")
            meta = type(orphan.metadata)(name="orphan", creation_timestamp=orphan.metadata.creation_timestamp)
            instance = type(env.cloud.instances[orphan.status.provider_id])
            env.cloud.instances["fake://orphan"] = instance(
                NodeClaim(metadata=meta, status=status), launched_at=0.0, joined=True
            )
            await env.wait(300)
            assert env.cloud.deleted == ["fake://orphan"]
            assert not await _is_gone(env, claim)

    run_virtual(scenario())


def test_a_claim_without_its_instance_is_deleted() -> None:
    """An instance that vanished takes its claim along once its kubelet is silent."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _one_claim(env)
            claim = await env.expect_condition(claim.name, "Initialized")
            env.cloud.end(claim.status.provider_id)
            node = claim.status.node_name
            await env.client.patch(
                Node, node, merge({"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}})
            )
            condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": ""}
            silent = merge({"status": {"conditions": [condition]}})
            await env.client.patch(Node, node, silent, subresource="status")
            await env.wait(130)
            assert (await env.client.get(NodeClaim, claim.name)).deleting

    run_virtual(scenario())


def test_drift_and_consolidatable_are_marked() -> None:
    """A changed template marks Drifted, a drifted node class too; an idle node becomes Consolidatable."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _one_claim(env)
            await env.expect_condition(claim.name, "Consolidatable", within=90)
            change = {"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}}
            await env.client.patch(NodePool, "default", merge(change))
            claim = await env.expect_condition(claim.name, "Drifted")
            drifted = next(c for c in claim.status.conditions if c.type == "Drifted")
            assert drifted.reason == "NodePoolDrifted"
            back = {"spec": {"template": {"metadata": {"labels": {"team": None}}}}}
            await env.client.patch(NodePool, "default", merge(back))
            await env.wait(10)
            claim = await env.client.get(NodeClaim, claim.name)
            assert all(c.type != "Drifted" for c in claim.status.conditions)
            env.cloud.drift[claim.name] = "ImageDrifted"
            claim = await env.expect_condition(claim.name, "Drifted", within=400)
            assert next(c for c in claim.status.conditions if c.type == "Drifted").reason == "ImageDrifted"

    run_virtual(scenario())
