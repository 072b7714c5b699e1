"""What users see of the whole operator when machines break, age, vanish or never come."""

import pytest

from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodePool
from karpenter.base.clock import format_time
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge, strategic
from karpenter.testing.fakeprovider import FakeCloud
from karpenter.testing.manifests import deployment, disruption_budget, node_class, pool
from karpenter.testing.world import World, world

REPAIR = ("--feature-gates=NodeRepair=true",)
STAY = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
    for key in ("unreachable", "not-ready")
]
FAKE = "kwok.x-k8s.io/node"


def _apart(app: str) -> dict[str, object]:
    """Return an affinity that allows one pod of `app` per node."""
    selector = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}


async def _fleet(w: World, count: int, **pool_options: object) -> list[str]:
    """Bring up a pool with that many nodes, one pod each that stays whatever happens; return their names."""
    pool_options.setdefault("budgets", [{"nodes": "0"}])
    await w.apply([node_class(), pool(**pool_options)])  # type: ignore[arg-type]
    await w.apply(deployment("web", count, affinity=_apart("web"), tolerations=STAY))
    await w.until_replicas("web", count)
    return [node.name for node in await w.nodes()]


async def _die(w: World, node: str) -> None:
    """Let a node's kubelet fall silent, as a real one does with its machine."""
    await w.client.patch(Node, node, merge({"metadata": {"annotations": {FAKE: None}}}))
    silent = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "lastTransitionTime": format_time(w.clock.now()),
    }
    document = strategic({"status": {"conditions": [silent]}})
    await w.client.patch(Node, node, document, subresource="status")


async def _until_gone(w: World, node: str, *, within: float) -> None:
    async def gone() -> bool:
        return node not in [n.name for n in await w.nodes()]

    await w.until("the node is gone", gone, within=within)


@pytest.mark.parametrize("killed", [False, True], ids=["", "and the operator dies meanwhile"])
def test_a_dead_node_is_replaced_after_ten_minutes(killed: bool) -> None:
    """Its pods run elsewhere, though their budget allows no eviction; the other nodes are left alone."""

    async def scenario() -> None:
        async with world(arguments=REPAIR) as w:
            w.may_delete_pods = True
            nodes = await _fleet(w, 5)
            await w.apply(disruption_budget("web", maxUnavailable=0))
            await _die(w, nodes[0])
            await w.wait(590)
            assert nodes[0] in [n.name for n in await w.nodes()]
            if killed:
                assert await w.kill_operator_after(2, within=60)
                await w.start_operator()
            await _until_gone(w, nodes[0], within=180)
            await w.until_replicas("web", 5, within=60)
            after = [n.name for n in await w.nodes()]
            assert nodes[0] not in after
            assert set(nodes[1:]) <= set(after)
            assert w.watchdog.claims_created == 6

    run_virtual(scenario())


def test_when_many_nodes_die_together_none_is_replaced() -> None:
    """A network that is down is no reason to throw machines away; when it is back, all go on."""

    async def scenario() -> None:
        async with world(arguments=REPAIR) as w:
            nodes = await _fleet(w, 5)
            for node in nodes[:3]:
                await _die(w, node)
            await w.wait(1500)
            assert set(nodes) <= {n.name for n in await w.nodes()}
            assert not [c.name for c in await w.claims() if c.deleting]
            blocked = await w.events("NodeRepairBlocked")
            assert {e.involved_object.kind for e in blocked} == {"Node", "NodeClaim", "NodePool"}

    run_virtual(scenario())


def test_a_fleet_that_expires_is_renewed_and_every_pod_runs_again() -> None:
    """All nodes are of one age; each is ended once and for that reason, and the pods come back."""

    async def scenario() -> None:
        async with world() as w:
            nodes = await _fleet(w, 8, template={"expireAfter": "1h"})
            await w.wait(3600)
            await w.until_replicas("web", 8, within=300)
            after = {n.name for n in await w.nodes()}
            assert not after & set(nodes)
            assert w.watchdog.claims_created == 16

    run_virtual(scenario())


def test_a_machine_that_vanishes_is_replaced_and_its_claim_goes() -> None:
    """An interruption nobody told of: found by comparing with the cloud's list, within a few minutes."""

    async def scenario() -> None:
        cloud = FakeCloud()
        async with world(cloud=cloud) as w:
            nodes = await _fleet(w, 3)
            claim = next(c for c in await w.claims() if c.status.node_name == nodes[0])
            cloud.end(claim.status.provider_id)
            await _die(w, nodes[0])
            await _until_gone(w, nodes[0], within=250)
            await w.until_replicas("web", 3)
            assert claim.name not in [c.name for c in await w.claims()]

    run_virtual(scenario())


def test_machines_that_never_join_are_given_up_and_tried_again() -> None:
    """After a quarter of an hour each; its pool says that nodes fail to register, and later that they do."""

    async def scenario() -> None:
        cloud = FakeCloud()
        cloud.join_seconds = None
        async with world(cloud=cloud) as w:
            await w.apply([node_class(), pool(), deployment("web", 1)])
            await w.wait(2000)
            assert len(cloud.created) == 3
            assert len(cloud.deleted) == 2
            assert (await _health(w)) == ("False", "RegistrationFailed")
            cloud.join_seconds = 2.0
            await w.until_replicas("web", 1, within=1000)
            assert len(cloud.instances) == 1
            await w.apply(deployment("apart", 3, affinity=_apart("apart")))
            await w.until_replicas("apart", 3)
            assert (await _health(w))[0] == "True"

    run_virtual(scenario())


async def _health(w: World) -> tuple[str, str]:
    found = await w.client.get(NodePool, "default")
    return next((c.status, c.reason) for c in found.status.conditions if c.type == "NodeRegistrationHealthy")
