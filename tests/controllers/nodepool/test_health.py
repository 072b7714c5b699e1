"""Pools that are wrong or whose machines fail, and the others that go on."""

from karpenter.apis import labels
from karpenter.apis.conditions import get
from karpenter.apis.core import Pod, Taint
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import Condition
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.state.poolhealth import DOUBTED_SECONDS
from karpenter.testing.builders import a_nodepool, a_pod, some_pods
from karpenter.testing.environment import Environment, environment

TWICE = [Taint(key="example.com/a", effect="NoSchedule"), Taint(key="example.com/a", effect="NoSchedule")]


async def _condition(env: Environment, pool: str, type: str) -> Condition | None:
    return get((await env.client.get(NodePool, pool)).status.conditions, type)


def test_a_bad_pool_says_so_and_the_others_go_on() -> None:
    """What the schema lets through makes the pool NotReady, with words; pods go to the next pool."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool("broken", weight=100, taints=TWICE))
            await env.create(a_nodepool("good"))
            pods = await env.create_all(some_pods(2))
            await env.expect_scheduled(pods)
            failed = await _condition(env, "broken", "ValidationSucceeded")
            assert failed is not None
            assert (failed.status, failed.reason) == ("False", "NodePoolValidationFailed")
            assert "spec.template.spec.taints[1]" in failed.message
            ready = await _condition(env, "broken", "Ready")
            assert ready is not None
            assert ready.status == "False"
            pools = {claim.metadata.labels["karpenter.sh/nodepool"] for claim in await env.claims()}
            assert pools == {"good"}

    run_virtual(scenario())


def test_a_pool_that_is_repaired_is_used() -> None:
    """Ready follows the spec; pods that waited for the pool get their machine soon after."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool(taints=TWICE))
            pod = await env.create(a_pod())
            await env.wait(30)
            assert not await env.claims()
            repaired = {"spec": {"template": {"spec": {"taints": None}}}}
            await env.client.patch(NodePool, "default", merge(repaired))
            await env.expect_scheduled([pod], within=30)

    run_virtual(scenario())


def test_health_survives_a_restart_and_ends_with_a_change() -> None:
    """A restarted operator reads health back from the condition; a changed pool starts anew."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.expect_scheduled([await env.create(a_pod())])
            await env.wait(10)
            await env.restart()
            await env.wait(10)
            pool = await env.client.get(NodePool, "default")
            assert env.cluster.pool_health.verdict(pool.metadata.uid) is True
            health = await _condition(env, "default", "NodeRegistrationHealthy")
            assert health is not None
            assert health.status == "True"
            change = {"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}}
            await env.client.patch(NodePool, "default", merge(change))
            await env.wait(10)
            assert env.cluster.pool_health.verdict(pool.metadata.uid) is None
            health = await _condition(env, "default", "NodeRegistrationHealthy")
            assert health is not None
            assert health.status == "Unknown"

    run_virtual(scenario())


def test_claims_that_register_together_leave_the_pool_healthy() -> None:
    """Many writers of one condition: their conflicts delay nobody, and the condition is right in the end."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(30, cpu="3"))
            await env.expect_scheduled(pods, within=60)
            await env.wait(10)
            health = await _condition(env, "default", "NodeRegistrationHealthy")
            assert health is not None
            assert health.status == "True"
            for claim in await env.claims():
                await env.expect_condition(claim.name, "Initialized", within=1)

    run_virtual(scenario())


def test_claims_that_the_pool_does_not_own_say_nothing_of_its_health() -> None:
    """A pool that was deleted and made again under its name is not judged by what it was."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = None
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(2, cpu="9"))
            for claim in await env.expect_claims(2):
                await env.expect_condition(claim.name, "Launched")
                change = merge({"metadata": {"ownerReferences": None}})
                await env.client.patch(NodeClaim, claim.name, change)
            for pod in pods:
                await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await env.wait(1000)
            assert not await env.claims()
            assert len(await env.events("RegistrationTimeout")) == 2
            health = await _condition(env, "default", "NodeRegistrationHealthy")
            assert health is not None
            assert health.status == "Unknown"

    run_virtual(scenario())


def test_a_pool_whose_machines_do_not_come_is_the_last_to_be_asked_for_an_hour() -> None:
    """However heavy it is: its pods go to another pool, and later ones to it again."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = None
            await env.create(a_nodepool("heavy", weight=100))
            await env.create(a_nodepool("light"))
            pods = await env.create_all(some_pods(2, cpu="9"))
            assert {c.metadata.labels[labels.NODEPOOL] for c in await env.expect_claims(2)} == {"heavy"}

            async def others_come() -> bool:
                return len(env.cloud.created) == 4

            await env.expect("other machines are bought", others_come, within=1000)
            env.cloud.join_seconds = 2.0
            await env.expect_scheduled(pods)
            pools = [c.metadata.labels[labels.NODEPOOL] for c in env.cloud.created]
            assert pools == ["heavy", "heavy", "light", "light"]
            await env.wait(DOUBTED_SECONDS)
            await env.expect_scheduled([await env.create(a_pod("later", cpu="9"))])
            assert env.cloud.created[-1].metadata.labels[labels.NODEPOOL] == "heavy"

    run_virtual(scenario())


def test_the_memory_of_a_pool_goes_with_it() -> None:
    """A pool that is made again under its name starts anew."""

    async def scenario() -> None:
        async with environment() as env:
            pool = await env.create(a_nodepool())
            await env.expect_scheduled([await env.create(a_pod())])
            await env.wait(10)
            assert env.cluster.pool_health.verdict(pool.metadata.uid) is True
            await env.client.delete(NodePool, pool.name)
            await env.wait(5)
            assert env.cluster.pool_health.verdict(pool.metadata.uid) is None

    run_virtual(scenario())
