"""Capacity buffers in the whole operator, over the whole embedded cluster, in virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from karpenter.apis import conditions
from karpenter.apis.autoscaling import CapacityBuffer
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.testing.manifests import deployment, node_class, pod_spec, pool
from karpenter.testing.world import World, world

GATE = ("--feature-gates=CapacityBuffer=true",)
TWO_CORES = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"]}


def _template(name: str = "unit", cpu: str = "1500m") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "template": {"metadata": {"labels": {"app": "spare"}}, "spec": pod_spec(cpu=cpu)},
    }


def _buffer(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "default"},
        "spec": spec,
    }


async def _has_nodes(w: World, count: int, *, within: float = 120.0) -> None:
    async def holds() -> bool:
        return len(await w.claims()) == len(await w.nodes()) == count

    await w.until(f"there are {count} nodes", holds, within=within)


async def _says(w: World, status: str, reason: str, *, name: str = "spare") -> CapacityBuffer:
    async def holds() -> bool:
        buffer = await w.client.get(CapacityBuffer, name, "default")
        found = conditions.get(buffer.status.conditions, "Provisioning")
        return found is not None and (found.status, found.reason) == (status, reason)

    await w.until(f"Provisioning is {status} because of {reason}", holds)
    return await w.client.get(CapacityBuffer, name, "default")


def test_room_is_kept_taken_and_bought_again() -> None:
    """Two units of room stay; a pod that takes one runs at once and room is bought again."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool(requirements=[TWO_CORES]), _template()])
            await w.apply(_buffer(podTemplateRef={"name": "unit"}, replicas=2))
            await _has_nodes(w, 2)
            buffer = await _says(w, "True", "FitsExistingCapacity")
            assert buffer.status.replicas == 2
            await w.wait(120)
            await _has_nodes(w, 2)
            await w.apply(deployment("web", 1))
            await w.scale("web", 1)
            bound = await w.until("the pod is bound", lambda: _bound(w))
            assert bound <= 1.5
            await _has_nodes(w, 3)
            await _says(w, "True", "FitsExistingCapacity")
            await w.scale("web", 0)
            await _has_nodes(w, 2, within=240)
            await w.wait(90)
            await _has_nodes(w, 2)
            assert await _complaints(w) == []
            await w.client.delete(CapacityBuffer, "spare", namespace="default")
            await _has_nodes(w, 0, within=240)

    run_virtual(scenario())


async def _complaints(w: World) -> list[str]:
    events = await w.events("FailedScheduling")
    return [e.message for e in events if e.source.component == "karpenter"]


async def _bound(w: World) -> bool:
    return all(p.spec.node_name for p in await w.pods("web")) and bool(await w.pods("web"))


def test_a_buffer_follows_its_workload() -> None:
    """A fifth of ten replicas is room for two more; twenty replicas make it four, at once."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool(), deployment("web", 10)])
            reference = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
            await w.apply(_buffer(scalableRef=reference, percentage=20))
            await w.until("the buffer wants two", lambda: _wants(w, 2))
            await w.scale("web", 20)
            assert await w.until("the buffer wants four", lambda: _wants(w, 4)) <= 1
            await _says(w, "True", "FitsExistingCapacity")

    run_virtual(scenario())


def test_the_example_works() -> None:
    """Both buffers of the example get their room, one by a template and one by its workload."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool(), deployment("web", 10)])
            await w.apply((Path(__file__).parents[2] / "examples" / "capacitybuffer.yaml").read_text())
            await _says(w, "True", "FitsExistingCapacity")
            await _says(w, "True", "FitsExistingCapacity", name="web")
            sizes = {b.name: b.status.replicas for b in await w.client.list(CapacityBuffer)}
            assert sizes == {"spare": 2, "web": 2}

    run_virtual(scenario())


async def _wants(w: World, count: int) -> bool:
    return (await w.client.get(CapacityBuffer, "spare", "default")).status.replicas == count


def test_real_pods_come_before_buffers_at_a_limit() -> None:
    """Where a limit leaves room for one node, the pod gets it and the buffer says what it lacks."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), _template(), pool(requirements=[TWO_CORES], limits={"nodes": 1})])
            await w.apply([_buffer(podTemplateRef={"name": "unit"}, replicas=3), deployment("web", 1)])
            await w.until("the pod is bound", lambda: _bound(w))
            buffer = await _says(w, "False", "RequiresNewCapacity")
            message = conditions.get(buffer.status.conditions, "Provisioning").message  # type: ignore[union-attr]
            assert message.startswith("0/3 virtual pods required new capacity, 3 failed: ")
            assert await _complaints(w) == []
            await w.client.patch(
                CapacityBuffer, "spare", merge({"spec": {"replicas": 0}}), namespace="default"
            )
            await _says(w, "False", "BufferEmpty")

    run_virtual(scenario())


def test_room_survives_a_restart_of_the_operator() -> None:
    """A new operator buys no room twice and takes none away."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool(requirements=[TWO_CORES]), _template()])
            await w.apply(_buffer(podTemplateRef={"name": "unit"}, replicas=3))
            await _has_nodes(w, 3)
            for _ in range(3):
                await w.restart_operator()
                await w.wait(40)
            assert w.watchdog.claims_created == len(await w.claims()) == 3

    run_virtual(scenario())


@pytest.mark.parametrize("writes", range(2, 12))
def test_killed_right_after_any_write_it_buys_no_room_twice(writes: int) -> None:
    """Killed before it hears that a write succeeded: the next operator counts what is there."""

    async def scenario() -> None:
        async with world(arguments=GATE) as w:
            await w.apply([node_class(), pool(requirements=[TWO_CORES]), _template()])
            await w.wait(5)
            killing = asyncio.create_task(w.kill_operator_after(writes, within=30))
            await w.wait(0.1)
            await w.apply(_buffer(podTemplateRef={"name": "unit"}, replicas=4))
            if await killing:
                await w.start_operator()
            await _says(w, "True", "FitsExistingCapacity")
            await w.wait(70)
            assert w.watchdog.claims_created == len(await w.claims()) == 4

    run_virtual(scenario())
