"""Drifted nodes of static pools: replaced one for one, within limits, never more or fewer than replicas."""

from typing import Any

from msgspec.structs import replace

from karpenter.apis.conditions import is_true
from karpenter.apis.karpenter import Budget, Disruption, NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption, metrics, node, nodeclaim, nodepool, provisioning, static
from karpenter.controllers.context import Settings
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_nodepool
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, static, disruption, metrics)
ON = Settings(feature_gates={"StaticCapacity": True})


def a_static_pool(replicas: int, *budgets: Budget, **fields: Any) -> NodePool:
    """Return a pool of so many nodes that are replaced for drift only."""
    pool = a_nodepool(**fields)
    wanted = Disruption(consolidate_after="Never", budgets=list(budgets) or [Budget(nodes="100%")])
    return replace(pool, spec=replace(pool.spec, disruption=wanted, replicas=replicas))


async def _drifted(env: Environment, pool: NodePool, count: int) -> list[NodeClaim]:
    """Have the pool's nodes up, and let all of them drift."""
    await env.create(pool)
    for claim in await env.expect_claims(count):
        await env.expect_condition(claim.name, "Initialized")
    claims = await env.claims()
    for claim in claims:
        env.cloud.drift[claim.name] = "ImageDrifted"
        await env.client.patch(NodeClaim, claim.name, merge({"metadata": {"annotations": {"seen": "1"}}}))
    return claims


async def _roll(env: Environment, old: list[NodeClaim], *, most: int, least: int) -> None:
    """Wait until all of `old` are replaced; meanwhile so many nodes are there and ready."""
    names = {c.name for c in old}
    for _ in range(2000):
        claims = await env.claims()
        assert len(claims) <= most
        ready = [c for c in claims if is_true(c.status.conditions, "Initialized") and not c.deleting]
        assert len(ready) >= least
        if not names & {c.name for c in claims}:
            break
        await env.wait(0.5)
    await env.wait(90)
    left = await env.claims()
    assert not names & {c.name for c in left}
    assert len(left) == len(old)
    assert len(env.cloud.created) == 2 * len(old)


def test_static_nodes_are_replaced_one_for_one() -> None:
    """With budget 1 there is never more than one node too many, and never one too few."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=ON) as env:
            old = await _drifted(env, a_static_pool(3, Budget(nodes="1")), 3)
            await _roll(env, old, most=5, least=3)

    run_virtual(scenario())


def test_the_limit_of_nodes_holds_while_static_nodes_are_replaced() -> None:
    """With room for one node more, one at a time is replaced though budgets allow all."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=ON) as env:
            old = await _drifted(env, a_static_pool(3, limits={"nodes": "4"}), 3)
            await _roll(env, old, most=4, least=3)

    run_virtual(scenario())


def test_a_static_replacement_that_fails_leaves_the_pool_as_it_was() -> None:
    """The old node stays, the new one goes, and the number of nodes is right at the end."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=ON) as env:
            env.cloud.join_seconds = 2.0
            (old,) = await _drifted(env, a_static_pool(1, limits={"nodes": "2"}), 1)
            env.cloud.join_seconds = None
            await env.wait(500)
            assert len(await env.claims()) == 2
            env.cloud.drift.clear()
            await env.wait(200)
            assert [c.name for c in await env.claims()] == [old.name]

    run_virtual(scenario())
