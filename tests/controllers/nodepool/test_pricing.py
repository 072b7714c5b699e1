"""What pools cost, whoever asks and whenever."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError
from karpenter.kube.patch import merge
from karpenter.model.instancetype import InstanceType
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment


def _cost(env: Environment, pool: str = "default") -> float:
    return env.metric("karpenter_nodepools_cost_total", nodepool=pool)


def _errors(env: Environment) -> float:
    return env.metric("karpenter_nodepools_cost_tracker_errors_total", nodepool="default")


async def _working(env: Environment) -> tuple[NodeClaim, float]:
    """Return a claim whose machine works, and its price."""
    await env.create(a_nodepool())
    await env.create(a_pod())
    claim = (await env.expect_claims(1))[0]
    claim = await env.expect_condition(claim.name, "Initialized")
    return claim, _price(env, claim)


def _price(env: Environment, claim: NodeClaim) -> float:
    labels = claim.metadata.labels
    kind = next(t for t in env.cloud.types if t.name == labels[known.INSTANCE_TYPE])
    place = (labels[known.ZONE], labels[known.CAPACITY_TYPE])
    return next(o.price for o in kind.offerings if (o.zone, o.capacity_type) == place)


def _doubled(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    return tuple(
        replace(t, offerings=tuple(replace(o, price=2 * o.price) for o in t.offerings)) for t in types
    )


def test_the_cost_of_a_pool_is_known_after_a_restart() -> None:
    """Nobody has to want a node first."""

    async def scenario() -> None:
        async with environment() as env:
            _, price = await _working(env)
            await env.wait(6)
            assert _cost(env) == pytest.approx(price)
            await env.restart()
            await env.wait(10)
            assert _cost(env) == pytest.approx(price)

    run_virtual(scenario())


def test_changed_prices_are_seen_within_the_hour_without_any_pods() -> None:
    """They change without anybody saying so."""

    async def scenario() -> None:
        async with environment() as env:
            _, price = await _working(env)
            env.cloud.types = _doubled(env.cloud.types)
            await env.wait(1800)
            assert _cost(env) == pytest.approx(price)
            await env.wait(1830)
            assert _cost(env) == pytest.approx(2 * price)

    run_virtual(scenario())


def test_the_cost_of_a_pool_goes_with_its_machines_and_its_series_with_the_pool() -> None:
    """Deleted machines cost nothing; a deleted pool has no series."""

    async def scenario() -> None:
        async with environment() as env:
            claim, price = await _working(env)
            other = await env.create(a_nodepool("other", requirements=[("x", "In", ["y"])]))
            await env.wait(10)
            labels = {"nodepool": other.name}
            registry = env.operator.metrics.registry
            assert registry.get_sample_value("karpenter_nodepools_cost_total", labels) == 0.0
            assert _cost(env) == pytest.approx(price)
            await env.client.delete(NodePool, other.name)
            await env.client.delete(Pod, "pod", namespace="default")
            await env.client.delete(NodeClaim, claim.name)
            await env.client.patch(Node, claim.status.node_name, merge({"metadata": {"finalizers": None}}))
            await env.wait(15)
            assert _cost(env) == 0
            assert registry.get_sample_value("karpenter_nodepools_cost_total", labels) is None

    run_virtual(scenario())


def test_a_cloud_that_cannot_tell_prices_is_counted_and_asked_again() -> None:
    """Errors have a metric by pool; when the cloud answers, the cost is right."""

    async def scenario() -> None:
        async with environment() as env:
            _, price = await _working(env)
            assert _errors(env) == 0
            await env.operator.kill()
            env.operator = env._new_operator()
            provider = env.operator.provider
            works = provider.instance_types

            async def fails(pool: NodePool) -> tuple[InstanceType, ...]:
                raise CreateError("Throttled", "slow down")

            provider.instance_types = fails  # type: ignore[method-assign]
            await env.operator.start()
            await env.wait(20)
            assert _errors(env) > 1
            assert _cost(env) == 0
            provider.instance_types = works  # type: ignore[method-assign]
            await env.wait(70)
            assert _cost(env) == pytest.approx(price)

    run_virtual(scenario())


def test_a_machine_without_a_price_is_counted_once() -> None:
    """Its offering is gone from the catalogue: it is named in the log, and counts as nothing."""

    async def scenario() -> None:
        async with environment() as env:
            claim, _ = await _working(env)
            gone = claim.metadata.labels[known.INSTANCE_TYPE]
            env.cloud.types = tuple(t for t in env.cloud.types if t.name != gone)
            await env.wait(3700)
            assert _errors(env) == 1
            assert _cost(env) == 0
            await env.wait(7300)
            assert _errors(env) == 1

    run_virtual(scenario())
