"""From pending pods to machines."""

from karpenter.base.virtualtime import run_virtual
from karpenter.testing.builders import a_nodepool, some_pods
from karpenter.testing.environment import environment


def test_pending_pods_get_a_node() -> None:
    """Pods without a node get one: claim, launch, registration, initialization, binding."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(2))
            await env.expect_provisioned(pods, claims=1)
            claim = (await env.claims())[0]
            await env.expect_condition(claim.name, "Ready")

    run_virtual(scenario())
