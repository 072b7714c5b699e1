"""A roll-out whose replacements fail: slower after each, halted after three, until something changes."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis.conditions import get
from karpenter.apis.karpenter import Budget, Disruption, NodeClaim, NodePool
from karpenter.base.timestamps import parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import InsufficientCapacity
from karpenter.controllers import disruption, metrics, node, nodeclaim, nodepool, provisioning
from karpenter.controllers.disruption.halts import Halts
from karpenter.kube.patch import merge
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, disruption, metrics)


async def _settled(env: Environment) -> NodeClaim:
    """Run a pod on a node of a pool that lets one be replaced at a time; return its claim."""
    pool = a_nodepool()
    wanted = Disruption(consolidate_after="Never", budgets=[Budget(nodes="1")])
    await env.create(replace(pool, spec=replace(pool.spec, disruption=wanted)))
    pod = await env.create(a_pod(cpu="9"))
    await env.expect_scheduled([pod])
    (claim,) = await env.claims()
    await env.expect_condition(claim.name, "Initialized")
    await env.wait(25)
    return claim


async def _halted(env: Environment) -> NodeClaim:
    """Let three replacements in a row fail; return the claim that was to be replaced."""
    claim = await _settled(env)
    env.cloud.join_seconds = None
    env.cloud.drift[claim.name] = "ImageDrifted"
    await env.client.patch(NodeClaim, claim.name, merge({"metadata": {"annotations": {"seen": "1"}}}))
    await env.wait(40 * 60)
    return claim


async def _condition(env: Environment) -> Any:
    return get((await env.client.get(NodePool, "default")).status.conditions, "DriftHalted")


def test_three_failures_halt_the_roll_out() -> None:
    """After three machines that never came up no more are bought; pool, event, metric and verdict say why."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            claim = await _halted(env)
            assert len(env.cloud.created) == 4
            condition = await _condition(env)
            assert (condition.status, condition.reason) == ("True", "ReplacementsFailed")
            assert "3 machines in a row" in condition.message
            assert "was not initialized within 10 minutes" in condition.message
            assert (await env.expect_event("DriftHalted")).type == "Warning"
            assert env.metric("karpenter_nodepools_drift_halted", nodepool="default") == 1
            name = "karpenter_nodepools_drift_replacements_failed_total"
            assert env.metric(name, nodepool="default") == 3
            assert env.cluster.verdicts.of(claim.status.node_name)["drift"].verdict.code == "halted"
            await env.wait(2 * 3600)
            assert len(env.cloud.created) == 4
            assert [c.name for c in await env.claims()] == [claim.name]

    run_virtual(scenario())


def test_a_halt_is_told_at_once() -> None:
    """With the third failure, also when nothing about the pool or its claims changes then."""

    async def scenario() -> None:
        async with environment(rooms=(nodepool,)) as env:
            await env.create(a_nodepool())
            await env.wait(30)
            halts = Halts(env.operator.context)
            running = asyncio.create_task(halts.controller.run())
            await env.wait(1)
            for _ in range(3):
                assert await _condition(env) is None
                halts.failed("default", "it never came up", bought=True)
            await env.wait(0.1)
            assert (await _condition(env)).status == "True"
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run_virtual(scenario())


def test_pauses_between_failures_grow() -> None:
    """The second try comes a minute after the first has failed, the third two minutes after the second."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _halted(env)
            told = [e for e in await env.events("DisruptionFailed") if e.involved_object.kind == "Node"]
            first, second, third = sorted(parse_time(e.first_timestamp or "") for e in told)
            assert 660 <= second - first <= 675
            assert 720 <= third - second <= 735

    run_virtual(scenario())


@pytest.mark.parametrize("kind", ["pool", "class"])
def test_a_change_lets_it_go_on(kind: str) -> None:
    """A new spec of the pool, or of its node class, ends the halt: the node is replaced."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            claim = await _halted(env)
            env.cloud.join_seconds = 2.0
            if kind == "pool":
                labels = {"spec": {"template": {"metadata": {"labels": {"new": "yes"}}}}}
                await env.client.patch(NodePool, "default", merge(labels))
            else:
                delay = {"spec": {"nodeRegistrationDelay": "3s"}}
                await env.client.patch(KwokNodeClass, "default", merge(delay))

            async def replaced() -> bool:
                return claim.name not in {c.name for c in await env.claims()}

            await env.expect("the node is replaced", replaced, within=120)
            assert await _condition(env) is None
            assert env.metric("karpenter_nodepools_drift_halted", nodepool="default") == 0

    run_virtual(scenario())


def test_a_machine_that_comes_up_lets_it_go_on() -> None:
    """Pods that need a node show that machines come up again: the roll-out goes on."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            claim = await _halted(env)
            env.cloud.join_seconds = 2.0
            pod = await env.create(a_pod("more", cpu="9"))
            await env.expect_scheduled([pod])

            async def replaced() -> bool:
                return claim.name not in {c.name for c in await env.claims()}

            await env.expect("the node is replaced", replaced, within=180)
            assert await _condition(env) is None

    run_virtual(scenario())


def test_a_halt_survives_a_restart() -> None:
    """A new process reads the halt from the pool and buys nothing either."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _halted(env)
            await env.restart()
            await env.wait(1800)
            assert len(env.cloud.created) == 4
            assert (await _condition(env)).status == "True"

    run_virtual(scenario())


def test_what_was_never_launched_slows_down_but_does_not_halt() -> None:
    """No capacity costs nothing: it is tried again, every ten minutes in the end, for as long as it takes."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            env.cloud.next_errors = []
            claim = await _settled(env)
            env.cloud.next_errors = [InsufficientCapacity("sold out")] * 8
            env.cloud.drift[claim.name] = "ImageDrifted"
            await env.client.patch(NodeClaim, claim.name, merge({"metadata": {"annotations": {"seen": "1"}}}))
            await env.wait(25 * 60)
            tries = 8 - len(env.cloud.next_errors)
            assert 4 <= tries <= 6, tries
            assert await _condition(env) is None

            async def replaced() -> bool:
                return claim.name not in {c.name for c in await env.claims()}

            await env.expect("the node is replaced", replaced, within=3600)

    run_virtual(scenario())
