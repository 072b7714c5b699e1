"""What a pool's status says it has."""

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.quantity import resources_of
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_node, a_nodepool, a_pod, some_pods
from karpenter.testing.environment import Environment, environment

NOTHING = {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}


async def _status(env: Environment, pool: str = "default") -> tuple[dict[str, int], int | None]:
    found = (await env.client.get(NodePool, pool)).status
    return dict(resources_of(found.resources)), found.nodes


def test_a_pool_without_nodes_has_nothing_of_everything() -> None:
    """The usual resources are there as zeros, so that limits can be compared at a glance."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.create(a_node("stranger", provider_id="other://stranger"))
            await env.wait(6)
            assert await _status(env) == (dict(resources_of(NOTHING)), 0)

    run_virtual(scenario())


def test_a_number_of_nodes_that_somebody_else_wrote_is_put_right() -> None:
    """Also where the resources are as they should be."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.wait(6)
            await env.client.patch(NodePool, "default", merge({"status": {"nodes": 7}}), subresource="status")
            assert (await _status(env))[1] == 7
            await env.wait(6)
            assert await _status(env) == (dict(resources_of(NOTHING)), 0)

    run_virtual(scenario())


def test_a_claim_counts_with_what_was_bought_until_its_node_is_initialized() -> None:
    """Then with what the Node says; extended resources are counted, too."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = 30.0
            await env.create(a_nodepool())
            await env.create(a_pod())
            claim = (await env.expect_claims(1))[0]
            await env.expect_condition(claim.name, "Launched")
            await env.wait(6)
            resources, nodes = await _status(env)
            assert (resources["cpu"], resources["nodes"], nodes) == (2000, 1, 1)
            claim = await env.expect_condition(claim.name, "Initialized")
            larger = merge({"status": {"capacity": {"cpu": "3", "example.com/gpu": "4"}}})
            await env.client.patch(Node, claim.status.node_name, larger, subresource="status")
            await env.wait(6)
            resources, _ = await _status(env)
            assert (resources["cpu"], resources["example.com/gpu"]) == (3000, 4)

    run_virtual(scenario())


def test_what_is_about_to_go_does_not_count() -> None:
    """A node that is being deleted, or marked for it, is not what the pool has; resources it had vanish."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(2, cpu="9"))
            await env.expect_scheduled(pods)
            claims = await env.expect_claims(2)
            for claim in claims:
                await env.expect_condition(claim.name, "Initialized")
            await env.wait(6)
            whole, nodes = await _status(env)
            assert nodes == 2
            marked = (await env.client.get(NodeClaim, claims[0].name)).status.provider_id
            env.cluster.mark_for_deletion([marked])
            await env.wait(6)
            less, nodes = await _status(env)
            assert (nodes, less["cpu"]) == (1, whole["cpu"] - 16000)
            env.cluster.unmark_for_deletion([marked])
            await env.wait(6)
            assert (await _status(env))[1] == 2
            for pod in pods:
                await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await env.client.delete(NodeClaim, claims[0].name)
            await env.wait(6)
            assert (await _status(env))[1] == 1

    run_virtual(scenario())


def test_each_pool_counts_its_own() -> None:
    """Nodes belong to the pool that their claim names."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool("a", weight=10, limits={"nodes": "1"}))
            await env.create(a_nodepool("b"))
            await env.expect_scheduled(await env.create_all(some_pods(2, cpu="9")))
            await env.wait(6)
            assert [(await _status(env, name))[1] for name in ("a", "b")] == [1, 1]

    run_virtual(scenario())
