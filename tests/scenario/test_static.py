"""A static pool in the whole operator, over the whole embedded cluster, in virtual time."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.testing.faults import Faults
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import World, world

GATE = ("--feature-gates=StaticCapacity=true",)
ZONE = "topology.kubernetes.io/zone"


def _static(replicas: int, **more: Any) -> dict[str, Any]:
    raw = pool("fixed", **more)
    raw["spec"]["replicas"] = replicas
    return raw


async def _resize(w: World, replicas: int) -> None:
    """As `kubectl scale nodepool` does it."""
    await w.client.patch(NodePool, "fixed", merge({"spec": {"replicas": replicas}}), subresource="scale")


async def _has(w: World, count: int) -> list[NodeClaim]:
    async def holds() -> bool:
        return len(await w.claims()) == len(await w.nodes()) == count

    await w.until(f"there are {count} nodes", holds)
    return await w.claims()


def test_a_static_pool_is_as_large_as_it_says() -> None:
    """3 replicas are 3 nodes; 5 with limits.nodes 4 are 4; 1 is 1, and stays 1; a kill adds none."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class()])
            await w.apply((Path(__file__).parents[2] / "examples" / "static-pool.yaml").read_text())
            await _has(w, 3)
            await w.wait(120)
            await _has(w, 3)
            await _resize(w, 5)
            claims = await _has(w, 4)
            assert max(Counter(c.metadata.labels[ZONE] for c in claims).values()) == 1
            await w.restart_operator()
            await w.wait(90)
            await _has(w, 4)
            assert w.watchdog.claims_created == 4
            await _resize(w, 1)
            await _has(w, 1)
            await w.wait(90)
            await _has(w, 1)
            assert w.watchdog.claims_created == 4

    run_virtual(scenario())


def test_static_nodes_are_filled_before_anything_is_bought() -> None:
    """Pods that fit on static nodes buy none; those that do not fit are another pool's matter."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            large = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"]}
            await w.apply([node_class(), _static(2, requirements=[large]), pool("elastic")])
            await _has(w, 2)
            await w.apply(deployment("web", 6))
            await w.until_replicas("web", 6)
            assert {c.metadata.labels["karpenter.sh/nodepool"] for c in await w.claims()} == {"fixed"}
            await w.scale("web", 40)
            await w.until_replicas("web", 40)
            pools = Counter(c.metadata.labels["karpenter.sh/nodepool"] for c in await w.claims())
            assert pools["fixed"] == 2
            assert pools["elastic"] > 0

    run_virtual(scenario())


def test_a_bad_connection_costs_no_node_and_buys_none_too_many() -> None:
    """Lost requests and answers, refusals, broken watches: the limit holds, the number comes about."""

    async def scenario() -> None:
        async with world(arguments=GATE, seed="bad") as w:
            await w.apply([node_class(), _static(5, limits={"nodes": 6})])
            for chance, replicas in ((0.2, 6), (0.1, 2), (0.3, 5)):
                w.faults.set(Faults.all(chance))
                await w.wait(20)
                await _resize(w, replicas)
                await w.wait(40)
                await w.restart_operator()
                await w.wait(10)
            w.faults.set(Faults())
            await _has(w, 5)
            await w.wait(120)
            await _has(w, 5)

    run_virtual(scenario())


@pytest.mark.parametrize("writes", range(1, 15))
def test_killed_right_after_any_write_it_creates_no_node_twice(writes: int) -> None:
    """Killed before it hears that a write succeeded: the next operator counts what is there."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), _static(1)])
            await _has(w, 1)
            killing = asyncio.create_task(w.kill_operator_after(writes, within=30))
            await w.wait(0.1)
            await _resize(w, 5)
            if await killing:
                await w.start_operator()
            await _has(w, 5)
            await w.wait(70)
            assert w.watchdog.claims_created == len(await w.claims()) == 5

    run_virtual(scenario())
