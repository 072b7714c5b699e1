"""What users see of the whole operator when machines go away: budgets, protection, taints, deaths."""

import asyncio

import pytest

from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import json_patch
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import World, world


def _apart(app: str) -> dict[str, object]:
    """Return an affinity that allows one pod of `app` per node."""
    selector = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}


async def _until_claims(w: World, most: int, *, within: float = 300.0) -> float:
    async def holds() -> bool:
        return len(await w.claims()) <= most

    return await w.until(f"at most {most} claims are left", holds, within=within)


@pytest.mark.parametrize("seconds", [30, 300])
def test_empty_nodes_stay_for_consolidate_after(seconds: int) -> None:
    """An empty node stays at least consolidateAfter, and goes soon after that."""

    async def scenario() -> None:
        async with world() as w:
            await w.apply([node_class(), pool(consolidate_after=f"{seconds}s"), deployment("web", 2)])
            await w.until_replicas("web", 2)
            await w.scale("web", 0)
            await w.wait(seconds - 5)
            assert len(await w.claims()) == 1
            assert await _until_claims(w, 0) < 60

    run_virtual(scenario())


def test_a_budget_of_nothing_keeps_empty_nodes() -> None:
    """With `nodes: 0` no node goes by itself, however long it is empty."""

    async def scenario() -> None:
        async with world() as w:
            await w.apply([node_class(), pool(budgets=[{"nodes": "0"}]), deployment("web", 2)])
            await w.until_replicas("web", 2)
            await w.scale("web", 0)
            await w.wait(1800)
            assert len(await w.claims()) == 1

    run_virtual(scenario())


def test_a_budget_holds_while_nodes_empty() -> None:
    """With `nodes: 1` never more than one of a pool's nodes is being deleted."""

    async def scenario() -> None:
        async with world() as w:
            await w.apply([node_class(), pool(budgets=[{"nodes": "1"}])])
            await w.apply(deployment("web", 4, affinity=_apart("web")))
            await w.wait(30)
            assert len(await w.claims()) == 4
            await w.scale("web", 0)
            while await w.claims():
                await w.wait(0.1)
                assert sum(c.deleting for c in await w.claims()) <= 1
                assert w.clock.monotonic() < 1800

    run_virtual(scenario())


def test_protected_pods_keep_their_node() -> None:
    """A node with a do-not-disrupt pod is not given back while that pod lives, even when nearly empty."""

    async def scenario() -> None:
        keep = {"karpenter.sh/do-not-disrupt": "true"}
        async with world() as w:
            await w.apply([node_class(), pool(), deployment("keep", 1, annotations=keep, cpu="100m")])
            await w.apply(deployment("web", 6))
            await w.until_replicas("web", 6)
            (pod,) = await w.pods("keep")
            await w.scale("web", 0)
            await w.wait(900)
            assert [p.name for p in await w.pods("keep")] == [pod.name]
            assert pod.spec.node_name in {n.name for n in await w.nodes()}
            await w.scale("keep", 0)
            await _until_claims(w, 0)

    run_virtual(scenario())


def test_startup_taints_hold_back_pods_but_buy_nothing_more() -> None:
    """Pods wait until a startup taint is taken away; meanwhile no second machine is bought."""

    async def scenario() -> None:
        taint = {"key": "example.com/booting", "effect": "NoSchedule"}
        async with world() as w:
            await w.apply([node_class(), pool(template={"startupTaints": [taint]}), deployment("web", 3)])
            await w.wait(120)
            (node,) = await w.nodes()
            assert not any(p.spec.node_name for p in await w.pods())
            at = next(i for i, t in enumerate(node.spec.taints) if t.key == taint["key"])
            await w.client.patch(
                Node, node.name, json_patch([{"op": "remove", "path": f"/spec/taints/{at}"}])
            )
            await w.until_replicas("web", 3)
            assert w.watchdog.claims_created == 1

    run_virtual(scenario())


def test_a_node_that_is_deleted_by_hand_is_drained_and_replaced() -> None:
    """`kubectl delete node` ends the machine too; pods that are left get another."""

    async def scenario() -> None:
        async with world() as w:
            await w.apply([node_class(), pool(), deployment("web", 3)])
            await w.until_replicas("web", 3)
            (node,) = await w.nodes()
            await w.client.delete(Node, node.name)
            await w.wait(5)
            await w.until_replicas("web", 3)
            assert node.name not in {n.name for n in await w.nodes()}

    run_virtual(scenario())


def test_deletions_go_on_after_a_kill() -> None:
    """An operator killed in the middle of a drain is followed by one that finishes it."""

    async def scenario() -> None:
        for moment in (0.0, 0.01, 0.5, 1.1, 2.0):
            async with world() as w:
                await w.apply([node_class(), pool(), deployment("web", 3, terminationGracePeriodSeconds=5)])
                await w.until_replicas("web", 3)
                (old,) = await w.claims()
                await w.client.delete(NodeClaim, old.name)
                await asyncio.sleep(moment)
                await w.restart_operator()
                await w.wait(10)
                await w.until_replicas("web", 3)
                assert old.name not in {c.name for c in await w.claims()}

    run_virtual(scenario())


def test_a_cluster_at_rest_costs_nothing() -> None:
    """In an hour without change nothing is written but the Lease, and events stay few."""

    async def scenario() -> None:
        async with world() as w:
            await w.apply([node_class(), pool(), deployment("web", 20)])
            await w.until_replicas("web", 20)
            await w.wait(60)
            before = w.watchdog.writes.copy()
            await w.wait(3600)
            written = w.watchdog.writes - before
            del written["leases.coordination.k8s.io"]
            events = written.pop("events", 0)
            assert events <= 60
            assert not written

    run_virtual(scenario())
