"""`karpenter why` at the command line: the leader is found and asked, and failures have words of use."""

import asyncio
import io
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.cli.main import app
from karpenter.cli.run import identity
from karpenter.cli.why import WhyOptions, why_command
from karpenter.embedded.http import HttpDoor, write_kubeconfig
from karpenter.explain.answer import Answer, Change, Finding, Operation, Problem
from karpenter.kube.transport import Response
from karpenter.testing.embeddedapi import Api

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PODS = "/api/v1/namespaces/kube-system/pods"
JSON = {"content-type": "application/json"}
ANSWER = Answer(
    kind="pod",
    name="web",
    namespace="shop",
    at="2026-01-01T00:00:00Z",
    code="taints",
    summary="it has no place",
    facts={"requests": "1 cpu"},
    findings=(
        Finding(
            about="nodepool/a", code="taints", message="did not tolerate x", works=True, price_per_hour=0.1
        ),
        Finding(
            about="nodepool/b", code="limits", message="full", remedy="raise limits.cpu by 1", works=False
        ),
    ),
    remedy="add a toleration",
    changes=(
        Change(
            text="tolerate x in deployment/web of namespace shop",
            api_version="apps/v1",
            kind="Deployment",
            namespace="shop",
            name="web",
            patch=(Operation(op="add", path="/spec/template/spec/tolerations", value=[{"key": "x's"}]),),
        ),
    ),
)

Serve = Callable[[str, str, Mapping[str, str]], Awaitable[Response]]


def options(**more: Any) -> WhyOptions:
    plain = WhyOptions(
        kind="pod",
        name="web",
        namespace="shop",
        output="text",
        kubeconfig="",
        context="",
        operator_namespace="kube-system",
        lease="karpenter-leader-election",
        port=8080,
        address="",
    )
    return plain._replace(**more)


def says(obj: Answer | Problem, status: int = 200, asked: list[Any] | None = None) -> Serve:
    async def serve(method: str, path: str, query: Mapping[str, str]) -> Response:
        if asked is not None:
            asked.append((method, path, dict(query)))
        return Response(status, msgspec.json.encode(obj), JSON)

    return serve


@contextmanager
def a_cluster(folder: Path, serve: Serve | None, holder: str | None = "karpenter-0") -> Iterator[str]:
    """Serve an API with a Lease, and an operator's pod, from another thread; yields the kubeconfig."""
    api = Api()
    api.post("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    if holder is not None:
        api.post(
            LEASES, {"metadata": {"name": "karpenter-leader-election"}, "spec": {"holderIdentity": holder}}
        )
    api.post(
        PODS, {"metadata": {"name": "karpenter-0"}, "spec": {"containers": [{"name": "c", "image": "k"}]}}
    )
    if serve is not None:
        api.server.proxy.serve("kube-system", "karpenter-0", 8080, serve)
    path, ready, loop = folder / "kubeconfig", threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with HttpDoor(api.server, token="not-a-secret") as door:
            write_kubeconfig(path, url=door.url, token="not-a-secret")
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(10)
    try:
        yield str(path)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def run(asked: WhyOptions) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = why_command(asked, out=out, err=err, clock=SystemClock(), environ={"HOME": "/nowhere"})
    return code, out.getvalue(), err.getvalue()


def test_the_leader_is_found_and_its_answer_printed(tmp_path: Path) -> None:
    """Lease, pod proxy, words: with the command to run, and what was tried."""
    asked: list[Any] = []
    with a_cluster(tmp_path, says(ANSWER, asked=asked), holder="karpenter-0_f3a8") as config:
        code, out, err = run(options(kubeconfig=config, kind="po"))
    assert (code, err) == (0, "")
    assert asked == [("GET", "/why/pod/web", {"namespace": "shop"})]
    assert out.splitlines() == [
        "pod shop/web: it has no place",
        "  requests: 1 cpu",
        "to change that: add a toleration",
        "  tolerate x in deployment/web of namespace shop",
        "    kubectl patch deployment/web -n shop --type=json -p "
        """'[{"op":"add","path":"/spec/template/spec/tolerations","value":[{"key":"x'"'"'s"}]}]'""",
        "  tried: it then has a place, for $0.1000/h more",
        "why, in full:",
        "  nodepool/a [taints]: did not tolerate x",
        "  nodepool/b [limits]: full",
        "      not enough by itself: raise limits.cpu by 1",
    ]


def test_json_is_the_operators_own(tmp_path: Path) -> None:
    """Programs get every field, indented."""
    with a_cluster(tmp_path, says(ANSWER)) as config:
        code, out, _ = run(options(kubeconfig=config, output="json"))
    assert code == 0
    assert msgspec.json.decode(out.encode(), type=Answer) == ANSWER
    assert json.loads(out)["changes"][0]["patch"][0]["op"] == "add"


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (Problem(error="notFound", message="there is no pod 'web'"), 404, 2),
        (Problem(error="notLeading", message="this replica does not lead: ask karpenter-1"), 503, 1),
        (Problem(error="notReady", message="the copy of the cluster is not whole yet"), 503, 1),
    ],
)
def test_what_the_operator_refuses_is_said_in_its_words(
    tmp_path: Path, problem: Problem, status: int, code: int
) -> None:
    """2 for what there is not, 1 for whoever cannot answer now."""
    with a_cluster(tmp_path, says(problem, status)) as config:
        assert run(options(kubeconfig=config)) == (code, "", f"karpenter why: {problem.message}\n")


@pytest.mark.parametrize(
    ("holder", "more", "words"),
    [
        (None, {}, "there is no Lease kube-system/karpenter-leader-election: no operator leads here"),
        ("", {}, "nobody holds Lease kube-system/karpenter-leader-election right now"),
        (
            "laptop_x1",
            {},
            "held by 'laptop', which is no pod of namespace kube-system: ask an operator outside",
        ),
        ("karpenter-0", {"port": 9}, "does not answer on port 9: error trying to reach service: dial tcp"),
        ("karpenter-0", {"lease": "other/name"}, "there is no Lease other/name"),
    ],
)
def test_a_leader_that_cannot_be_reached(
    tmp_path: Path, holder: str | None, more: dict[str, Any], words: str
) -> None:
    """Every way to miss it has its own words, with what to do; the exit code is 1."""
    with a_cluster(tmp_path, says(ANSWER), holder) as config:
        code, out, err = run(options(kubeconfig=config, **more))
    assert (code, out) == (1, "")
    assert words in err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "service"}, "KIND 'service' is none of pod, node, nodepool, nodeclaim"),
        ({"name": "shop/web"}, "NAME 'shop/web' is not a name (a pod's namespace goes to -n)"),
        ({"output": "xml"}, "--output 'xml' is neither text nor json"),
        ({"address": "localhost:8080"}, "--address 'localhost:8080' is no URL"),
        ({"kubeconfig": "/nowhere/config"}, "/nowhere/config: no such file"),
        ({}, "no kubeconfig"),
    ],
)
def test_what_cannot_be_asked(more: dict[str, Any], words: str) -> None:
    """Mistakes on the command line end with 2 before anything is asked."""
    code, out, err = run(options(**more))
    assert (code, out) == (2, "")
    assert words in err


def test_nobody_at_the_address() -> None:
    """An operator that is asked by address and is not there."""
    code, _, err = run(options(address="http://127.0.0.1:1"))
    assert code == 1
    assert "no answer: GET /why/pod/web" in err


def test_a_user_without_the_verb_is_told_which(tmp_path: Path) -> None:
    """The proxy is its own permission."""

    async def forbidden(method: str, path: str, query: Mapping[str, str]) -> Response:
        status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"}
        return Response(403, msgspec.json.encode(status), JSON)

    with a_cluster(tmp_path, forbidden) as config:
        code, _, err = run(options(kubeconfig=config))
    assert code == 1
    assert "you need the verb get on pods/proxy in namespace kube-system" in err


def test_the_lease_leads_to_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator holds it in its pod's name, else in its host's and a suffix of its own."""
    monkeypatch.setenv("POD_NAME", "karpenter-7d9f")
    assert identity(seeded(1)) == "karpenter-7d9f"
    monkeypatch.delenv("POD_NAME")
    first, second = identity(seeded(1)), identity(seeded(2))
    assert first != second
    assert first.partition("_")[0] == second.partition("_")[0] == socket.gethostname()


def test_the_command_itself() -> None:
    """Arguments reach the command; its help names the kinds."""
    helped = CliRunner().invoke(app, ["why", "--help"])
    assert "pod, node, nodepool or nodeclaim" in " ".join(helped.output.split())
    wrong = CliRunner().invoke(app, ["why", "service", "x"])
    assert wrong.exit_code == 2
