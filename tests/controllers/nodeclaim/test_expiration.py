"""Nodes that have reached the age their pool allows."""

import pytest

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.clock import LoopClock
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.kube.transport import Transport
from karpenter.testing.builders import a_nodepool, some_pods
from karpenter.testing.environment import Environment, environment
from karpenter.testing.lag import LaggingTransport

REASON = {
    "reason": "expired",
    "nodepool": "default",
    "capacity_type": "spot",
    "consolidation_policy": "",
    "termination_mode": "graceful",
}


async def _fleet(env: Environment, count: int, *, expire_after: str = "10m") -> list[NodeClaim]:
    """Return that many claims, each with a pod, made within a moment."""
    small = [(known.INSTANCE_TYPE, "In", ["general-2"])]
    await env.create(a_nodepool(expire_after=expire_after, requirements=small))
    pods = some_pods(count, cpu="1100m", annotations={"karpenter.sh/do-not-disrupt": "true"})
    await env.expect_scheduled(await env.create_all(pods))
    claims = await env.claims()
    for claim in claims:
        await env.expect_condition(claim.name, "Initialized")
    return claims


async def _expired(env: Environment, claims: list[NodeClaim]) -> int:
    alive = {claim.metadata.uid for claim in await env.claims() if not claim.deleting}
    return sum(claim.metadata.uid not in alive for claim in claims)


def test_all_that_expire_together_are_ended_together() -> None:
    """Without a pause between them; claims and pods are counted, budgets and do-not-disrupt ignored."""

    async def scenario() -> None:
        async with environment() as env:
            claims = await _fleet(env, 30)
            none = {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
            await env.client.patch(NodePool, "default", merge(none))
            assert len(claims) == 30
            first = min(claim.metadata.creation_timestamp or "" for claim in claims)
            assert all((claim.metadata.creation_timestamp or "") == first for claim in claims)
            await env.wait(560)
            assert await _expired(env, claims) == 0

            async def begun() -> bool:
                return await _expired(env, claims) > 0

            await env.expect("the first one expires", begun)
            await env.wait(1)
            assert await _expired(env, claims) == len(claims)
            assert env.metric("karpenter_nodeclaims_disrupted_total", **REASON) == len(claims)
            assert env.metric("karpenter_pods_disruption_initiated_total", **REASON) == 30

    run_virtual(scenario())


def test_an_expired_claim_is_ended_once_however_stale_the_cache() -> None:
    """The watch may show it alive for a while; it is neither deleted nor counted again."""

    def late(inner: Transport) -> Transport:
        return LaggingTransport(inner, LoopClock(), 5.0, ("/nodeclaims",))

    async def scenario() -> None:
        async with environment(transport=late) as env:
            claims = await _fleet(env, 1)
            await env.wait(660)
            assert await _expired(env, claims) == 1
            assert env.metric("karpenter_nodeclaims_disrupted_total", **REASON) == 1

    run_virtual(scenario())


@pytest.mark.parametrize("restarted", [False, True])
def test_age_counts_from_the_claims_creation(restarted: bool) -> None:
    """What the pool says now does not matter to claims there are, and a restart does not start anew."""

    async def scenario() -> None:
        async with environment() as env:
            (claim,) = await _fleet(env, 1)
            later = {"spec": {"template": {"spec": {"expireAfter": "Never"}}}}
            await env.client.patch(NodePool, "default", merge(later))
            await env.wait(400)
            if restarted:
                await env.restart()
            await env.wait(220)
            assert await _expired(env, [claim]) == 1

    run_virtual(scenario())


def test_never_is_never() -> None:
    """Without an age a claim stays."""

    async def scenario() -> None:
        async with environment() as env:
            (claim,) = await _fleet(env, 1, expire_after="Never")
            await env.wait(40_000)
            assert await _expired(env, [claim]) == 0

    run_virtual(scenario())
