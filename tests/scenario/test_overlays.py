"""What users see of NodeOverlays in a whole cluster."""

from pathlib import Path

import pytest

from karpenter.apis.conditions import get, is_true
from karpenter.apis.karpenter import NodeOverlay
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.testing.manifests import Raw, deployment, node_class, pool
from karpenter.testing.overlays import raw_overlay, requirement
from karpenter.testing.world import World, world

GATE = ("--feature-gates=NodeOverlay=true",)
TYPE, CAPACITY_TYPE = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"


def on_gpu(app: str, replicas: int) -> Raw:
    """Return a Deployment whose pods take one example.com/gpu each."""
    made = deployment(app, replicas)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1"},
    }
    return made


async def bought(w: World) -> list[tuple[str, str]]:
    """Return type and capacity type of every claim's machine, sorted."""
    return sorted((c.metadata.labels[TYPE], c.metadata.labels[CAPACITY_TYPE]) for c in await w.claims())


@pytest.mark.parametrize("gate", [False, True])
def test_a_type_made_cheap_is_bought(gate: bool) -> None:
    """Of two types that fit, the one an overlay makes cheap is chosen; without the gate nothing changes."""

    async def scenario() -> None:
        async with world(arguments=GATE if gate else ()) as w:
            choice = requirement(TYPE, "In", "c-2x-amd64-linux", "m-8x-amd64-linux")
            small = pool(requirements=[choice, requirement(CAPACITY_TYPE, "In", "on-demand")])
            cheap = raw_overlay("plan", requirement(TYPE, "In", "m-8x-amd64-linux"), priceAdjustment="-99%")
            await w.apply([cheap, node_class(), small])
            await w.wait(5)
            await w.apply(deployment("web", 1, cpu="1"))
            await w.until_replicas("web", 1)
            (claim,) = await w.claims()
            wanted = "m-8x-amd64-linux" if gate else "c-2x-amd64-linux"
            assert await bought(w) == [(wanted, "on-demand")]
            marked = claim.metadata.annotations.get("karpenter.sh/price-overlay-applied")
            assert marked == ("true" if gate else None)
            assert "karpenter.sh/capacity-overlay-applied" not in claim.metadata.annotations
            ready = get((await w.client.get(NodeOverlay, "plan")).status.conditions, "Ready")
            assert (ready.status if ready else None) == ("True" if gate else None)

    run_virtual(scenario())


def test_a_pod_gets_a_resource_that_only_an_overlay_knows() -> None:
    """It waits until an overlay says which types have the resource; then machines come, full ones."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool(), on_gpu("train", 4)])
            await w.wait(60)
            assert await w.claims() == []
            gpu = raw_overlay(
                "gpu", requirement(TYPE, "In", "m-8x-amd64-linux"), capacity={"example.com/gpu": 2}
            )
            await w.apply(gpu)
            await w.until_replicas("train", 4)
            claims = await w.claims()
            assert [name for name, _ in await bought(w)] == ["m-8x-amd64-linux"] * 2
            for claim in claims:
                assert claim.metadata.annotations["karpenter.sh/capacity-overlay-applied"] == "true"
                assert str(claim.status.capacity["example.com/gpu"]) == "2"

    run_virtual(scenario())


def test_overlays_come_and_go_while_pods_keep_coming() -> None:
    """What was bought stays; what is bought next follows the overlays of the moment, restarts included."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            choice = requirement(TYPE, "In", "c-2x-amd64-linux", "m-2x-amd64-linux")
            one = pool(requirements=[choice, requirement(CAPACITY_TYPE, "In", "on-demand")])
            await w.apply([node_class(), one, deployment("a", 1)])
            await w.until_replicas("a", 1)
            assert [name for name, _ in await bought(w)] == ["c-2x-amd64-linux"]
            m = requirement(TYPE, "In", "m-2x-amd64-linux")
            await w.apply(raw_overlay("m", m, price="0.001"))
            await w.wait(5)
            await w.restart_operator()
            await w.apply(deployment("b", 2))
            await w.until_replicas("b", 2)
            assert [name for name, _ in await bought(w)].count("m-2x-amd64-linux") >= 1
            before = await bought(w)
            await w.client.delete(NodeOverlay, "m")
            await w.apply(deployment("c", 2))
            await w.until_replicas("c", 2)
            new = await bought(w)
            assert new.count(("m-2x-amd64-linux", "on-demand")) == before.count(
                ("m-2x-amd64-linux", "on-demand")
            )

    run_virtual(scenario())


@pytest.mark.parametrize("after", [3, 9, 15, 21, 27])
def test_a_crash_while_machines_with_an_overlaid_resource_come(after: int) -> None:
    """The next operator waits for its own judgement of overlays, and buys nothing twice."""

    async def scenario() -> None:
        async with world(seed=after, arguments=GATE) as w:
            wanted = requirement(TYPE, "In", "m-8x-amd64-linux")
            gpu = raw_overlay("gpu", wanted, capacity={"example.com/gpu": 2})
            await w.apply([gpu, node_class(), pool(), on_gpu("train", 4)])
            assert await w.kill_operator_after(after, within=40.0)
            await w.wait(1.0)
            await w.start_operator()
            await w.until_replicas("train", 4)
            assert w.watchdog.claims_created == len(await w.claims()) == 2
            assert not await w.events("InsufficientCapacityError")

    run_virtual(scenario())


def test_the_examples() -> None:
    """The overlays that we show are in force together."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool()])
            await w.apply((Path(__file__).parents[2] / "examples" / "nodeoverlays.yaml").read_text())
            await w.wait(5)
            overlays = await w.client.list(NodeOverlay)
            assert len(overlays) == 3
            assert all(is_true(overlay.status.conditions, "Ready") for overlay in overlays)

    run_virtual(scenario())


def test_a_conflict_is_told_and_heals() -> None:
    """The overlay that loses says against whom and about what; given another weight it is in force."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool(), raw_overlay("a", price="1"), raw_overlay("b", price="2")])
            await w.wait(5)
            verdict = get((await w.client.get(NodeOverlay, "a")).status.conditions, "ValidationSucceeded")
            assert verdict is not None
            assert (verdict.status, verdict.reason) == ("False", "Conflict")
            assert "b, of the same weight (0), also sets the price of" in verdict.message
            assert "in nodepool default" in verdict.message
            await w.client.patch(NodeOverlay, "a", merge({"spec": {"weight": 10}}))
            await w.wait(5)
            for name in ("a", "b"):
                found = get((await w.client.get(NodeOverlay, name)).status.conditions, "Ready")
                assert found is not None
                assert found.status == "True"

    run_virtual(scenario())
