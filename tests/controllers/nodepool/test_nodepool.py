"""What is kept about NodePools."""

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodePool
from karpenter.apis.nodepool_hash import nodepool_hash
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.testing.builders import a_nodepool, some_pods
from karpenter.testing.environment import environment


def test_a_good_pool_becomes_ready_and_carries_its_hash() -> None:
    """Valid, with a ready node class: Ready; hash and version are annotated."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.wait(5)
            pool = await env.client.get(NodePool, "default")
            status = {c.type: c.status for c in pool.status.conditions}
            assert status["Ready"] == status["ValidationSucceeded"] == status["NodeClassReady"] == "True"
            assert status["NodeRegistrationHealthy"] == "Unknown"
            assert pool.metadata.annotations[known.NODEPOOL_HASH] == nodepool_hash(pool)
            assert pool.metadata.annotations[known.NODEPOOL_HASH_VERSION] == "v3"

    run_virtual(scenario())


def test_readiness_follows_the_node_class() -> None:
    """A node class that fails takes its pools along, with its reason."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.wait(5)
            bad = {"type": "Ready", "status": "False", "reason": "NoSubnets", "message": "none found"}
            bad["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            await env.client.patch(
                KwokNodeClass, "default", merge({"status": {"conditions": [bad]}}), subresource="status"
            )
            await env.wait(5)
            pool = await env.client.get(NodePool, "default")
            ready = next(c for c in pool.status.conditions if c.type == "NodeClassReady")
            assert (ready.status, ready.reason, ready.message) == ("False", "NoSubnets", "none found")
            assert next(c for c in pool.status.conditions if c.type == "Ready").status == "False"

    run_virtual(scenario())


def test_the_status_counts_what_the_pool_has() -> None:
    """Resources and nodes are those of its machines."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.expect_scheduled(await env.create_all(some_pods(2)))
            await env.wait(10)
            pool = await env.client.get(NodePool, "default")
            assert pool.status.nodes == 1
            assert str(pool.status.resources["cpu"]) == "2"
            assert str(pool.status.resources["nodes"]) == "1"
            health = next(c for c in pool.status.conditions if c.type == "NodeRegistrationHealthy")
            assert health.status == "True"

    run_virtual(scenario())
