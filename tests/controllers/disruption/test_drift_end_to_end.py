"""Drifted nodes and what replaces them, over an embedded cluster: order of things, failures, budgets."""

from typing import Any

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.conditions import get, is_true
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import Budget, Disruption, NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import InsufficientCapacity
from karpenter.controllers import disruption, metrics, node, nodeclaim, nodepool, provisioning, static
from karpenter.controllers.disruption.notes import note_of
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, static, disruption, metrics)


def a_pool(*budgets: Budget, after: str = "Never", **fields: Any) -> NodePool:
    """Return a pool whose nodes go for drift only."""
    pool = a_nodepool(**fields)
    wanted = Disruption(consolidate_after=after, budgets=list(budgets) or [Budget(nodes="100%")])
    return replace(pool, spec=replace(pool.spec, disruption=wanted))


async def _nodes_with_a_pod(env: Environment, pool: NodePool, count: int = 1) -> list[NodeClaim]:
    """Create the pool and large pods, each on a node of its own; return the claims, ready and settled."""
    await env.create(pool)
    pods = [await env.create(a_pod(f"p{i}", cpu="9", memory="1Gi")) for i in range(count)]
    await env.expect_scheduled(pods)
    claims = await env.expect_claims(count)
    for claim in claims:
        await env.expect_condition(claim.name, "Initialized")
    await env.wait(25)  # nodes that pods were just promised to are left alone
    return await env.claims()


async def _drift(env: Environment, *claims: NodeClaim) -> None:
    """Let claims drift, and the operator see it at once."""
    for claim in claims:
        env.cloud.drift[claim.name] = "ImageDrifted"
        await env.client.patch(NodeClaim, claim.name, merge({"metadata": {"annotations": {"seen": "1"}}}))


async def _replaced(env: Environment, old: NodeClaim, *, within: float = 120.0) -> None:
    async def gone() -> bool:
        return old.name not in {c.name for c in await env.claims()}

    await env.expect(f"{old.name} is gone", gone, within=within)


def _is_tainted(found: Node) -> bool:
    return any(t.key == labels.DISRUPTED_TAINT for t in found.spec.taints)


def test_a_drifted_node_goes_when_its_replacement_is_ready() -> None:
    """First the taint, then the replacement, and only when that is initialized does the old node go."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            env.cloud.join_seconds = 20.0
            (old,) = await _nodes_with_a_pod(env, a_pool())
            await _drift(env, old)

            async def replacement_there() -> bool:
                return len(await env.claims()) == 2

            await env.expect("a replacement is created", replacement_there)
            (new,) = [c for c in await env.claims() if c.name != old.name]
            note = note_of(new)
            assert note is not None
            assert (note.reason, note.node_claims, note.replacements) == ("Drifted", (old.name,), 1)
            assert _is_tainted(await env.client.get(Node, old.status.node_name))
            old = await env.client.get(NodeClaim, old.name)
            assert is_true(old.status.conditions, "DisruptionReason")
            while not is_true((await env.client.get(NodeClaim, new.name)).status.conditions, "Initialized"):
                assert not (await env.client.get(NodeClaim, old.name)).deleting
                await env.wait(0.1)
            await _replaced(env, old)
            assert len(env.cloud.created) == 2
            wanted = {"decision": "replace", "reason": "drifted", "consolidation_type": ""}
            assert env.metric("karpenter_voluntary_disruption_decisions_total", **wanted) == 1
            created = {"reason": "drifted", "nodepool": "default", "min_values_relaxed": "false"}
            assert env.metric("karpenter_nodeclaims_created_total", **created) == 1
            told = {e.reason for e in await env.events("DisruptionLaunching")}
            told |= {e.reason for e in await env.events("DisruptionWaitingReadiness")}
            told |= {e.reason for e in await env.events("DisruptionTerminating")}
            assert len(told) == 3

    run_virtual(scenario())


def test_drift_does_not_wait_for_a_second_look() -> None:
    """The replacement is created within a pass of the node being found drifted."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            (old,) = await _nodes_with_a_pod(env, a_pool())
            await _drift(env, old)
            await env.expect_claims(2, within=11)

    run_virtual(scenario())


def test_drift_goes_on_while_an_empty_node_waits_for_its_second_look() -> None:
    """A command that waits holds up no other: the drifted node is replaced within those fifteen seconds."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            first, second = await _nodes_with_a_pod(env, a_pool(after="0s"), 2)
            names = {p.spec.node_name: p for p in await env.client.list(Pod)}
            await env.client.delete(Pod, names[first.status.node_name].name, namespace="default")

            async def waits() -> bool:
                found = env.cluster.verdicts.of(first.status.node_name).get(None)
                return found is not None and found.verdict.code == "queued"

            await env.expect("the empty node waits", waits)
            began = env.clock.now()
            await _drift(env, second)
            await _replaced(env, second, within=40)
            assert {c.name for c in env.cloud.created} > {first.name, second.name}
            created = min(i.launched_at for i in env.cloud.instances.values() if i.launched_at >= began)
            assert created - began < 13

    run_virtual(scenario())


def test_a_replacement_that_never_comes_up_is_given_up() -> None:
    """After ten minutes the old node is free again, and the machine that was bought for nothing goes."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            (old,) = await _nodes_with_a_pod(env, a_pool())
            env.cloud.join_seconds = None
            await _drift(env, old)
            await env.wait(500)
            assert len(await env.claims()) == 2
            assert not (await env.client.get(NodeClaim, old.name)).deleting
            env.cloud.drift.clear()
            await env.wait(130)
            assert [c.name for c in await env.claims()] == [old.name]
            assert len(env.cloud.instances) == 1
            assert not _is_tainted(await env.client.get(Node, old.status.node_name))
            old = await env.client.get(NodeClaim, old.name)
            assert get(old.status.conditions, "DisruptionReason") is None
            event = await env.expect_event("DisruptionFailed")
            assert "was not initialized within 10 minutes" in event.message
            failed = {"decision": "replace", "reason": "drifted", "consolidation_type": ""}
            assert env.metric("karpenter_voluntary_disruption_queue_failures_total", **failed) == 1
            (row,) = env.cluster.nodes()
            assert not row.marked_for_deletion
            pod = await env.create(a_pod("later", cpu="1"))
            await env.expect_scheduled([pod])
            assert len(await env.claims()) == 1

    run_virtual(scenario())


def test_a_replacement_that_cannot_be_launched_is_given_up_at_once() -> None:
    """No capacity: the replacement is deleted, the old node freed, and the next try comes a minute later."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            (old,) = await _nodes_with_a_pod(env, a_pool())
            env.cloud.next_errors = [InsufficientCapacity("sold out")]
            await _drift(env, old)
            await env.expect_event("DisruptionFailed")
            began = env.clock.now()
            await env.wait(50)
            assert [c.name for c in await env.claims()] == [old.name]
            await _replaced(env, old, within=60)
            assert env.clock.now() - began > 55
            assert len(env.cloud.created) == 2

    run_virtual(scenario())


def test_budgets_hold_while_replacements_come_up() -> None:
    """With budget 1 of three drifted nodes one at a time is tainted or going."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            env.cloud.join_seconds = 15.0
            claims = await _nodes_with_a_pod(env, a_pool(Budget(nodes="1")), 3)
            await _drift(env, *claims)
            old = {c.name for c in claims}
            for _ in range(2000):
                found = await env.claims()
                going = [
                    c
                    for c in found
                    if (is_true(c.status.conditions, "DisruptionReason") or c.deleting)
                    and not is_true(c.status.conditions, "InstanceTerminating")
                ]
                assert len(going) <= 1
                if not old & {c.name for c in found}:
                    break
                await env.wait(0.5)
            assert not old & {c.name for c in await env.claims()}

    run_virtual(scenario())


def test_limits_hold_for_replacements() -> None:
    """A pool at its limit replaces nothing; an event on the node says which limit."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            (old,) = await _nodes_with_a_pod(env, a_pool(limits={"cpu": "16"}))
            await _drift(env, old)
            await env.wait(120)
            assert len(env.cloud.created) == 1
            messages = [e.message for e in await env.events("DisruptionBlocked")]
            assert any("limit" in m for m in messages), messages
            assert not _is_tainted(await env.client.get(Node, old.status.node_name))
            await env.client.patch(NodePool, "default", merge({"spec": {"limits": {"cpu": "32"}}}))
            await _replaced(env, old)

    run_virtual(scenario())


def test_limits_hold_while_the_old_node_waits_for_its_replacement() -> None:
    """A node that is to go still counts: nobody else gets its share of the limit before it has gone."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            (old,) = await _nodes_with_a_pod(env, a_pool(limits={"cpu": "32"}))
            env.cloud.join_seconds = 60.0
            await _drift(env, old)
            await env.expect_claims(2)
            await env.create(a_pod("more", cpu="14"))
            await env.wait(50)
            assert len(await env.claims()) == 2
            await _replaced(env, old)

    run_virtual(scenario())


def test_a_launch_that_hangs_stalls_nobody_else() -> None:
    """While one claim is stuck in its launch, other pods get machines and other nodes are replaced."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            (old,) = await _nodes_with_a_pod(env, a_pool())
            await env.create(a_pool(name="stuck", limits={"cpu": "16"}))
            env.cloud.create_seconds = 290.0
            stuck = await env.create(a_pod("stuck", cpu="15", node_selector={labels.NODEPOOL: "stuck"}))
            await env.expect_claims(2)
            await env.wait(1)
            env.cloud.create_seconds = 0.0
            await _drift(env, old)
            await _replaced(env, old, within=60)
            other = await env.create(a_pod("other", cpu="15", node_selector={labels.NODEPOOL: "default"}))
            await env.expect_scheduled([other], within=60)
            assert not (await env.client.get(Pod, stuck.name, namespace="default")).spec.node_name

    run_virtual(scenario())
