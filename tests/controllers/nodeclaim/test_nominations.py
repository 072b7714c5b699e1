"""Pods are nominated to the node that was bought for them, and are anybody's again when it fails."""

from collections.abc import AsyncGenerator, Mapping

import pytest

from karpenter.apis.core import Node, NodeSpec, Pod, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import ObjectMeta
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import node as nodes
from karpenter.controllers import nodeclaim, nodepool, provisioning
from karpenter.controllers.nodeclaim.voidnominations import COMING_SECONDS
from karpenter.kube.patch import merge
from karpenter.kube.transport import JSON, Response, Transport
from karpenter.state.reservations import NEVER_READY_SECONDS, planned_pods
from karpenter.testing.builders import a_nodepool, some_pods
from karpenter.testing.environment import Environment, environment

WARMING = Taint(key="example.com/warming", effect="NoSchedule")
"""While a node has it nobody is bound there."""
ROOMS = (provisioning, nodeclaim, nodepool, nodes)


class Recorded:
    """A transport that notes writes, and refuses those to the status of pods when told to."""

    def __init__(self, inner: Transport) -> None:
        self.writes: list[str] = []
        self.refuse_nominations = False
        self._inner = inner

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
        """See `Transport`."""
        if method == "PATCH":
            self.writes.append(path)
            if self.refuse_nominations and "/pods/" in path and b"nominatedNodeName" in (body or b""):
                body = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'
                return Response(403, body, {})
        return await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept
        )

    def watch(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncGenerator[bytes, None]:
        """See `Transport`."""
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()


async def nominated(env: Environment) -> dict[str, str]:
    """Return the nominated node of every pod that has one, by pod name."""
    return {
        p.metadata.name: p.status.nominated_node_name
        for p in await env.client.list(Pod)
        if p.status.nominated_node_name
    }


async def warm(env: Environment) -> None:
    """Take the startup taint off all nodes."""
    for node in await env.nodes():
        left = [t for t in node.spec.taints if t.key != WARMING.key]
        taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in left]
        await env.client.patch(Node, node.name, merge({"spec": {"taints": taints}}))


async def nominated_to_one(env: Environment, count: int) -> str:
    """Wait until so many pods are nominated, all to one node; return it."""

    async def holds() -> bool:
        return len(await nominated(env)) == count

    await env.expect(f"{count} pods are nominated", holds)
    nodes = set((await nominated(env)).values())
    assert len(nodes) == 1
    return nodes.pop()


def test_pods_are_bound_where_they_were_planned() -> None:
    """With several machines on their way each pod ends on the very one that was bought for it."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(40, cpu="1700m", memory="1Gi"))
            await env.expect_scheduled(pods, within=120)
            planned = {key: claim.metadata.name for claim in env.cloud.created for key in planned_pods(claim)}
            claims = {c.status.node_name: c.name for c in await env.claims()}
            where = {p.key: claims[p.spec.node_name] for p in await env.client.list(Pod)}
            assert len(claims) > 1
            assert where == planned

    run_virtual(scenario())


def test_nominations_come_before_the_node_lets_pods_in() -> None:
    """The unregistered taint goes when everyone is nominated, not before."""
    recorded: list[Recorded] = []

    def wrap(inner: Transport) -> Transport:
        recorded.append(Recorded(inner))
        return recorded[-1]

    async def scenario() -> None:
        async with environment(transport=wrap) as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(3, cpu="300m"))
            await env.expect_scheduled(pods)
            writes = recorded[0].writes
            registered = min(i for i, path in enumerate(writes) if "/nodes/" in path)
            nominations = [
                i for i, path in enumerate(writes) if path.endswith("/status") and "/pods/" in path
            ]
            assert len(nominations) == 3
            assert max(nominations) < registered

    run_virtual(scenario())


@pytest.mark.parametrize("restarted", [False, True])
def test_pods_of_a_node_that_dies_are_bought_another(restarted: bool) -> None:
    """The nomination goes with the machine, whoever was there to see it made; the next machine gets them."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await env.create(a_nodepool(startup_taints=[WARMING]))
            pods = await env.create_all(some_pods(3, cpu="300m"))
            dead = await nominated_to_one(env, 3)
            if restarted:
                await env.restart()
            env.cloud.end(next(iter(env.cloud.instances)))
            await env.client.delete(Node, dead)  # as the cloud's own controller does

            async def holds() -> bool:
                found = await nominated(env)
                return len(found) == 3 and dead not in found.values()

            await env.expect("the pods are nominated to another node", holds, within=300)
            assert len(env.cloud.created) == 2
            await warm(env)
            await env.expect_scheduled(pods)

    run_virtual(scenario())


def test_pods_of_a_claim_that_is_deleted_are_bought_another() -> None:
    """A user may delete a claim whose pods are nominated and not bound yet."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await env.create(a_nodepool(startup_taints=[WARMING]))
            pods = await env.create_all(some_pods(3, cpu="300m"))
            before = await nominated_to_one(env, 3)
            first = (await env.claims())[0]
            await env.client.delete(NodeClaim, first.name)

            async def holds() -> bool:
                found = await nominated(env)
                return len(found) == 3 and before not in found.values()

            await env.expect("the pods are nominated to another node", holds, within=300)
            await warm(env)
            await env.expect_scheduled(pods)

    run_virtual(scenario())


def test_a_node_that_never_gets_ready_does_not_keep_its_pods() -> None:
    """When the claim's time to hold them is over the pods are anybody's."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool(startup_taints=[WARMING]))
            await env.create_all(some_pods(3, cpu="300m"))
            first = await nominated_to_one(env, 3)
            await env.wait(NEVER_READY_SECONDS - 60)
            assert set((await nominated(env)).values()) == {first}
            assert len(env.cloud.created) == 1

            async def holds() -> bool:
                return not await nominated(env)

            await env.expect("the pods are free", holds, within=120)

    run_virtual(scenario())


def test_nominations_of_others_stay() -> None:
    """Who was nominated elsewhere by somebody else is left alone, and nothing is bought for it."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool(startup_taints=[WARMING]))
            await env.create_all(some_pods(2, cpu="300m"))
            await nominated_to_one(env, 2)
            elsewhere = merge({"status": {"nominatedNodeName": "elsewhere"}})
            await env.client.patch(Pod, "pod-0000", elsewhere, namespace="default", subresource="status")
            await env.client.delete(NodeClaim, (await env.claims())[0].name)
            await env.wait(60)
            assert (await nominated(env))["pod-0000"] == "elsewhere"
            alive = [claim for claim in await env.claims() if not claim.deleting]
            held = {key for claim in alive for key in planned_pods(claim)}
            assert held == {"default/pod-0001"}

    run_virtual(scenario())


@pytest.mark.parametrize("was_there", [True, False])
def test_a_pod_promised_to_a_node_that_is_not_there_gets_one(was_there: bool) -> None:
    """At once if the node is seen to go; one that nobody has seen may be on its way for five minutes."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            if was_there:
                await env.create(Node(metadata=ObjectMeta(name="promised"), spec=NodeSpec(taints=[WARMING])))
            pod = some_pods(1, cpu="300m")[0]
            await env.create(pod)
            promise = merge({"status": {"nominatedNodeName": "promised"}})
            await env.client.patch(Pod, pod.name, promise, namespace="default", subresource="status")
            await env.wait(COMING_SECONDS - 30)
            assert env.cloud.created == []
            if was_there:
                await env.client.delete(Node, "promised")
                await env.expect_scheduled([pod], within=60)
            else:
                await env.expect_scheduled([pod], within=90)

    run_virtual(scenario())


def test_a_server_that_does_not_heed_nominations_gets_none() -> None:
    """For an older kube-scheduler nothing is written."""

    async def scenario() -> None:
        async with environment() as env:
            env.operator.context.server.features = None
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(3, cpu="300m"))
            await env.expect_scheduled(pods)
            assert await nominated(env) == {}

    run_virtual(scenario())


def test_pods_are_bound_although_nominations_are_refused() -> None:
    """Without the right to nominate nodes are opened all the same."""
    recorded: list[Recorded] = []

    def wrap(inner: Transport) -> Transport:
        recorded.append(Recorded(inner))
        recorded[-1].refuse_nominations = True
        return recorded[-1]

    async def scenario() -> None:
        async with environment(transport=wrap) as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(3, cpu="300m"))
            await env.expect_provisioned(pods, claims=1)
            assert await nominated(env) == {}
            assert not env.operator.context.server.nomination  # plans allow for it from now on

    run_virtual(scenario())
