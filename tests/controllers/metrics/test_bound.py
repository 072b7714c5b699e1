"""What the machines of the cluster cost, beside the least that any machines for its pods could."""

from typing import Any

import pytest

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import metrics, node, nodeclaim, nodepool, provisioning
from karpenter.controllers.metrics import bound
from karpenter.scheduling import least_cost
from karpenter.testing.builders import a_nodepool, some_pods
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, metrics)
PRICE = "karpenter_cluster_price_usd_per_hour"
BOUND = "karpenter_cluster_price_lower_bound_usd_per_hour"
GAP = "karpenter_cluster_price_gap_ratio"


def _figures(env: Environment) -> tuple[float, float, float]:
    return env.metric(PRICE), env.metric(BOUND), env.metric(GAP)


def test_the_bound_of_the_cluster_follows_its_pods() -> None:
    """With all pods there the gap is small; with most of them gone the bound falls and the gap grows."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await env.create(a_nodepool())
            pods = [await env.create(pod) for pod in some_pods(12, cpu="900m", memory="1Gi")]
            await env.expect_scheduled(pods)
            await env.wait(130)
            price, least, gap = _figures(env)
            assert 0 < least <= price
            assert gap == pytest.approx(price / least - 1)
            for pod in pods[3:]:
                await env.client.delete(type(pod), pod.name, namespace=pod.namespace)
            await env.wait(130)
            after, lower, wider = _figures(env)
            assert after == price
            assert lower == pytest.approx(least / 4, rel=0.1)
            assert wider > gap

    run_virtual(scenario())


def test_a_cluster_that_does_not_change_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is what it was; a pod that goes lets it be worked out anew."""
    asked = [0]

    def counted(*given: Any, **more: Any) -> float:
        asked[0] += 1
        return least_cost(*given, **more)

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await env.create(a_nodepool())
            pods = [await env.create(pod) for pod in some_pods(4)]
            await env.expect_scheduled(pods)
            await env.wait(130)
            before = asked[0]
            await env.wait(600)
            assert asked[0] == before > 0
            await env.client.delete(type(pods[0]), pods[0].name, namespace=pods[0].namespace)
            await env.wait(130)
            assert asked[0] > before

    monkeypatch.setattr(bound, "least_cost", counted)
    run_virtual(scenario())


def test_an_empty_cluster_has_no_bound() -> None:
    """Without pods there is nothing to compare with: no series, no division by zero."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await env.create(a_nodepool())
            await env.wait(130)
            assert env.metric(GAP) in (0.0, None)

    run_virtual(scenario())
