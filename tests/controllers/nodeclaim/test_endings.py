"""The end of a NodeClaim: its deadline, its Nodes, its instance, the object; in that order and each once."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import format_time, parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import nodeclaim
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_node, a_nodeclaim
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import Instance

ROOMS = (nodeclaim,)
MACHINE = "fake://one"


async def _a_claim(
    env: Environment,
    *,
    true: Sequence[str] = ("Launched", "Registered", "Initialized"),
    provider_id: str = MACHINE,
    period: str | None = None,
    **annotations: str,
) -> NodeClaim:
    """Create a claim that has come so far, and its machine."""
    place = {labels.CAPACITY_TYPE: "spot", labels.ZONE: "zone-a"}
    made = a_nodeclaim(annotations=annotations, requirements=[("a", "Exists", ())], labels=place)
    made = replace(made, spec=replace(made.spec, termination_grace_period=period))
    await env.operator.kill()  # the claim is to be seen as it will be, not on its way there
    await env.create(made)
    states = [
        {"type": t, "status": "True", "reason": t, "message": "", "lastTransitionTime": format_time(0)}
        for t in true
    ]
    status = {"conditions": states, "providerID": provider_id or None}
    claim = await env.client.patch(NodeClaim, "claim", merge({"status": status}), subresource="status")
    if provider_id:
        env.cloud.instances[provider_id] = Instance(claim, env.clock.now(), joined=True)
    return claim


async def _nodes(env: Environment, *names: str, ours: bool = True) -> None:
    for name in names:
        made = a_node(name, provider_id=MACHINE)
        held = [labels.TERMINATION_FINALIZER] if ours else []
        await env.create(replace(made, metadata=replace(made.metadata, finalizers=held)))


async def _delete(env: Environment) -> float:
    await env.client.delete(NodeClaim, "claim")
    began = env.clock.now()
    await env.restart()
    return began


async def _claim(env: Environment) -> NodeClaim | None:
    try:
        return await env.client.get(NodeClaim, "claim")
    except NotFound:
        return None


async def _let_go(env: Environment, name: str) -> None:
    await env.client.patch(Node, name, merge({"metadata": {"finalizers": None}}))


@pytest.mark.parametrize("period", ["90s", "1h"])
def test_the_deadline_is_the_deletion_plus_the_grace_period(period: str) -> None:
    """It is written on the claim, and told in an event."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env, period=period)
            await _nodes(env, "first")
            await _delete(env)
            await env.wait(2)
            claim = await _claim(env)
            assert claim is not None
            deadline = claim.metadata.annotations[labels.TERMINATION_TIMESTAMP]
            deleted = parse_time(claim.metadata.deletion_timestamp or "")
            assert parse_time(deadline) - deleted == {"90s": 90, "1h": 3600}[period]
            (event,) = await env.events("TerminationGracePeriodExpiring")
            assert event.involved_object.kind == "NodeClaim"
            assert event.message == f"All pods will be deleted by {deadline}"

    run_virtual(scenario())


def test_a_deadline_that_is_there_stays() -> None:
    """Node repair has set it to end at once; the grace period does not lengthen it."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            at = "2025-12-31T00:00:00Z"
            await _a_claim(env, period="1h", **{labels.TERMINATION_TIMESTAMP: at})
            await _nodes(env, "first")
            await _delete(env)
            await env.wait(2)
            claim = await _claim(env)
            assert claim is not None
            assert claim.metadata.annotations[labels.TERMINATION_TIMESTAMP] == at

    run_virtual(scenario())


def test_without_a_grace_period_there_is_no_deadline() -> None:
    """A drain may take as long as it takes."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env)
            await _nodes(env, "first")
            await _delete(env)
            await env.wait(2)
            claim = await _claim(env)
            assert claim is not None
            assert labels.TERMINATION_TIMESTAMP not in claim.metadata.annotations

    run_virtual(scenario())


def test_all_nodes_of_a_registered_claim_go_first() -> None:
    """Each is deleted; while one is there the machine runs on."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env)
            await _nodes(env, "first", "second")
            await _delete(env)
            await env.wait(30)
            assert [node.deleting for node in await env.nodes()] == [True, True]
            await _let_go(env, "first")
            await env.wait(30)
            assert env.cloud.deleted == []
            await _let_go(env, "second")
            await env.wait(1)
            assert env.cloud.deleted == [MACHINE]
            assert await _claim(env) is None

    run_virtual(scenario())


def test_a_node_that_never_registered_is_left_to_the_cloud() -> None:
    """The claim does not wait for it; whoever made the Node takes it away."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env, true=("Launched",))
            await _nodes(env, "first", ours=False)
            env.cloud.delete_seconds = 8.0
            await _delete(env)
            await env.wait(4)
            assert [node.deleting for node in await env.nodes()] == [False]
            assert env.cloud.instances[MACHINE].ending
            await env.wait(8)
            assert env.cloud.deleted == [MACHINE]
            assert await _claim(env) is None

    run_virtual(scenario())


def test_the_claim_stays_until_its_machine_is_gone() -> None:
    """It says that the machine ends, asks every five seconds, and is counted when it is over."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env)
            env.cloud.delete_seconds = 12.0
            asked: list[float] = []
            began = await _delete(env)
            delete = env.operator.provider.delete

            async def counting(claim: NodeClaim) -> None:
                asked.append(env.clock.now() - began)
                await delete(claim)

            env.operator.provider.delete = counting  # type: ignore[method-assign]
            await env.wait(8)
            claim = await _claim(env)
            assert claim is not None
            assert conditions.is_true(claim.status.conditions, "InstanceTerminating")
            await env.wait(10)
            assert await _claim(env) is None
            assert 2 <= len(asked) <= 6, asked
            pool = {"nodepool": "default"}
            name = "karpenter_nodeclaims_terminated_total"
            assert env.metric(name, capacity_type="spot", zone="zone-a", **pool) == 1
            seconds = env.metric("karpenter_nodeclaims_instance_termination_duration_seconds_sum", **pool)
            assert 12 <= seconds <= 17
            seconds = env.metric("karpenter_nodeclaims_termination_duration_seconds_sum", **pool)
            assert 12 <= seconds <= 18

    run_virtual(scenario())


def test_a_cloud_that_fails_is_asked_again() -> None:
    """The claim does not go while nobody knows whether its machine still runs."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env)
            await _delete(env)
            fails = True
            delete = env.operator.provider.delete

            async def failing(claim: NodeClaim) -> None:
                if fails:
                    raise RuntimeError("the cloud is down")
                await delete(claim)

            env.operator.provider.delete = failing  # type: ignore[method-assign]
            await env.wait(30)
            claim = await _claim(env)
            assert claim is not None
            assert not conditions.is_true(claim.status.conditions, "InstanceTerminating")
            fails = False
            await env.wait(70)
            assert await _claim(env) is None

    run_virtual(scenario())


def test_a_claim_without_a_machine_goes_at_once() -> None:
    """There is nothing to ask the cloud for."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env, true=(), provider_id="")
            await _delete(env)
            await env.wait(2)
            assert await _claim(env) is None
            assert env.cloud.deleted == []
            assert env.cloud.created == []

    run_virtual(scenario())


def test_a_claim_that_others_hold_is_not_ended_twice() -> None:
    """When our finalizer is off, somebody else's keeps the object, and nothing more is done to it."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _a_claim(env)
            both = [labels.TERMINATION_FINALIZER, "example.com/hold"]
            await env.client.patch(NodeClaim, "claim", merge({"metadata": {"finalizers": both}}))
            await _delete(env)
            await env.wait(120)
            claim = await _claim(env)
            assert claim is not None
            assert claim.metadata.finalizers == ["example.com/hold"]
            ended = env.metric(
                "karpenter_nodeclaims_terminated_total",
                nodepool="default",
                capacity_type="spot",
                zone="zone-a",
            )
            assert ended == 1

    run_virtual(scenario())
