"""Static pools keep as many nodes as they say, within limits, over the zones they may use."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import InsufficientCapacity
from karpenter.controllers import node, nodeclaim, nodepool, provisioning, static
from karpenter.controllers.context import Settings
from karpenter.kube.patch import merge
from karpenter.kube.transport import Response, TransportError
from karpenter.testing.builders import a_nodepool, some_pods
from karpenter.testing.environment import Environment, environment

OPEN: dict[str, Any] = {
    "rooms": (provisioning, nodeclaim, node, nodepool, static),
    "settings": Settings(feature_gates={"StaticCapacity": True}),
}


async def _resize(env: Environment, replicas: int, name: str = "default") -> None:
    await env.client.patch(NodePool, name, merge({"spec": {"replicas": replicas}}))


async def _ready(env: Environment, count: int, *, within: float = 90.0) -> list[NodeClaim]:
    async def holds() -> bool:
        claims = await env.claims()
        return len(claims) == len(await env.nodes()) == count

    await env.expect(f"there are {count} nodes", holds, within=within)
    return await env.claims()


def test_a_pool_has_its_replicas_without_any_pod() -> None:
    """replicas: 3 are three nodes, spread over the zones, whose claims ask for no resources and no types."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool(replicas=3))
            claims = await _ready(env, 3)
            assert Counter(c.metadata.labels[known.ZONE] for c in claims) == {"zone-a": 2, "zone-b": 1}
            for claim in claims:
                assert claim.spec.resources.requests == {}
                keys = {r.key for r in claim.spec.requirements}
                assert known.ZONE in keys
                assert known.INSTANCE_TYPE not in keys
                assert known.MIN_VALUES_RELAXED not in claim.metadata.annotations
            assert len(env.cloud.created) == 3

    run_virtual(scenario())


@pytest.mark.parametrize("gates", [{}, {"StaticCapacity": False}])
def test_nothing_is_bought_while_the_gate_is_closed(gates: dict[str, bool]) -> None:
    """Without the feature gate a static pool has no nodes, and an event says why."""

    async def scenario() -> None:
        async with environment(rooms=OPEN["rooms"], settings=Settings(feature_gates=gates)) as env:
            await env.create(a_nodepool(replicas=3))
            event = await env.expect_event("FeatureGateClosed")
            assert "StaticCapacity" in event.message
            await env.wait(120)
            assert await env.claims() == []

    run_virtual(scenario())


def test_growing_stops_at_the_limit_and_shrinking_goes_to_zero() -> None:
    """Of five replicas, limits.nodes allows four; at zero nothing is left, and nothing comes back."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool(replicas=5, limits={"nodes": "4"}))
            await _ready(env, 4)
            await env.wait(120)
            assert len(env.cloud.created) == 4
            await _resize(env, 0)
            await _ready(env, 0)
            await env.wait(120)
            assert len(env.cloud.created) == 4
            disrupted = env.metric(
                "karpenter_nodeclaims_disrupted_total",
                reason="scaled_down",
                nodepool="default",
                capacity_type="spot",
                consolidation_policy="",
                termination_mode="graceful",
            )
            assert disrupted == 4

    run_virtual(scenario())


def test_pods_run_on_static_nodes_and_leave_them_last() -> None:
    """Static nodes take pods like any others; of too many, the empty ones go first."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool(replicas=3))
            await _ready(env, 3)
            pods = await env.create_all(some_pods(1))
            await env.expect_scheduled(pods)
            busy = (await env.client.get(type(pods[0]), pods[0].name, pods[0].namespace)).spec.node_name
            await _resize(env, 1)
            left = await _ready(env, 1)
            assert [c.status.node_name for c in left] == [busy]

    run_virtual(scenario())


def test_pods_never_make_a_static_pool_grow() -> None:
    """Pods that do not fit wait: a static pool buys nothing for them."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool(replicas=1))
            await _ready(env, 1)
            pods = await env.create_all(some_pods(1, cpu="15"))
            await env.expect_not_scheduled(pods, after=60)
            assert len(await env.claims()) == 1
            assert "is static" in (await env.expect_event("FailedScheduling")).message

    run_virtual(scenario())


def test_a_deleted_node_is_replaced_in_its_zone() -> None:
    """A claim that somebody deletes is bought again at once, where the pool has too few now."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            await env.create(a_nodepool(replicas=4, limits={"nodes": "4"}))
            victim = (await _ready(env, 4))[0]
            await env.client.delete(NodeClaim, victim.name)

            async def replaced() -> bool:
                names = {c.name for c in await env.claims()}
                return victim.name not in names and len(names) == 4

            await env.expect("the claim is replaced", replaced, within=30)
            claims = await _ready(env, 4)
            assert Counter(c.metadata.labels[known.ZONE] for c in claims) == {"zone-a": 2, "zone-b": 2}

    run_virtual(scenario())


def test_a_sold_out_zone_is_left_out() -> None:
    """Zones where nothing can be had get no claims; a pool that can have nothing says so and buys nothing."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            for kind in [t.name for t in env.cloud.types]:
                env.cloud.sell_out(kind, zone="zone-a")
            await env.create(a_nodepool(replicas=3))
            claims = await _ready(env, 3)
            assert {c.metadata.labels[known.ZONE] for c in claims} == {"zone-b"}
            for kind in [t.name for t in env.cloud.types]:
                env.cloud.sell_out(kind)
            await _resize(env, 5)
            await env.expect_event("NoCompatibleInstanceTypes")
            assert len(await env.claims()) == 3

    run_virtual(scenario())


def test_failing_launches_are_not_repeated_in_a_rush() -> None:
    """A cloud that refuses is asked again every ten seconds, not at once."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            env.cloud.next_errors = [InsufficientCapacity("none left")] * 3
            await env.create(a_nodepool(replicas=1))
            await env.wait(15)
            assert len(env.cloud.next_errors) >= 1
            await _ready(env, 1)

    run_virtual(scenario())


class _Lossy:
    """Carries out the first few writes of a kind, and loses the answers."""

    def __init__(self, inner: Any, method: str, times: int) -> None:
        self._inner, self._method, self._left = inner, method, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def request(self, method: str, path: str, **more: Any) -> Response:
        answer: Response = await self._inner.request(method, path, **more)
        if method == self._method and "/nodeclaims" in path and self._left:
            self._left -= 1
            raise TransportError("connection reset")
        return answer


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_lost_answers_change_nothing(method: str) -> None:
    """Creates and deletes whose answers are lost are neither repeated in vain nor forgotten."""

    async def scenario() -> None:
        async with environment(**OPEN, transport=lambda inner: _Lossy(inner, method, 7)) as env:
            await env.create(a_nodepool(replicas=4, limits={"nodes": "6"}))
            await _ready(env, 4)
            await _resize(env, 2)
            await _ready(env, 2)
            await env.wait(120)
            assert len(await env.claims()) == 2
            assert len(env.cloud.created) == 4

    run_virtual(scenario())


class _Dying:
    """Carries out a few creates of NodeClaims, and nothing after them."""

    def __init__(self, inner: Any, creates: int | None) -> None:
        self._inner, self._left = inner, creates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if self._left is not None and method == "POST" and path.endswith("/nodeclaims"):
            if not self._left:
                raise TransportError("the operator is dying")
            self._left -= 1
        answer: Response = await self._inner.request(method, path, **more)
        return answer


@pytest.mark.parametrize("creates", range(6))
def test_killed_between_creates_the_next_one_creates_the_rest(creates: int) -> None:
    """Of five claims some are there when the operator dies; the next one creates exactly the others."""

    async def scenario() -> None:
        lives = iter([creates])
        async with environment(**OPEN, transport=lambda inner: _Dying(inner, next(lives, None))) as env:
            await env.create(a_nodepool(replicas=5))
            await env.wait(0.05)
            assert len(await env.claims()) == creates
            await env.restart()
            await _ready(env, 5)
            await env.wait(70)
            assert len(env.cloud.created) == len(await env.claims()) == 5

    run_virtual(scenario())


async def _killed(pauses: list[float], replicas: int) -> int:
    async with environment(**OPEN) as env:
        env.cloud.create_seconds = 2.0
        await env.create(a_nodepool(replicas=replicas, limits={"nodes": str(replicas)}))
        for pause in pauses:
            await env.wait(pause)
            await env.restart()
        await _ready(env, replicas, within=120)
        await env.wait(90)
        return len(env.cloud.created)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(pauses=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=3))
def test_a_killed_operator_never_buys_too_many(pauses: list[float]) -> None:
    """Killed at any moments and started again without memory, it buys as many nodes as it should."""
    assert run_virtual(_killed(pauses, 6)) == 6


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.lists(st.tuples(st.integers(0, 8), st.floats(0.0, 5.0)), min_size=1, max_size=6),
    limit=st.integers(0, 6),
)
def test_however_replicas_change_the_limit_holds(sizes: list[tuple[int, float]], limit: int) -> None:
    """While replicas go up and down faster than nodes come and go, limits.nodes is never passed."""

    async def scenario() -> None:
        async with environment(**OPEN) as env:
            env.cloud.create_seconds = 1.5
            await env.create(a_nodepool(replicas=sizes[0][0], limits={"nodes": str(limit)}))
            most = 0

            async def look() -> None:
                nonlocal most
                while True:
                    most = max(most, len(await env.claims()))
                    await env.wait(0.1)

            looking = asyncio.create_task(look())
            for replicas, pause in sizes:
                await _resize(env, replicas)
                await env.wait(pause)
            await _ready(env, min(limit, sizes[-1][0]), within=180)
            looking.cancel()
            assert most <= limit

    run_virtual(scenario())
