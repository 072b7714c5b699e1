"""An operator that dies between any two of its writes: the next one finishes what it began."""

import asyncio
from collections.abc import AsyncGenerator, Mapping

import pytest

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import node, nodeclaim, nodepool, provisioning
from karpenter.kube.transport import JSON, Response, Transport
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, nodepool, node)
WRITES = 48
"""More than the writes of the history below, events and the kubelet's not counted."""


class Deadly:
    """A transport whose operator dies at its `at`-th write, just before or just after the server did it."""

    def __init__(self, inner: Transport, at: int, *, done: bool, struck: asyncio.Event) -> None:
        self._inner = inner
        self._left = at
        self._done = done
        self._struck = struck

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response:
        if path.endswith(("/events", "/nodes")):  # a Node is created by its kubelet, which does not die
            return await self._inner.request(
                method, path, query=query, body=body, content_type=content_type, accept=accept
            )
        if method != "GET":
            self._left -= 1
        if self._struck.is_set():
            await asyncio.Event().wait()  # nothing of the dead one gets through
        dies = self._left == 0 and method != "GET"
        if dies and not self._done:
            self._struck.set()
            await asyncio.Event().wait()
        response = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept
        )
        if dies:
            self._struck.set()
            await asyncio.Event().wait()
        return response

    def watch(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncGenerator[bytes, None]:
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        await self._inner.close()


async def _history(env: Environment) -> None:
    """A pod comes, gets its machine, and goes; its machine is given back."""
    await env.create(a_nodepool(termination_grace_period="5m"))
    pod = await env.create(a_pod())
    await env.expect_scheduled([pod], within=120)
    claim = (await env.claims())[0]
    await env.expect_condition(claim.name, "Initialized")
    await env.client.delete(Pod, pod.name, namespace=pod.namespace)
    await env.client.delete(NodeClaim, claim.name)

    async def over() -> bool:
        return not await env.claims() and not await env.nodes()

    await env.expect("claim and node are gone", over, within=300)


async def _reaper(env: Environment, struck: asyncio.Event) -> None:
    await struck.wait()
    await env.restart()


async def _dies(at: int, done: bool) -> bool:
    """Play the history with a death at one write; tell whether there was such a write."""
    struck = asyncio.Event()
    runs = 0

    def wrap(inner: Transport) -> Transport:
        nonlocal runs
        runs += 1
        return Deadly(inner, at, done=done, struck=struck) if runs == 1 else inner

    async with environment(rooms=ROOMS, transport=wrap) as env:
        reaper = asyncio.create_task(_reaper(env, struck))
        try:
            await _history(env)
        finally:
            reaper.cancel()
        assert len(env.cloud.created) == 1
        assert len(env.cloud.deleted) == 1
        assert not env.cloud.instances
        assert not await env.client.list(Node)
    return struck.is_set()


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_death_at_any_write_changes_nothing_in_the_end(done: bool, every: int) -> None:
    """Whichever write is the last: one machine is bought, one is ended, nothing is left over."""
    first = 1 if every == 1 else 1 + 3 * done  # the samples of before and after differ
    struck = [run_virtual(_dies(at, done)) for at in range(first, WRITES, every)]
    assert sum(struck) >= 30 // every, "the history has at least thirty writes"
