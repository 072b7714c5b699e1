"""What users see of a roll-out: no pod is without a place, nothing is bought twice, whatever dies when."""

import pytest

from karpenter.apis.annotations import REPLACE_BEFORE_EXPIRY
from karpenter.apis.conditions import is_true
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.workloads import Deployment
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.testing.fakeprovider import FakeCloud
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import World, world

NEW_LABEL = {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}}


def _budget(app: str, least: int) -> dict[str, object]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
    }


def _apart(app: str) -> dict[str, object]:
    selector = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}


async def _spread_out(w: World, nodes: int, *budgets: dict[str, object], after: str = "Never") -> None:
    """Run a Deployment with one pod a node."""
    await w.apply([node_class(), pool(consolidate_after=after, budgets=budgets or [{"nodes": "100%"}])])
    await w.apply([deployment("web", nodes, affinity=_apart("web")), _budget("web", nodes - 1)])
    await w.until_replicas("web", nodes)
    await w.wait(30)


async def _rolled_out(w: World, old: set[str], *, within: float = 1800.0) -> None:
    async def holds() -> bool:
        return not old & {c.name for c in await w.claims()} and not await w.trouble()

    await w.until("all old nodes are replaced", holds, within=within)


def test_nodes_that_will_expire_are_replaced_one_after_the_other_before() -> None:
    """With the pool's annotation: within its budget, the new node first, pods within theirs; none expires."""

    async def scenario() -> None:
        async with world() as w:
            aging = pool(budgets=[{"nodes": "1"}], template={"expireAfter": "4h"}, consolidate_after="Never")
            aging["metadata"]["annotations"] = {REPLACE_BEFORE_EXPIRY: "1h"}
            await w.apply([node_class(), aging, deployment("web", 4, affinity=_apart("web"))])
            await w.until_replicas("web", 4)
            old = {c.name for c in await w.claims()}
            await w.wait(3 * 3600 - 60)
            assert {c.name for c in await w.claims()} == old
            for _ in range(120):
                await w.wait(20)
                claims = await w.claims()
                assert sum(is_true(c.status.conditions, "DisruptionReason") for c in claims) <= 1
                if not old & {c.name for c in claims}:
                    break
            assert not old & {c.name for c in claims}
            await w.until_replicas("web", 4)
            assert w.watchdog.claims_created == 8

    run_virtual(scenario())


def test_a_roll_out_keeps_pods_running() -> None:
    """All nodes are replaced within the pool's budget; never are fewer pods ready than their budget says."""

    async def scenario() -> None:
        async with world() as w:
            await _spread_out(w, 4, {"nodes": "2"})
            old = {c.name for c in await w.claims()}
            await w.client.patch(NodePool, "default", merge(NEW_LABEL))
            for _ in range(3600):
                claims = await w.claims()
                leaving = [c for c in claims if is_true(c.status.conditions, "DisruptionReason")]
                assert len(leaving) <= 2
                web = await w.client.get(Deployment, "web", "default")
                assert web.status.available_replicas >= 3
                if not old & {c.name for c in claims}:
                    break
                await w.wait(0.5)
            await _rolled_out(w, old)
            labels = [n.metadata.labels.get("generation") for n in await w.nodes()]
            assert labels == ["two"] * 4
            assert w.watchdog.claims_created == 8

    run_virtual(scenario())


def test_roll_out_and_scale_down_at_once() -> None:
    """Nodes that become empty while others are replaced go too; in the end nothing is left over."""

    async def scenario() -> None:
        async with world() as w:
            await _spread_out(w, 6, after="5s")
            await w.apply(_budget("web", 2))
            old = {c.name for c in await w.claims()}
            await w.client.patch(NodePool, "default", merge(NEW_LABEL))
            await w.scale("web", 3)
            await _rolled_out(w, old)
            assert len(await w.claims()) == 3

    run_virtual(scenario())


async def _crash(after: int, *, fake: bool) -> bool:
    """Live through one crash in a roll-out; tell whether there were so many writes."""
    cloud = FakeCloud() if fake else None
    async with world(seed=after, cloud=cloud) as w:
        await _spread_out(w, 2)
        old = {c.name for c in await w.claims()}
        await w.client.patch(NodePool, "default", merge(NEW_LABEL))
        happened = await w.kill_operator_after(after, within=60.0)
        if happened:
            await w.wait(1.0)
            await w.start_operator()
        await _rolled_out(w, old)
        assert not [n.name for n in await w.nodes() if n.spec.taints]
        assert w.watchdog.claims_created == 4, "a machine was bought twice"
        return happened


@pytest.mark.parametrize("fake", [False, True])
def test_a_crash_in_a_roll_out_buys_nothing_twice(fake: bool) -> None:
    """A few crash points; whoever comes next goes on with the replacements that are there."""
    for after in (3, 9, 15, 21, 27):
        run_virtual(_crash(after, fake=fake))


@pytest.mark.slow
@pytest.mark.parametrize("fake", [False, True])
def test_a_crash_after_any_write_of_a_roll_out_buys_nothing_twice(fake: bool) -> None:
    """Every crash point there is."""
    after = 1
    while run_virtual(_crash(after, fake=fake)):
        after += 1
    assert after > 30


def test_a_bad_connection_delays_a_roll_out_and_no_more() -> None:
    """Lost requests and answers: all nodes are replaced in the end, none is left behind."""

    async def scenario() -> None:
        async with world(seed=5) as w:
            await _spread_out(w, 3)
            old = {c.name for c in await w.claims()}
            w.faults.lose_request = w.faults.lose_answer = w.faults.refuse = 0.05
            await w.client.patch(NodePool, "default", merge(NEW_LABEL))
            await w.wait(300)
            w.faults.lose_request = w.faults.lose_answer = w.faults.refuse = 0.0
            await _rolled_out(w, old)
            assert len(await w.claims()) == 3

    run_virtual(scenario())


def test_a_user_who_deletes_the_old_node_meanwhile() -> None:
    """The command goes on without it, its replacement is used, and nothing hangs."""

    async def scenario() -> None:
        async with world() as w:
            await _spread_out(w, 2)
            old = {c.name for c in await w.claims()}
            await w.client.patch(NodePool, "default", merge(NEW_LABEL))

            async def begun() -> bool:
                return len(await w.claims()) > 2

            await w.until("replacements are created", begun)
            await w.client.delete(NodeClaim, min(old))
            await _rolled_out(w, old)
            assert len(await w.claims()) == 2

    run_virtual(scenario())
