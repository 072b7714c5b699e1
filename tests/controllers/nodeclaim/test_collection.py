"""Setting right what went wrong between claims and the cloud; and leaving alone what did not."""

from collections.abc import Callable
from typing import Any

import pytest

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodeClaimStatus
from karpenter.apis.meta import ObjectMeta
from karpenter.base.clock import format_time
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError
from karpenter.kube.errors import NotFound
from karpenter.model.taints import UNREGISTERED
from karpenter.testing.builders import a_node, a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import FakeCloud, Instance

ORPHAN = "fake://orphan"


def _add_instance(env: Environment, name: str, *, age: float) -> None:
    """Let the cloud have a machine that no claim's status tells of."""
    since = env.clock.now() - age
    meta = ObjectMeta(name=name, creation_timestamp=format_time(since))
    claim = NodeClaim(metadata=meta, status=NodeClaimStatus(provider_id=ORPHAN))
    env.cloud.instances[ORPHAN] = Instance(claim, launched_at=since, joined=True)


async def _launching(env: Environment, seconds: float) -> NodeClaim:
    """Return a claim whose launch takes that long."""
    env.cloud.create_seconds = seconds
    await env.create(a_nodepool())
    await env.create(a_pod())
    return (await env.expect_claims(1))[0]


async def _is_gone(env: Environment, claim: NodeClaim) -> bool:
    try:
        return (await env.client.get(NodeClaim, claim.name)).metadata.uid != claim.metadata.uid
    except NotFound:
        return True


@pytest.mark.parametrize("named", [True, False], ids=["named after its claim", "nameless"])
def test_the_machine_of_a_claim_on_its_way_is_left_alone(named: bool) -> None:
    """Between the launch and the claim's status a machine looks like nobody's; it is not."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _launching(env, 290.0)
            _add_instance(env, claim.name if named else "", age=100.0)
            await env.wait(250)
            assert not env.cloud.deleted
            assert ORPHAN in env.cloud.instances

    run_virtual(scenario())


def test_a_nameless_machine_is_ended_when_nothing_is_on_its_way_any_more() -> None:
    """It is left alone only as long as it might be somebody's."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _launching(env, 150.0)
            _add_instance(env, "", age=100.0)
            await env.expect_condition(claim.name, "Initialized", within=250)
            await env.wait(130)
            assert env.cloud.deleted == [ORPHAN]
            assert not await _is_gone(env, claim)

    run_virtual(scenario())


def test_a_machine_of_another_name_is_ended_while_others_launch() -> None:
    """A named machine whose claim is gone does not wait for other claims."""

    async def scenario() -> None:
        async with environment() as env:
            await _launching(env, 290.0)
            _add_instance(env, "long-gone", age=100.0)
            await env.wait(130)
            assert env.cloud.deleted == [ORPHAN]

    run_virtual(scenario())


@pytest.mark.parametrize("alive", [True, False], ids=["its machine runs", "its machine is gone"])
def test_a_node_that_nobody_will_register_goes_with_its_machine(alive: bool) -> None:
    """It joined while its claim was deleted: without a machine it is removed, at the second look."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_node("late", provider_id=ORPHAN, taints=[UNREGISTERED]))
            if alive:
                _add_instance(env, "", age=0.0)
                env.cloud.delete_seconds = 10_000.0
            await env.wait(100)
            assert await env.client.get(Node, "late")
            await env.wait(200)
            assert [n.name for n in await env.client.list(Node)] == (["late"] if alive else [])

    run_virtual(scenario())


def test_a_young_machine_is_left_alone() -> None:
    """A machine of less than a minute may belong to a claim that we do not see yet."""

    async def scenario() -> None:
        async with environment() as env:
            await env.wait(100)
            _add_instance(env, "new", age=0.0)
            await env.wait(30)
            assert not env.cloud.deleted
            await env.wait(120)
            assert env.cloud.deleted == [ORPHAN]

    run_virtual(scenario())


def test_a_cloud_that_cannot_list_ends_nothing() -> None:
    """An error is no answer: no claim is taken for lost because of it."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _launching(env, 0.0)
            await env.expect_condition(claim.name, "Initialized")

            async def fails() -> Any:
                raise CreateError("Throttled", "slow down")

            env.operator.provider.list = fails  # type: ignore[method-assign]
            await env.wait(400)
            assert not await _is_gone(env, claim)
            assert not (await env.client.get(NodeClaim, claim.name)).deleting

    run_virtual(scenario())


def test_a_claim_whose_kubelet_reports_is_kept() -> None:
    """When the cloud's list lacks a machine that is plainly working, the list is wrong."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _launching(env, 0.0)
            claim = await env.expect_condition(claim.name, "Initialized")
            env.cloud.end(claim.status.provider_id)
            await env.wait(300)
            assert not (await env.client.get(NodeClaim, claim.name)).deleting

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("break_it", "timeout", "reason"),
    [
        (lambda c: setattr(c, "next_errors", [CreateError("No", "no")] * 1000), 300.0, "launch_timeout"),
        (lambda c: setattr(c, "join_seconds", None), 900.0, "registration_timeout"),
    ],
    ids=["launch", "registration"],
)
def test_a_restart_does_not_prolong_a_timeout(
    break_it: Callable[[FakeCloud], None], timeout: float, reason: str
) -> None:
    """Time runs from what the claim's conditions say, whoever watches."""

    async def scenario() -> None:
        async with environment() as env:
            break_it(env.cloud)
            claim = await _launching(env, 0.0)
            await env.wait(timeout - 60)
            await env.restart()
            await env.wait(30)
            assert not await _is_gone(env, claim)
            await env.client.delete(Pod, "pod", namespace="default")
            await env.expect("it is gone", lambda: _is_gone(env, claim), within=90)
            count = env.metric(
                "karpenter_nodeclaims_disrupted_total",
                reason=reason,
                nodepool="default",
                capacity_type="" if reason == "launch_timeout" else "spot",
                consolidation_policy="",
                termination_mode="graceful",
            )
            assert count == 1

    run_virtual(scenario())
