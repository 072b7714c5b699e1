"""Node repair: what is broken is replaced, at once and forcefully, unless too much is broken."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.core import Node, NodeStatus, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import Condition
from karpenter.base.clock import format_time
from karpenter.base.timestamps import parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import RepairPolicy
from karpenter.controllers import node, nodeclaim, nodepool, provisioning
from karpenter.controllers.context import Settings
from karpenter.controllers.node.health import is_counted, snake_case, worst
from karpenter.kube.patch import merge, strategic
from karpenter.testing.builders import a_node, a_nodepool, some_pods
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import FakeCloud

DISK, NET = RepairPolicy("BadDisk", "True", 600.0), RepairPolicy("NetworkUp", "False", 1800.0)
POLICIES = (DISK, NET)
DEADLINE = known.TERMINATION_TIMESTAMP


@asynccontextmanager
async def hospital(
    nodes: int = 1, *, gate: bool = True, policies: Sequence[RepairPolicy] = POLICIES, **pool: object
) -> AsyncIterator[tuple[Environment, list[NodeClaim]]]:
    """Run an operator that repairs, with that many nodes of one pool, each with a pod."""
    cloud = FakeCloud()
    cloud.repair_policies = list(policies)
    rooms = (provisioning, nodeclaim, nodepool, node)
    settings = Settings(feature_gates={"NodeRepair": gate})
    async with environment(cloud=cloud, rooms=rooms, settings=settings) as env:
        await env.create(a_nodepool(**pool))  # type: ignore[arg-type]
        for number in range(nodes):
            pod = some_pods(1, f"pod-{number}", cpu="3", labels={"app": "web"})
            await env.expect_scheduled(await env.create_all(pod))
        claims = await env.expect_claims(nodes)
        for claim in claims:
            await env.expect_condition(claim.name, "Initialized")
        yield env, await env.claims()


async def _fall_ill(env: Environment, claim: NodeClaim, type: str = "BadDisk", status: str = "True") -> None:
    condition = {
        "type": type,
        "status": status,
        "reason": "Test",
        "lastTransitionTime": format_time(env.clock.now()),
    }
    await env.client.patch(
        Node, claim.status.node_name, strategic({"status": {"conditions": [condition]}}), subresource="status"
    )


async def _ending(env: Environment) -> list[str]:
    return [claim.name for claim in await env.claims() if claim.deleting]


def _ill(name: str = "n", **since: float) -> Node:
    """Return a node with conditions `BadDisk` or `NetworkUp` that call for a repair since then."""
    status = {"BadDisk": "True", "NetworkUp": "False"}
    found = [
        Condition(type=type, status=status[type], last_transition_time=format_time(at))
        for type, at in since.items()
    ]
    return replace(a_node(name), status=NodeStatus(conditions=found))


def test_an_unhealthy_node_is_replaced_when_its_toleration_is_over() -> None:
    """Not before; its claim's deadline is now, it is counted and told, and its pods get another node."""

    async def scenario() -> None:
        async with hospital() as (env, [claim]):
            await _fall_ill(env, claim)
            await env.wait(590)
            assert not await _ending(env)
            await env.wait(15)
            found = await env.claims()
            assert claim.name not in [c.name for c in found if not c.deleting]
            event = await env.expect_event("NodeRepair")
            assert "Condition BadDisk has been True for 10m0s" in event.message
            reason = {
                "reason": "unhealthy",
                "nodepool": "default",
                "capacity_type": "spot",
                "consolidation_policy": "",
                "termination_mode": "graceful",
            }
            assert env.metric("karpenter_nodeclaims_disrupted_total", **reason) == 1
            assert env.metric("karpenter_pods_disruption_initiated_total", **reason) == 1
            repaired = {
                "condition": "bad_disk",
                "nodepool": "default",
                "capacity_type": "spot",
                "image_id": "image-1",
            }
            assert env.metric("karpenter_nodeclaims_unhealthy_disrupted_total", **repaired) == 1

    run_virtual(scenario())


def test_a_node_that_recovers_in_time_is_kept() -> None:
    """The toleration begins anew with each transition."""

    async def scenario() -> None:
        async with hospital() as (env, [claim]):
            await _fall_ill(env, claim)
            await env.wait(500)
            await _fall_ill(env, claim, status="False")
            await env.wait(60)
            await _fall_ill(env, claim)
            await env.wait(550)
            assert not await _ending(env)
            await env.wait(60)
            assert claim.name not in [c.name for c in await env.claims() if not c.deleting]

    run_virtual(scenario())


def test_a_repair_ignores_do_not_disrupt_budgets_and_grace_periods() -> None:
    """Pods that must not be disrupted go within the minute though the pool allows an hour, budgets none."""

    async def scenario() -> None:
        async with hospital(termination_grace_period="1h") as (env, [claim]):
            none = {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
            await env.client.patch(NodePool, "default", merge(none))
            pod = next(p for p in await env.client.list(Pod) if p.spec.node_name)
            note = merge({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})
            await env.client.patch(Pod, pod.name, note, namespace=pod.namespace)
            await _fall_ill(env, claim)
            await env.wait(660)
            assert claim.status.node_name not in [n.name for n in await env.nodes()]
            assert pod.key not in [p.key for p in await env.client.list(Pod)]

    run_virtual(scenario())


@pytest.mark.parametrize("past", [True, False], ids=["over already", "still to come"])
def test_a_deadline_that_is_over_is_kept(past: bool) -> None:
    """A repair brings a deadline forward to now; one in the past stays as it is."""

    async def scenario() -> None:
        async with hospital() as (env, [claim]):
            await env.operator.kill()
            began = env.clock.now()
            before = format_time(began - 3600 if past else began + 36000)
            change = {"metadata": {"annotations": {DEADLINE: before}, "finalizers": ["example.com/hold"]}}
            await env.client.patch(NodeClaim, claim.name, merge(change))
            await env.restart()
            await _fall_ill(env, claim)
            await env.wait(620)
            after = (await env.client.get(NodeClaim, claim.name)).metadata.annotations[DEADLINE]
            if past:
                assert after == before
            else:
                assert parse_time(after) == pytest.approx(began + 600, abs=15)

    run_virtual(scenario())


def test_a_node_that_was_ill_before_its_claim_knew_of_it_is_repaired() -> None:
    """News may come in any order: the claim may learn of its machine after the node's kubelet complained."""

    async def scenario() -> None:
        async with hospital(0) as (env, _):
            env.cloud.create_seconds, env.cloud.join_seconds = 20.0, None
            await env.create_all(some_pods(1))
            (claim,) = await env.expect_claims(1)
            since = format_time(env.clock.now() - 3600)
            broken = Condition(type="BadDisk", status="True", last_transition_time=since)
            ill = replace(a_node("ill", provider_id=f"fake://{claim.metadata.uid}"))
            made = await env.create(replace(ill, status=NodeStatus()))
            document = {"status": {"conditions": [msgspec.to_builtins(broken)]}}
            await env.client.patch(Node, made.name, strategic(document), subresource="status")
            await env.wait(10)
            assert not await _ending(env)
            await env.wait(30)
            assert claim.name not in [c.name for c in await env.claims() if not c.deleting]

    run_virtual(scenario())


def test_a_closed_gate_or_a_cloud_without_policies_repairs_nothing() -> None:
    """Repair is opt-in."""

    async def scenario(gate: bool, policies: Sequence[RepairPolicy]) -> None:
        async with hospital(gate=gate, policies=policies) as (env, [claim]):
            await _fall_ill(env, claim)
            await env.wait(1000)
            assert not await _ending(env)

    run_virtual(scenario(False, POLICIES))
    run_virtual(scenario(True, ()))


def test_repair_stops_when_more_than_a_fifth_of_a_pool_is_unhealthy() -> None:
    """Of six nodes two may be repaired, of three ill ones none is; node, claim and pool say why."""

    async def scenario() -> None:
        async with hospital(6) as (env, claims):
            for claim in claims[:3]:
                await _fall_ill(env, claim)
            await env.wait(620)
            assert not await _ending(env)
            told = await env.events("NodeRepairBlocked")
            assert sorted({e.involved_object.kind for e in told}) == ["Node", "NodeClaim", "NodePool"]
            assert all(
                e.message.startswith("more than 20% nodes are unhealthy in the nodepool") for e in told
            )
            await _fall_ill(env, claims[0], status="False")
            await env.wait(310)
            alive = [c.name for c in await env.claims() if not c.deleting]
            assert claims[0].name in alive
            assert claims[1].name not in alive
            assert claims[2].name not in alive

    run_virtual(scenario())


def test_nodes_that_only_just_fell_ill_hold_no_repair_back() -> None:
    """Nodes count once half of their toleration is over: starting ones do not, a common failure does."""
    nodes = [_ill(BadDisk=0.0), _ill(BadDisk=301.0), _ill(NetworkUp=0.0), a_node("well")]
    assert [is_counted(n, POLICIES, now=600.0) for n in nodes] == [True, False, False, False]
    assert [is_counted(n, POLICIES, now=901.0) for n in nodes] == [True, True, True, False]


def test_claims_without_a_pool_are_held_against_the_whole_cluster() -> None:
    """One ill node of one such claim is repaired unless a fifth of all nodes is ill."""

    async def scenario() -> None:
        async with hospital(6) as (env, claims):
            label = {"metadata": {"labels": {known.NODEPOOL: None}}}
            await env.client.patch(NodeClaim, claims[0].name, merge(label))
            for claim in claims[:3]:
                await _fall_ill(env, claim)
            await env.wait(620)
            assert not await _ending(env)
            told = [e for e in await env.events("NodeRepairBlocked") if "in the cluster" in e.message]
            assert {e.involved_object.name for e in told} == {claims[0].status.node_name, claims[0].name}

    run_virtual(scenario())


def test_the_condition_that_is_due_first_decides() -> None:
    """Of several ailments the earliest end of toleration counts, not the earliest beginning."""
    found = worst(_ill(NetworkUp=0.0, BadDisk=1000.0), POLICIES)
    assert found is not None
    assert (found.condition.type, found.due) == ("BadDisk", 1600.0)
    found = worst(_ill(NetworkUp=0.0, BadDisk=1300.0), POLICIES)
    assert found is not None
    assert (found.condition.type, found.due) == ("NetworkUp", 1800.0)
    assert worst(a_node(), POLICIES) is None


@pytest.mark.parametrize(
    ("name", "snake"),
    [("Ready", "ready"), ("KernelReady", "kernel_ready"), ("DCGMHealthy", "dcgm_healthy")],
)
def test_the_metric_names_conditions_as_upstream_does(name: str, snake: str) -> None:
    """Label values are in snake case."""
    assert snake_case(name) == snake
