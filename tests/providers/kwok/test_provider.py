"""Simulated machines over an embedded API server: bought, booted after a delay, ended, found again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Node, Taint
from karpenter.apis.crds import load_crds
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.clock import LoopClock, format_time
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import (
    InsufficientCapacity,
    NodeClaimNotFound,
    NodeClassNotReady,
    ProviderContext,
)
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.kube.client import Client
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Cache
from karpenter.kube.patch import merge
from karpenter.model.instancetype import InstanceType
from karpenter.providers.kwok import KwokProvider
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.testing.builders import (
    a_node,
    a_nodeclaim,
    a_nodepool,
    an_instance_type,
    an_offering,
    some_instance_types,
)

READY = {"type": "Ready", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
UNREGISTERED = Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")


class Rig:
    """A provider over its own API server; `restart` gives a new one that remembers nothing."""

    def __init__(self, types: tuple[InstanceType, ...]) -> None:
        self.clock = LoopClock()
        self.kubernetes = EmbeddedCluster(clock=self.clock, rng=seeded(1), crds=load_crds())
        self.client = Client(self.kubernetes.transport())
        self._types = types
        self._tasks: list[asyncio.Task[None]] = []

    async def restart(self) -> None:
        await self.stop()
        cache = Cache(self.client, clock=self.clock, rng=seeded(2))
        context = ProviderContext(
            client=self.client,
            cache=cache,
            clock=self.clock,
            rng=seeded(3),
            metrics=Metrics(),
            settings={},
        )
        self.provider = KwokProvider(context, self._types)
        self._tasks = [asyncio.create_task(cache.run()), asyncio.create_task(self.provider.run())]
        await cache.wait_synced()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def node_class(self, name: str = "default", *, delay: str = "0s", ready: str = "True") -> None:
        kind = KwokNodeClass()
        await self.client.create(
            replace(
                kind,
                metadata=replace(kind.metadata, name=name),
                spec=replace(kind.spec, node_registration_delay=delay),
            )
        )
        patch = merge({"status": {"conditions": [{**READY, "status": ready, "message": "broken"}]}})
        await self.client.patch(KwokNodeClass, name, patch, subresource="status")
        await self.clock.sleep(0.1)

    async def claim(self, name: str = "claim", **fields: Any) -> NodeClaim:
        """Store a claim as the provisioner would."""
        fields.setdefault("requirements", [(labels.OS, "In", ["linux"])])
        built = a_nodeclaim(name, **fields)
        meta = replace(built.metadata, uid="", creation_timestamp=None, finalizers=[])
        return await self.client.create(replace(built, metadata=meta, status=NodeClaim().status))

    async def launch(self, claim: NodeClaim) -> NodeClaim:
        """Buy a machine for a claim and write down what came of it, as the lifecycle does."""
        launched = await self.provider.create(claim)
        condition = {
            "type": "Launched",
            "status": "True",
            "reason": "Launched",
            "message": "",
            "lastTransitionTime": format_time(self.clock.now()),
        }
        labelled = merge({"metadata": {"labels": launched.metadata.labels}})
        await self.client.patch(NodeClaim, claim.name, labelled)
        status = {
            "providerID": launched.status.provider_id,
            "capacity": launched.status.capacity,
            "allocatable": launched.status.allocatable,
            "conditions": [condition],
        }
        await self.client.patch(NodeClaim, claim.name, merge({"status": status}), subresource="status")
        return launched

    async def nodes(self) -> list[str]:
        return [node.name for node in await self.client.list(Node)]


@asynccontextmanager
async def rig(types: list[InstanceType] | None = None) -> AsyncIterator[Rig]:
    built = Rig(tuple(types or some_instance_types()))
    running = asyncio.create_task(built.kubernetes.run())
    try:
        await built.kubernetes.ready.wait()
        await built.restart()
        yield built
    finally:
        await built.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        built.kubernetes.close()


def test_a_machine_joins_with_what_its_type_has() -> None:
    """The Node has the type's capacity, its labels and price, kwok's marks and the unregistered taint."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class()
            claim = await env.claim(
                requirements=[(labels.CAPACITY_TYPE, "In", ["on-demand"])], requests={"cpu": "3"}
            )
            launched = await env.launch(claim)
            assert launched.status.provider_id == "kwok://claim"
            await env.clock.sleep(1)
            node = await env.client.get(Node, "claim")
            assert node.spec.provider_id == "kwok://claim"
            assert UNREGISTERED in node.spec.taints
            assert {key: str(node.status.capacity[key]) for key in ("cpu", "memory", "pods")} == {
                "cpu": "4",
                "memory": "16Gi",
                "pods": "110",
            }
            expected = {
                labels.INSTANCE_TYPE: "general-4",
                labels.ZONE: "zone-a",
                labels.CAPACITY_TYPE: "on-demand",
                labels.ARCH: "amd64",
                labels.OS: "linux",
                labels.NODEPOOL: "default",
                labels.KUBERNETES_HOSTNAME: "claim",
                "eks-node-viewer/instance-price": "0.280000",
                "kwok-partition": "a",
                "kwok.x-k8s.io/node": "fake",
            }
            assert expected.items() <= node.metadata.labels.items()
            assert node.metadata.annotations["kwok.x-k8s.io/node"] == "fake"

    run_virtual(scenario())


def test_creating_twice_is_creating_once() -> None:
    """The same claim always gives the same machine, before and after a restart, and one Node."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class()
            claim = await env.claim()
            first = await env.provider.create(claim)
            await env.restart()
            again = await env.launch(claim)
            assert (again.status, again.metadata.labels) == (first.status, first.metadata.labels)
            await env.provider.create(claim)
            await env.clock.sleep(5)
            assert await env.nodes() == ["claim"]

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("requirements", "requests", "bought"),
    [
        ([], {"cpu": "1"}, ("cheap", "zone-b")),
        ([("topology.kubernetes.io/zone", "In", ["zone-c"])], {}, ("cheap", "zone-c")),
        ([("topology.kubernetes.io/zone", "NotIn", ["zone-b"])], {}, ("cheap", "zone-c")),
        ([], {"cpu": "3"}, ("large-a", "zone-a")),
        ([("node.kubernetes.io/instance-type", "In", ["large-b"])], {}, ("large-b", "zone-a")),
        ([("example.com/disk", "In", ["fast"])], {}, ("large-b", "zone-a")),
        ([("example.com/team", "In", ["red"])], {}, ("cheap", "zone-b")),  # no type says otherwise
    ],
)
def test_the_cheapest_fitting_offering_is_bought(
    requirements: list[tuple[str, str, list[str]]], requests: dict[str, str], bought: tuple[str, str]
) -> None:
    """By price, then name, then zone, among what is available, allowed and large enough."""
    types = [
        an_instance_type(
            "cheap",
            cpu="2",
            labels={"example.com/disk": "slow"},
            offerings=[
                an_offering("zone-a", price=0.1, available=False),
                an_offering("zone-c", price=0.1),
                an_offering("zone-b", price=0.1),
            ],
        ),
        an_instance_type("large-b", offerings=[an_offering(price=1.0)], labels={"example.com/disk": "fast"}),
        an_instance_type("large-a", offerings=[an_offering(price=1.0)], labels={"example.com/disk": "slow"}),
    ]

    async def scenario() -> None:
        async with rig(types) as env:
            await env.node_class()
            every = requirements or [(labels.OS, "In", ["linux"])]
            launched = await env.provider.create(await env.claim(requirements=every, requests=requests))
            found = launched.metadata.labels
            assert (found[labels.INSTANCE_TYPE], found[labels.ZONE]) == bought

    run_virtual(scenario())


def test_an_offering_of_another_size_is_bought_and_joins_as_large() -> None:
    """What an offering overrides counts when it is bought, and is what the machine has."""
    large = replace(an_offering("zone-b", price=0.3), capacity_override={"cpu": 8000})
    types = [an_instance_type("mixed", cpu="4", offerings=[an_offering("zone-a", price=0.1), large])]

    async def scenario() -> None:
        async with rig(types) as env:
            await env.node_class()
            launched = await env.provider.create(await env.claim(requests={"cpu": "6"}))
            assert launched.metadata.labels[labels.ZONE] == "zone-b"
            assert launched.status.capacity["cpu"] == launched.status.allocatable["cpu"] == "8"

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("node_class", "requirements", "error", "message"),
    [
        (None, [], InsufficientCapacity, "nodeclass 'default' is not found"),
        ("False", [], NodeClassNotReady, "broken"),
        ("True", [(labels.ZONE, "In", ["mars"])], InsufficientCapacity, "no available offering.*'claim'"),
        ("True", [(labels.ARCH, "In", ["s390x"])], InsufficientCapacity, "no available offering"),
    ],
)
def test_what_cannot_be_bought(
    node_class: str | None, requirements: list[Any], error: type[Exception], message: str
) -> None:
    """Each cause has its own error, in words."""

    async def scenario() -> None:
        async with rig() as env:
            if node_class is not None:
                await env.node_class(ready=node_class)
            claim = await env.claim(requirements=requirements or [(labels.OS, "In", ["linux"])])
            with pytest.raises(error, match=message):
                await env.provider.create(claim)

    run_virtual(scenario())


def test_the_registration_delay_is_kept_over_a_restart() -> None:
    """The Node appears a minute after the launch, whoever is there to see to it then."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class(delay="60s")
            await env.launch(await env.claim())
            await env.clock.sleep(30)
            assert await env.nodes() == []
            await env.restart()
            await env.clock.sleep(28)
            assert await env.nodes() == []
            await env.clock.sleep(3)
            assert await env.nodes() == ["claim"]

    run_virtual(scenario())


def test_deleting_a_machine_that_has_not_registered() -> None:
    """Its Node goes, and the answer is that the instance is gone; again gives the same answer."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class()
            launched = await env.launch(await env.claim())
            await env.clock.sleep(1)
            assert await env.nodes() == ["claim"]
            for _ in range(2):
                with pytest.raises(NodeClaimNotFound, match="kwok://claim"):
                    await env.provider.delete(launched)
            await env.client.delete(NodeClaim, "claim")
            await env.clock.sleep(1)
            assert await env.nodes() == []

    run_virtual(scenario())


def test_deleting_leaves_a_node_under_management_to_its_finalizer() -> None:
    """Once the operator has taken the Node over, only it lets it go."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class()
            launched = await env.launch(await env.claim())
            await env.clock.sleep(1)
            managed = merge({"metadata": {"finalizers": [labels.TERMINATION_FINALIZER]}})
            await env.client.patch(Node, "claim", managed)
            await env.clock.sleep(1)
            with pytest.raises(NodeClaimNotFound):
                await env.provider.delete(launched)
            await env.clock.sleep(1)
            assert not (await env.client.get(Node, "claim")).deleting

    run_virtual(scenario())


def test_a_claim_deleted_while_its_machine_boots_gets_no_node() -> None:
    """Also when the operator was away at that moment."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class(delay="10s")
            await env.launch(await env.claim("one"))
            await env.client.delete(NodeClaim, "one")
            await env.launch(await env.claim("two"))
            await env.stop()
            await env.client.delete(NodeClaim, "two")
            await env.restart()
            await env.clock.sleep(30)
            assert await env.nodes() == []

    run_virtual(scenario())


def test_an_orphan_is_removed_and_other_nodes_are_not() -> None:
    """An unregistered Node whose claim has gone is removed; a foreign Node and one in use stay."""

    async def scenario() -> None:
        async with rig() as env:
            await env.client.create(a_node("orphan", taints=[UNREGISTERED]))
            await env.client.create(a_node("foreign"))
            await env.client.create(a_node("other-cloud", provider_id="x://y", taints=[UNREGISTERED]))
            in_use = a_node("in-use", taints=[UNREGISTERED])
            finalizers = replace(in_use.metadata, finalizers=[labels.TERMINATION_FINALIZER])
            await env.client.create(replace(in_use, metadata=finalizers))
            await env.clock.sleep(5)
            assert await env.nodes() == ["foreign", "in-use", "other-cloud"]

    run_virtual(scenario())


def test_get_and_list_find_booting_and_running_machines() -> None:
    """A launched claim counts before its Node is there; after registration only the Node does."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class(delay="20s")
            await env.launch(await env.claim("b"))
            await env.launch(await env.claim("a"))
            await env.claim("unlaunched")
            await env.clock.sleep(1)
            booting = [found.status.provider_id for found in await env.provider.list()]
            assert booting == ["kwok://a", "kwok://b"]
            assert (await env.provider.get("kwok://a")).name == "a"
            await env.clock.sleep(30)
            running = await env.provider.get("kwok://a")
            assert running.status.node_name == "a"
            assert running.metadata.labels[labels.INSTANCE_TYPE] == "general-2"
            assert str(running.status.capacity["cpu"]) == "2"
            assert [found.status.provider_id for found in await env.provider.list()] == booting
            registered = {**READY, "type": "Registered", "status": "True"}
            patch = merge({"status": {"conditions": [registered]}})
            await env.client.patch(NodeClaim, "a", patch, subresource="status")
            await env.client.delete(Node, "a")
            await env.clock.sleep(1)
            assert [found.status.provider_id for found in await env.provider.list()] == ["kwok://b"]
            for gone in ("kwok://a", "kwok://never", ""):
                with pytest.raises(NodeClaimNotFound):
                    await env.provider.get(gone)

    run_virtual(scenario())


def test_a_lost_node_comes_back_while_its_machine_boots() -> None:
    """A Node deleted before it registered is made again: the machine is still there."""

    async def scenario() -> None:
        async with rig() as env:
            await env.node_class()
            await env.launch(await env.claim())
            await env.clock.sleep(1)
            first = await env.client.get(Node, "claim")
            await env.client.delete(Node, "claim")
            await env.clock.sleep(1)
            assert (await env.client.get(Node, "claim")).metadata.uid != first.metadata.uid
            with pytest.raises(NotFound):
                await env.client.get(Node, "another")

    run_virtual(scenario())


def reserved_type(stock: int) -> InstanceType:
    """Return a type that a reservation of `stock` machines and on-demand offer."""
    id_label = {KwokProvider.reservation_label: "r-1"}
    reservation = an_offering("zone-a", labels.CAPACITY_RESERVED, 0.001, labels=id_label)
    return an_instance_type(offerings=[an_offering(), replace(reservation, stock=stock)])


def test_a_reservation_has_as_many_machines_as_it_says() -> None:
    """What is launched is taken off at once and after a restart, and comes back when the machine is gone."""

    async def left(env: Rig) -> int | None:
        (kind,) = await env.provider.instance_types(a_nodepool())
        return kind.offerings[1].stock

    async def scenario() -> None:
        async with rig([reserved_type(2)]) as env:
            await env.node_class()
            wanted = [(labels.CAPACITY_TYPE, "In", [labels.CAPACITY_RESERVED])]
            claims = [await env.claim(f"claim-{i}", requirements=wanted) for i in range(3)]
            bought = [await env.provider.create(claim) for claim in claims[:2]]
            assert [c.metadata.labels[KwokProvider.reservation_label] for c in bought] == ["r-1", "r-1"]
            assert await left(env) == 0
            with pytest.raises(InsufficientCapacity):
                await env.provider.create(claims[2])
            assert (await env.launch(claims[1])).status == bought[1].status  # repeated, not bought again
            await env.launch(claims[0])
            await env.clock.sleep(1)
            await env.restart()
            assert await left(env) == 0
            assert await env.provider.instance_types(a_nodepool()) is await env.provider.instance_types(
                a_nodepool()
            )
            await env.client.delete(NodeClaim, "claim-0")
            await env.clock.sleep(1)
            assert await left(env) == 1

    run_virtual(scenario())
