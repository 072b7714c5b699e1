"""Which pods move the time from which `consolidateAfter` counts."""

import pytest

from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_daemon, a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment


async def _quiet(env: Environment) -> tuple[NodeClaim, float]:
    """Return a claim with one pod where nothing has happened for a while, and the time noted."""
    await env.create(a_nodepool())
    await env.create(a_pod("first"))
    claim = (await env.expect_claims(1))[0]
    claim = await env.expect_condition(claim.name, "Initialized")
    await env.wait(30)
    return claim, await _noted(env, claim)


async def _noted(env: Environment, claim: NodeClaim) -> float:
    found = await env.client.get(NodeClaim, claim.name)
    return parse_time(found.status.last_pod_event_time or "1970-01-01T00:00:00Z")


def test_daemons_and_pods_elsewhere_do_not_count() -> None:
    """Neither a DaemonSet's pod on the node, nor a pod that waits, nor a label that changes."""

    async def scenario() -> None:
        async with environment() as env:
            claim, before = await _quiet(env)
            daemon = a_daemon("agent", cpu="10m", node_name=claim.status.node_name)
            await env.create(daemon)
            await env.create(a_pod("waits", node_selector={"no": "such"}))
            await env.client.patch(
                Pod, "first", merge({"metadata": {"labels": {"x": "y"}}}), namespace="default"
            )
            await env.wait(15)
            assert await _noted(env, claim) == before

    run_virtual(scenario())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ends_counts(phase: str) -> None:
    """What it used is free from then on."""

    async def scenario() -> None:
        async with environment() as env:
            claim, before = await _quiet(env)
            ended = merge({"status": {"phase": phase}})
            await env.client.patch(Pod, "first", ended, namespace="default", subresource="status")
            await env.wait(3)
            assert await _noted(env, claim) > before

    run_virtual(scenario())


def test_a_pod_that_is_being_deleted_counts_when_that_begins() -> None:
    """Not only when its grace period is over."""

    async def scenario() -> None:
        async with environment() as env:
            claim, before = await _quiet(env)
            hold = {"metadata": {"finalizers": ["example.com/hold"]}}
            await env.client.patch(Pod, "first", merge(hold), namespace="default")
            await env.client.delete(Pod, "first", namespace="default")
            await env.wait(3)
            assert await _noted(env, claim) > before

    run_virtual(scenario())


def test_a_restart_is_no_pod_event() -> None:
    """What a new operator sees for the first time has not only just happened."""

    async def scenario() -> None:
        async with environment() as env:
            claim, before = await _quiet(env)
            await env.restart()
            await env.wait(20)
            assert await _noted(env, claim) == before

    run_virtual(scenario())
