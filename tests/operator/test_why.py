"""`/why/KIND/NAME` of the operator: who answers, what is asked wrongly, and that others' words stay short."""

import asyncio
import socket
from collections.abc import Mapping

import aiohttp
import msgspec
import pytest

from karpenter.apis.workloads import Lease
from karpenter.base.metrics import Metrics
from karpenter.base.virtualtime import run_virtual
from karpenter.explain.answer import Answer, Problem
from karpenter.kube.patch import merge
from karpenter.kube.transport import Response
from karpenter.operator.health import metrics_app, serving, without_socket
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import World, world

LEASE = "karpenter-leader-election"


async def ask(w: World, path: str, **query: str) -> tuple[int, Answer | Problem]:
    said = await w.operator.why(path, query)
    kind: type[Answer] | type[Problem] = Answer if said.status == 200 else Problem
    return said.status, msgspec.json.decode(said.body, type=kind)


def test_every_kind_has_its_answer() -> None:
    """A running cluster: one of each; plural and short words are as good."""

    async def scenario() -> None:
        async with world() as w:
            await w.apply([node_class(), pool(), deployment("web", 1)])
            await w.until_settled()
            (node,), (claim,), (pod,) = await w.nodes(), await w.claims(), await w.pods()
            for path, kind in (
                (f"/why/node/{node.name}", "node"),
                (f"/why/nodeclaims/{claim.name}", "nodeclaim"),
                ("/why/nodepools.karpenter.sh/default", "nodepool"),
                (f"/why/po/{pod.name}", "pod"),
            ):
                status, answer = await ask(w, path)
                assert status == 200, answer
                assert isinstance(answer, Answer)
                assert answer.kind == kind
                assert answer.summary

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/why/pod/none", 404, "there is no pod 'none' in namespace default"),
        ("/why/node/none", 404, "there is no node 'none'"),
        ("/why/nodepool/none", 404, "there is no nodepool 'none'"),
        ("/why/nodeclaim/none", 404, "there is no nodeclaim 'none'"),
        ("/why/service/x", 400, "want /why/KIND/NAME with KIND one of pod, node, nodepool, nodeclaim"),
        ("/why/node/", 400, "want /why/KIND/NAME"),
        ("/why/node/a/b", 400, "want /why/KIND/NAME"),
    ],
)
def test_what_is_asked_wrongly(path: str, status: int, words: str) -> None:
    """Unknown objects are 404, other questions 400, both with words."""

    async def scenario() -> None:
        async with world() as w:
            await w.wait(5)
            code, problem = await ask(w, path)
            assert code == status
            assert isinstance(problem, Problem)
            assert words in problem.message

    run_virtual(scenario())


def test_only_the_leader_answers() -> None:
    """Another replica names the leader; one that has not read everything yet says that."""

    async def scenario() -> None:
        async with world(start=False) as w:
            spec = {"holderIdentity": "karpenter-9", "leaseDurationSeconds": 15}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
            await w.apply({**lease, "metadata": {"name": LEASE, "namespace": "kube-system"}})
            await w.start_operator()
            code, problem = await ask(w, "/why/node/x")
            assert (code, problem.error) == (503, "notReady")  # type: ignore[union-attr]
            await w.wait(3)
            code, problem = await ask(w, "/why/node/x")
            assert code == 503
            assert isinstance(problem, Problem)
            assert (problem.error, problem.leader) == ("notLeading", "karpenter-9")
            assert problem.message == "this replica does not lead: ask karpenter-9"
            await w.client.patch(
                Lease, LEASE, merge({"spec": {"holderIdentity": ""}}), namespace="kube-system"
            )
            await w.wait(5)
            code, problem = await ask(w, "/why/node/x")
            assert (code, problem.error) == (404, "notFound")  # type: ignore[union-attr]

    run_virtual(scenario())


def test_without_election_it_answers_all_the_same() -> None:
    """There is no Lease then, and nobody else to ask."""

    async def scenario() -> None:
        async with world(arguments=("--disable-leader-election",)) as w:
            await w.wait(5)
            assert (await ask(w, "/why/node/x"))[0] == 404

    run_virtual(scenario())


def test_it_is_served_beside_the_metrics() -> None:
    """Over a socket, and without one, the same paths; everything else is not there."""

    async def answer(path: str, query: Mapping[str, str]) -> Response:
        return Response(503, f"{path} {dict(query)}".encode(), {"content-type": "application/json"})

    async def scenario() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        expected = (503, "/why/pod/x {'namespace': 'a'}")
        async with (
            serving(metrics_app(Metrics(), answer), port, "metrics-port", "127.0.0.1"),
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/why/pod/x?namespace=a") as said,
        ):
            assert (said.status, await said.text()) == expected
        serve = without_socket(Metrics(), answer)
        direct = await serve("GET", "/why/pod/x", {"namespace": "a"})
        assert (direct.status, direct.body.decode()) == expected
        assert (await serve("GET", "/metrics", {})).status == 200
        assert (await serve("POST", "/why/pod/x", {})).status == 404
        assert (await serve("GET", "/else", {})).status == 404

    asyncio.run(scenario())
