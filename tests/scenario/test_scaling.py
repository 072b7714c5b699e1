"""What users see of the whole operator: pods come and go, and machines follow, in virtual time."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import InsufficientCapacity
from karpenter.kube.patch import merge
from karpenter.testing.fakeprovider import FakeCloud
from karpenter.testing.manifests import daemon_set, deployment, disruption_budget, node_class, pool
from karpenter.testing.world import world

ZONE = "topology.kubernetes.io/zone"
ARCH = "kubernetes.io/arch"
CAPACITY_TYPE = "karpenter.sh/capacity-type"


def virtual(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine as a test, in virtual time."""

    @wraps(scenario)
    def test(*args: Any, **kwargs: Any) -> None:
        run_virtual(scenario(*args, **kwargs))

    return test


def _required(expression: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@virtual
async def test_the_tutorial_scales_up_and_back_to_nothing() -> None:
    """0 → 3 → 30 pods are running within seconds; at 0 no machine is left within a minute."""
    async with world(catalogue="ec2") as w:
        await w.apply([node_class(), pool(), deployment("scaleup")])
        await w.scale("scaleup", 3)
        assert await w.until_replicas("scaleup", 3) < 10
        await w.scale("scaleup", 30)
        assert await w.until_replicas("scaleup", 30) < 10
        await w.scale("scaleup", 0)
        assert await w.until_replicas("scaleup", 0) < 60
        assert await w.claims() == []


@virtual
async def test_nothing_is_bought_twice() -> None:
    """One scale-up in calm creates as many claims as are there in the end."""
    async with world() as w:
        await w.apply([node_class(), pool(), deployment("web", 50)])
        await w.until_replicas("web", 50)
        assert w.watchdog.claims_created == len(await w.claims())


@pytest.mark.parametrize(
    ("spec", "label", "allowed"),
    [
        ({"nodeSelector": {ARCH: "arm64"}}, ARCH, {"arm64"}),
        (
            {"nodeSelector": {"karpenter.sh/capacity-type": "on-demand"}},
            "karpenter.sh/capacity-type",
            {"on-demand"},
        ),
        (
            {"affinity": _required({"key": ZONE, "operator": "NotIn", "values": ["test-zone-a"]})},
            ZONE,
            {"test-zone-b", "test-zone-c", "test-zone-d"},
        ),
        ({"nodeSelector": {"team": "blue"}}, "team", {"blue"}),
    ],
)
@virtual
async def test_pods_get_the_nodes_they_ask_for(spec: dict[str, Any], label: str, allowed: set[str]) -> None:
    """nodeSelector and node affinity decide which machines are bought."""
    async with world() as w:
        await w.apply([node_class(), pool(labels={"team": "blue"}), deployment("web", 3, **spec)])
        await w.until_replicas("web", 3)
        assert {n.metadata.labels[label] for n in await w.nodes()} <= allowed


@virtual
async def test_tainted_pools_take_only_pods_that_tolerate() -> None:
    """A pod that tolerates nothing goes to the plain pool, one that asks for the tainted one goes there."""
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    async with world() as w:
        await w.apply([node_class(), pool("plain"), pool("gpu", weight=50, template={"taints": [taint]})])
        wants = {"karpenter.sh/nodepool": "gpu"}
        tolerates = [{"key": "gpu", "operator": "Exists"}]
        special: dict[str, Any] = {"nodeSelector": wants, "tolerations": tolerates}
        await w.apply([deployment("web", 2), deployment("ai", 2, **special)])
        await w.until_replicas("web", 2)
        await w.until_replicas("ai", 2)
        pools = {n.name: n.metadata.labels["karpenter.sh/nodepool"] for n in await w.nodes()}
        assert {pools[p.spec.node_name] for p in await w.pods("web")} == {"plain"}
        assert {pools[p.spec.node_name] for p in await w.pods("ai")} == {"gpu"}


@virtual
async def test_the_heavier_pool_is_used_first() -> None:
    """Weight decides between pools that could both serve."""
    async with world() as w:
        await w.apply([node_class(), pool("a", weight=10), pool("b", weight=90), pool("c")])
        await w.apply(deployment("web", 5))
        await w.until_replicas("web", 5)
        assert {n.metadata.labels["karpenter.sh/nodepool"] for n in await w.nodes()} == {"b"}


@pytest.mark.parametrize("limits", [{"cpu": "20"}, {"nodes": 2, "cpu": "50"}, {"memory": "40Gi"}])
@virtual
async def test_limits_hold_at_every_moment(limits: dict[str, Any]) -> None:
    """However many pods wait, no pool ever passes its limits (the watchdog looks at each write)."""
    async with world() as w:
        await w.apply([node_class(), pool(limits=limits)])
        for number in range(4):
            await w.apply(deployment(f"web-{number}", 20))
            await w.wait(7)
        await w.restart_operator()
        await w.wait(60)
        running = [p for p in await w.pods() if p.spec.node_name]
        assert 0 < len(running) < 80
        assert await w.events("FailedScheduling")


@virtual
async def test_daemons_have_room_on_every_new_node() -> None:
    """A DaemonSet's requests are part of each machine's size: all its pods run, nothing is preempted."""
    async with world() as w:
        await w.apply([node_class(), pool(), daemon_set("agent", cpu="500m", memory="512Mi")])
        await w.apply(deployment("web", 20))
        await w.until_replicas("web", 20)
        nodes = {n.name for n in await w.nodes()}
        assert {p.spec.node_name for p in await w.pods("agent")} == nodes


@virtual
async def test_a_pool_without_its_node_class_waits_for_it() -> None:
    """Without a NodeClass nothing is bought and the pod is told; it recovers when the class appears."""
    async with world() as w:
        await w.apply([pool(), deployment("web", 1)])
        await w.wait(60)
        assert await w.claims() == []
        ready = {c.type: c.status for c in (await w.client.get(NodePool, "default")).status.conditions}
        assert ready["Ready"] == "False"
        await w.apply(node_class())
        assert await w.until_replicas("web", 1) < 60


@virtual
async def test_pods_that_need_spread_over_zones_are_refused_with_a_reason() -> None:
    """What the solver does not support gives an event and no node, never a wrong node."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    async with world() as w:
        await w.apply([node_class(), pool(), deployment("web", 3, topologySpreadConstraints=[spread])])
        await w.wait(40)
        if not await w.claims():
            assert any("topologySpreadConstraints" in e.message for e in await w.events("FailedScheduling"))
            return
        await w.until_replicas("web", 3)
        zones = {n.name: n.metadata.labels[ZONE] for n in await w.nodes()}
        assert len({zones[p.spec.node_name] for p in await w.pods("web")}) == 3


@virtual
async def test_machines_that_never_join_are_given_up_after_fifteen_minutes() -> None:
    """A claim that does not register in 15 min is deleted, and its pods get another machine."""
    cloud = FakeCloud()
    cloud.join_seconds = None
    async with world(cloud=cloud) as w:
        await w.apply([node_class(), pool(), deployment("web", 1)])
        await w.wait(30)
        (first,) = await w.claims()
        await w.wait(14 * 60)
        assert [c.name for c in await w.claims()] == [first.name]
        await w.wait(60)
        assert first.name not in {c.name for c in await w.claims()}
        cloud.join_seconds = 2.0
        await w.until_replicas("web", 1)
        (second,) = await w.claims()
        assert second.name != first.name
        assert list(cloud.instances) == [second.status.provider_id]


@virtual
async def test_when_a_type_is_sold_out_another_is_bought() -> None:
    """InsufficientCapacity ends the claim, and the pods get a new one at once."""
    cloud = FakeCloud()
    cloud.next_errors = [InsufficientCapacity("sold out"), InsufficientCapacity("sold out")]
    async with world(cloud=cloud) as w:
        await w.apply([node_class(), pool(), deployment("web", 3)])
        assert await w.until_replicas("web", 3) < 60
        assert len(cloud.created) == len(await w.claims())
        assert w.watchdog.claims_created == len(await w.claims()) + 2


@virtual
async def test_a_claim_that_is_deleted_by_hand_is_replaced() -> None:
    """Deleting a NodeClaim drains its node; its pods get a new machine."""
    async with world() as w:
        await w.apply([node_class(), pool(), deployment("web", 3)])
        await w.until_replicas("web", 3)
        (old,) = await w.claims()
        await w.client.delete(NodeClaim, old.name)
        await w.wait(5)
        await w.until_replicas("web", 3)
        assert old.name not in {c.name for c in await w.claims()}


@virtual
async def test_expired_nodes_are_replaced() -> None:
    """expireAfter ends a machine that old; its pods run on another."""
    async with world() as w:
        await w.apply([node_class(), pool(template={"expireAfter": "10m"}), deployment("web", 2)])
        await w.until_replicas("web", 2)
        (old,) = await w.claims()
        await w.wait(10 * 60 - 30)
        assert [c.name for c in await w.claims()] == [old.name]
        await w.wait(60)
        await w.until_replicas("web", 2)
        assert old.name not in {c.name for c in await w.claims()}


@virtual
async def test_scaling_may_be_changed_at_once() -> None:
    """Pods that go before their machine is there leave no machine behind."""
    async with world() as w:
        await w.apply([node_class(delay="20s"), pool(), deployment("web", 30)])
        await w.wait(8)
        await w.scale("web", 0)
        await w.until_replicas("web", 0, within=180)
        assert await w.claims() == []


@virtual
async def test_pools_patched_meanwhile_are_used_as_they_are() -> None:
    """A limit that is raised lets waiting pods run."""
    async with world() as w:
        await w.apply([node_class(), pool(limits={"cpu": "0"}), deployment("web", 2)])
        await w.wait(30)
        assert await w.claims() == []
        await w.client.patch(NodePool, "default", merge({"spec": {"limits": {"cpu": "100"}}}))
        assert await w.until_replicas("web", 2) < 60


@virtual
async def test_a_budgeted_app_is_drained_at_its_pace() -> None:
    """A node's deletion waits for a PodDisruptionBudget: never fewer pods ready than it wants."""
    async with world() as w:
        await w.apply([node_class(), pool(), deployment("web", 3), disruption_budget("web", minAvailable=2)])
        await w.until_replicas("web", 3)
        (old,) = await w.claims()
        await w.client.delete(NodeClaim, old.name)
        for _ in range(80):
            await w.wait(0.5)
            assert sum(p.status.phase == "Running" and not p.deleting for p in await w.pods("web")) >= 2
        await w.until_replicas("web", 3)
        assert old.name not in {c.name for c in await w.claims()}
