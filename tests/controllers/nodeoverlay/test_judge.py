"""NodeOverlays in a running operator: verdicts in statuses, prices in force, trouble contained."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from karpenter.apis.conditions import get
from karpenter.apis.karpenter import NodeOverlay, NodePool
from karpenter.apis.meta import Condition
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CloudProviderError, UnevaluatedNodePool
from karpenter.cloudprovider.overlaid import OverlaidProvider
from karpenter.controllers import nodeclaim, nodeoverlay, nodepool, provisioning
from karpenter.controllers.context import Settings
from karpenter.kube.errors import ApiError, Conflict, NotFound
from karpenter.kube.patch import merge
from karpenter.model.instancetype import InstanceType
from karpenter.testing.builders import a_nodepool, some_instance_types, some_pods
from karpenter.testing.environment import Environment, environment
from karpenter.testing.overlays import an_overlay, requirement

ON = Settings(feature_gates={"NodeOverlay": True})
TYPE, POOL = "node.kubernetes.io/instance-type", "karpenter.sh/nodepool"
SMALL = requirement(TYPE, "In", "general-2")


@asynccontextmanager
async def operator(settings: Settings = ON) -> AsyncIterator[Environment]:
    """Run an environment with the controllers that overlays matter to."""
    async with environment(rooms=(provisioning, nodeclaim, nodepool, nodeoverlay), settings=settings) as env:
        yield env


async def verdict(env: Environment, name: str) -> Condition:
    """Return the condition that tells whether an overlay is in force."""
    overlay = await env.client.get(NodeOverlay, name)
    found = get(overlay.status.conditions, "ValidationSucceeded")
    ready = get(overlay.status.conditions, "Ready")
    assert found is not None
    assert ready is not None
    assert ready.status == found.status
    return found


async def seen(env: Environment, pool: str = "default") -> dict[str, float]:
    """Return the cheapest price of each type as a pool sees it."""
    types = await env.operator.provider.instance_types(a_nodepool(pool))
    return {t.name: min(o.price for o in t.offerings) for t in types}


def test_a_good_overlay_is_in_force() -> None:
    """Its conditions say so and prices change; when it goes, they change back."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            await env.wait(1)
            before = await seen(env)
            await env.create(an_overlay("cheap", SMALL, price="0.001"))
            await env.wait(1)
            found = await verdict(env, "cheap")
            assert (found.status, found.reason, found.observed_generation) == (
                "True",
                "ValidationSucceeded",
                1,
            )
            assert await seen(env) == {**before, "general-2": 0.001}
            await env.client.patch(NodeOverlay, "cheap", merge({"spec": {"price": "0.002"}}))
            await env.wait(1)
            assert (await verdict(env, "cheap")).observed_generation == 2
            assert await seen(env) == {**before, "general-2": 0.002}
            await env.client.delete(NodeOverlay, "cheap")
            await env.wait(1)
            assert await seen(env) == before

    run_virtual(scenario())


def test_without_the_gate_nothing_happens() -> None:
    """No status is written, no price changes, nobody waits for a judgement."""

    async def scenario() -> None:
        async with operator(Settings()) as env:
            await env.create(a_nodepool())
            await env.create(an_overlay("cheap", price="0.001"))
            await env.wait(10)
            assert (await env.client.get(NodeOverlay, "cheap")).status.conditions == []
            assert min((await seen(env)).values()) > 0.01
            await env.expect_scheduled(await env.create_all(some_pods(2)))

    run_virtual(scenario())


def test_one_bad_overlay_does_not_stop_the_others() -> None:
    """What the schema lets through but makes no sense is refused with the reason; the rest is in force."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            await env.create(an_overlay("bad", SMALL, capacity={"example.com/gpu": "-1"}))
            await env.create(an_overlay("good", SMALL, price="0.001"))
            await env.wait(1)
            found = await verdict(env, "bad")
            assert (found.status, found.reason) == ("False", "RuntimeValidation")
            assert "spec.capacity.example.com/gpu" in found.message
            assert (await verdict(env, "good")).status == "True"
            assert (await seen(env))["general-2"] == 0.001

    run_virtual(scenario())


def test_a_pool_that_fails_does_not_stop_the_others() -> None:
    """It is left out until the cloud knows its types again; everything else goes on."""

    async def scenario() -> None:
        async with operator() as env:
            provider = env.operator.provider
            assert isinstance(provider, OverlaidProvider)
            ask, broken = provider.inner.instance_types, ["blue"]

            async def sometimes(pool: NodePool) -> tuple[InstanceType, ...]:
                if pool.name in broken:
                    raise CloudProviderError("no subnets")
                return await ask(pool)

            provider.inner.instance_types = sometimes  # type: ignore[method-assign]
            for name in ("blue", "red"):
                await env.create(a_nodepool(name))
            await env.create(an_overlay("cheap", SMALL, price="0.001"))
            await env.wait(5)
            assert (await verdict(env, "cheap")).status == "True"
            assert (await seen(env, "red"))["general-2"] == 0.001
            with pytest.raises(UnevaluatedNodePool):
                provider.store.apply("blue", ())
            await env.expect_scheduled(await env.create_all(some_pods(2)))
            assert {c.metadata.labels[POOL] for c in await env.claims()} == {"red"}
            assert env.metric("controller_runtime_reconcile_errors_total", controller="nodeoverlay") > 0
            broken.clear()
            await env.wait(61)
            assert (await seen(env, "blue"))["general-2"] == 0.001

    run_virtual(scenario())


def test_a_conflict_in_a_pool_that_comes_later() -> None:
    """Template labels of a new pool may bring two overlays together; when it goes, both are in force."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool("blue", labels={"team": "blue"}))
            await env.create(an_overlay("a", requirement("team", "Exists"), price="0.002"))
            await env.create(an_overlay("b", requirement("gold", "Exists"), price="0.001"))
            await env.wait(1)
            assert (await seen(env, "blue"))["general-2"] == 0.002
            await env.create(a_nodepool("red", labels={"team": "red", "gold": "yes"}))
            await env.wait(1)
            found = await verdict(env, "a")
            assert (found.status, found.reason) == ("False", "Conflict")
            assert "in nodepool red" in found.message
            assert (await seen(env, "blue"))["general-2"] > 0.002
            assert (await seen(env, "red"))["general-2"] == 0.001
            await env.client.delete(NodePool, "red")
            await env.wait(1)
            assert (await verdict(env, "a")).status == "True"
            assert (await seen(env, "blue"))["general-2"] == 0.002

    run_virtual(scenario())


@pytest.mark.parametrize("error", [Conflict(409, "Conflict", "newer"), NotFound(404, "NotFound", "gone")])
def test_what_was_judged_is_not_put_in_force_when_it_is_out_of_date(error: ApiError) -> None:
    """Somebody wrote in between: everything is looked at again first, and nobody calls it an error."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            await env.wait(1)
            patch, failing, marked = env.operator.client.patch, [error] * 3, list[float]()

            async def sometimes(kind: type[NodeOverlay], *args: object, **more: object) -> object:
                if kind is NodeOverlay and failing:
                    marked.append((await seen(env))["general-2"])
                    raise failing.pop()
                return await patch(kind, *args, **more)  # type: ignore[arg-type]

            env.operator.client.patch = sometimes  # type: ignore[assignment, method-assign]
            await env.create(an_overlay("cheap", SMALL, price="0.001"))
            await env.wait(5)
            assert len(marked) == 3
            assert min(marked) > 0.01
            assert (await seen(env))["general-2"] == 0.001
            assert env.metric("controller_runtime_reconcile_errors_total", controller="nodeoverlay") == 0

    run_virtual(scenario())


def test_a_status_that_cannot_be_written_stops_nobody() -> None:
    """The verdict counts all the same; writing it is tried again."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            patch, failing = env.operator.client.patch, [True]

            async def sometimes(kind: type[NodeOverlay], name: str, *args: object, **more: object) -> object:
                if kind is NodeOverlay and name == "a" and failing:
                    raise ApiError(500, "InternalError", "a webhook fails")
                return await patch(kind, name, *args, **more)  # type: ignore[arg-type]

            env.operator.client.patch = sometimes  # type: ignore[assignment, method-assign]
            await env.create(an_overlay("a", SMALL, price="0.001"))
            await env.create(an_overlay("b", SMALL, capacity={"example.com/gpu": 1}))
            await env.wait(5)
            assert (await env.client.get(NodeOverlay, "a")).status.conditions == []
            assert (await verdict(env, "b")).status == "True"
            assert (await seen(env))["general-2"] == 0.001
            failing.clear()
            await env.wait(61)
            assert (await verdict(env, "a")).status == "True"

    run_virtual(scenario())


def test_consolidation_looks_again_when_prices_change() -> None:
    """New overlays make the cluster worth another look; a judgement that changes nothing does not."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            await env.wait(10)
            before, began = env.cluster.unconsolidated_at, env.clock.now()
            await env.create(an_overlay("bad", SMALL, capacity={"example.com/gpu": "-1"}))
            await env.wait(5)
            assert (await verdict(env, "bad")).status == "False"
            assert env.cluster.unconsolidated_at == before < began
            await env.create(an_overlay("cheap", SMALL, price="0.001"))
            await env.wait(5)
            assert env.cluster.unconsolidated_at >= began

    run_virtual(scenario())


def test_the_cost_of_a_pool_follows() -> None:
    """What its machines cost is told by the overlays of the moment, without anybody buying anything."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            await env.expect_scheduled(await env.create_all(some_pods(1)))
            await env.wait(10)
            assert env.metric("karpenter_nodepools_cost_total", nodepool="default") > 0.01
            await env.create(an_overlay("cheap", price="0.001"))
            await env.wait(10)
            assert env.metric("karpenter_nodepools_cost_total", nodepool="default") == 0.001

    run_virtual(scenario())


def test_types_that_come_later_are_judged_too() -> None:
    """A new catalogue is overlaid at once, and conflicts in it are found soon, though no object changed."""

    async def scenario() -> None:
        async with operator() as env:
            small, large = some_instance_types()[0], some_instance_types()[3]
            env.cloud.types = (small,)
            await env.create(a_nodepool())
            await env.create(an_overlay("a", requirement(TYPE, "In", large.name), price="0.002"))
            await env.create(an_overlay("b", requirement(TYPE, "NotIn", small.name), price="0.001"))
            await env.wait(1)
            assert (await verdict(env, "a")).status == "True"
            env.cloud.types = tuple(sorted((large, small), key=lambda t: t.name))
            assert (await seen(env))[large.name] == 0.001
            await env.wait(15)
            assert (await verdict(env, "a")).reason == "Conflict"

    run_virtual(scenario())


def test_everything_is_judged_again_now_and_then() -> None:
    """Six hours after the last time, whatever happened."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            await env.wait(5)
            name = "controller_runtime_reconcile_total"
            labels = {"controller": "nodeoverlay", "result": "requeue_after"}
            before = env.metric(name, **labels)
            await env.wait(6 * 3600 - 10)
            assert env.metric(name, **labels) == before
            await env.wait(10)
            assert env.metric(name, **labels) == before + 1

    run_virtual(scenario())


def test_claims_tell_of_the_overlays_behind_them() -> None:
    """Annotations say whether price or capacity of a listed type is overlaid; its node has the resource."""

    async def scenario() -> None:
        async with operator() as env:
            await env.create(a_nodepool())
            await env.create(an_overlay("gpu", SMALL, capacity={"example.com/gpu": 4}))
            await env.create(an_overlay("far", requirement(TYPE, "In", "general-16"), price="9"))
            await env.wait(1)
            (pod,) = some_pods(1)
            container = pod.spec.containers[0]
            resources = replace(
                container.resources, requests={**container.resources.requests, "example.com/gpu": "1"}
            )
            spec = replace(pod.spec, containers=[replace(container, resources=resources)])
            await env.create(replace(pod, spec=spec))
            (claim,) = await env.expect_claims(1)
            claim = await env.expect_condition(claim.name, "Initialized")
            assert claim.metadata.annotations["karpenter.sh/capacity-overlay-applied"] == "true"
            assert "karpenter.sh/price-overlay-applied" not in claim.metadata.annotations
            assert claim.metadata.labels[TYPE] == "general-2"
            assert str(claim.status.allocatable["example.com/gpu"]) == "4"

    run_virtual(scenario())
