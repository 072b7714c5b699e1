"""What users see when a cluster has more nodes than its pods need: it gets cheaper, then rests."""

import pytest

from karpenter.apis.core import Node, Taint
from karpenter.apis.workloads import Deployment
from karpenter.base.virtualtime import run_virtual
from karpenter.disruption.memory import gathered
from karpenter.kube.patch import merge
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import World, world

KEEP_OFF = Taint("example.com/keep-off", "", "NoExecute")


async def _thinned_out(w: World, *, after: str = "5s") -> None:
    """Have six nodes with two pods each, then take ten of the twelve pods away."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    large = [{"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]}]
    await w.apply([node_class(), pool(consolidate_after=after, requirements=large)])
    await w.apply(deployment("web", 12, cpu="1500m", topologySpreadConstraints=[spread]))
    await w.until_replicas("web", 12)
    await w.scale("web", 4)


async def _ledger_was_kept(w: World, *, kept: bool) -> None:
    """See whether nodes remember what was moved to them, unless that is off; moves are counted anyway."""
    remembered = gathered(row for row in w.operator.cluster.nodes())
    assert bool(remembered) is kept
    if kept:
        (web,) = {o.uid for pod in await w.pods("web") for o in pod.metadata.owner_references}
        assert set(remembered) == {web}
        assert {moved.pods for moved in remembered[web].values()} == {4}
    value = w.operator.metrics.registry.get_sample_value
    prefix = "karpenter_voluntary_disruption_"
    counted = {
        name: value(f"{prefix}{name}_total", {"reason": "underutilized"}) or 0.0
        for name in ("moved_pods", "savings_dollars_per_hour", "restart_cost_dollars")
    }
    assert counted["moved_pods"] >= 1
    assert counted["savings_dollars_per_hour"] > 0
    assert (counted["restart_cost_dollars"] > 0) is kept


@pytest.mark.parametrize("search", ["sets", "upstream"])
def test_half_empty_nodes_are_merged(search: str) -> None:
    """Four pods end on two nodes; all of them run, and then nothing moves any more."""

    async def scenario() -> None:
        async with world(arguments=(f"--consolidation-search={search}",)) as w:
            await _thinned_out(w)

            async def merged() -> bool:
                return len(await w.claims()) == 2 and not await w.trouble()

            await w.until("two nodes are left", merged, within=900)
            await _ledger_was_kept(w, kept=search == "sets")
            web = await w.client.get(Deployment, "web", "default")
            assert web.status.available_replicas == 4
            await w.wait(60)
            names = {p.name for p in await w.pods("web")}
            bought = w.watchdog.claims_created
            await w.wait(1800)
            assert {p.name for p in await w.pods("web")} == names
            assert w.watchdog.claims_created == bought

    run_virtual(scenario())


def test_an_operator_killed_while_consolidating_is_followed_by_one_that_finishes() -> None:
    """Killed every twenty seconds for a while: no pod is lost, no taint stays, the end is the same."""

    async def scenario() -> None:
        async with world() as w:
            await _thinned_out(w)
            for pause in (17.0, 18.5, 21.0, 16.2):
                await w.wait(pause)
                await w.restart_operator()

            async def merged() -> bool:
                return len(await w.claims()) == 2 and not await w.trouble()

            await w.until("two nodes are left", merged, within=900)
            assert not [n.name for n in await w.nodes() if n.spec.taints]

    run_virtual(scenario())


@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized"])
def test_nodes_that_turn_their_pods_away_do_not_pile_up(policy: str) -> None:
    """Somebody taints every new node: machines come and go for the pods, but only a few at a time."""

    async def scenario() -> None:
        async with world() as w:
            made = pool(consolidate_after="30s")
            made["spec"]["disruption"]["consolidationPolicy"] = policy
            await w.apply([node_class(), made, deployment("web", 10)])
            most = 0
            for _ in range(30):
                for node in await w.nodes():
                    if not node.deleting and not any(t.key == KEEP_OFF.key for t in node.spec.taints):
                        taints = merge({"spec": {"taints": [*node.spec.taints, KEEP_OFF]}})
                        await w.client.patch(Node, node.name, taints)
                await w.wait(15)
                most = max(most, len(await w.claims()))
            assert most <= 12, f"{most} machines at once"
            for node in await w.nodes():
                await w.client.patch(Node, node.name, merge({"spec": {"taints": []}}))
            await w.until_replicas("web", 10, within=900)

    run_virtual(scenario())
