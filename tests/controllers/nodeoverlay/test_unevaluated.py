"""While nobody knows what overlays make of a pool's types, it is left alone, and nobody makes a noise."""

from msgspec.structs import replace
from structlog.testing import capture_logs

from karpenter.apis.conditions import is_true
from karpenter.apis.karpenter import Budget, NodeClaim
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError
from karpenter.cloudprovider.overlaid import OverlaidProvider
from karpenter.controllers import disruption, nodeclaim, nodeoverlay, nodepool, provisioning
from karpenter.controllers.context import Settings
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_nodepool, some_pods
from karpenter.testing.environment import Environment, environment
from karpenter.testing.overlays import an_overlay

ON = Settings(feature_gates={"NodeOverlay": True})
WITHOUT_JUDGE = (provisioning, nodeclaim, nodepool, disruption)


def forget(env: Environment) -> None:
    """Make the operator forget what overlays make of any pool."""
    provider = env.operator.provider
    assert isinstance(provider, OverlaidProvider)
    provider.store.replace((), [])


def test_nothing_is_bought() -> None:
    """Pods wait, and hear so; no log line calls that an error."""

    async def scenario() -> None:
        with capture_logs() as logs:
            async with environment(rooms=WITHOUT_JUDGE, settings=ON) as env:
                await env.create(a_nodepool())
                await env.expect_not_scheduled(await env.create_all(some_pods(2)))
                await env.expect_event("FailedScheduling")
                assert await env.claims() == []
        assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []

    run_virtual(scenario())


def test_a_claim_that_is_not_launched_yet_waits() -> None:
    """What it may become is not known; it is launched when that is, and nothing is said to have failed."""

    async def scenario() -> None:
        async with environment(rooms=(*WITHOUT_JUDGE, nodeoverlay), settings=ON) as env:
            await env.create(a_nodepool())
            await env.wait(5)
            env.cloud.next_errors.extend(CreateError("Busy", "come again") for _ in range(20))
            pods = await env.create_all(some_pods(1))
            (claim,) = await env.expect_claims(1)
            forget(env)
            env.cloud.next_errors.clear()
            with capture_logs() as logs:
                await env.wait(30)
                assert env.cloud.created == []
            assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []
            await env.create(an_overlay("any", price="1"))
            await env.expect_condition(claim.name, "Launched")
            await env.expect_scheduled(pods)
            assert len(env.cloud.created) == 1

    run_virtual(scenario())


def test_nothing_is_taken_away_or_called_drifted() -> None:
    """Empty nodes stay, and so do markers, until overlays are judged again."""
    budgets = [Budget(nodes="0", reasons=["Drifted"]), Budget(nodes="1")]
    pool = a_nodepool()
    pool = replace(pool, spec=replace(pool.spec, disruption=replace(pool.spec.disruption, budgets=budgets)))

    async def scenario() -> None:
        rooms = (*WITHOUT_JUDGE, nodeoverlay)
        async with environment(rooms=rooms, settings=ON) as env:
            await env.create(pool)
            pods = await env.create_all(some_pods(1))
            await env.expect_scheduled(pods)
            (claim,) = await env.claims()
            await env.wait(2 * 3600)
            env.cloud.types = tuple(t for t in env.cloud.types if t.name != "general-2")
            await env.wait(3600)
            claim = await env.client.get(NodeClaim, claim.name)
            assert is_true(claim.status.conditions, "Drifted")
            with capture_logs() as logs:
                forget(env)
                for pod in pods:
                    await env.client.delete(type(pod), pod.name, namespace=pod.namespace)
                await env.client.patch(NodeClaim, claim.name, merge({"metadata": {"labels": {"any": "x"}}}))
                await env.wait(600)
                claim = await env.client.get(NodeClaim, claim.name)
                assert is_true(claim.status.conditions, "Drifted")
                assert not claim.deleting
            assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []
            await env.create(an_overlay("any", price="1"))
            await env.wait(120)
            assert (await env.client.get(NodeClaim, claim.name)).deleting

    run_virtual(scenario())
