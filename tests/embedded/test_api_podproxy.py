"""The pod proxy of the embedded API server: requests handed on to what is registered for a pod's port."""

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from karpenter.embedded.podproxy import Backend
from karpenter.kube.transport import Response
from karpenter.testing.embeddedapi import PODS, Api, Json


def a_pod(name: str = "web", ports: tuple[int, ...] = ()) -> Json:
    container: Json = {"name": "main", "image": "x"}
    if ports:
        container["ports"] = [{"containerPort": port} for port in ports]
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def an_echo(name: str) -> Backend:
    async def echo(method: str, path: str, query: Mapping[str, str]) -> Response:
        return Response(201, f"{name} {method} {path} {dict(query)}".encode(), {"content-type": "text/plain"})

    return echo


def ask(api: Api, path: str, method: str = "GET", **query: str) -> tuple[int, str]:
    answer = asyncio.run(api.server.answer(method, path, query))
    if "json" in answer.headers["content-type"]:
        return answer.status, str(msgspec.json.decode(answer.body)["message"])
    return answer.status, answer.body.decode()


@pytest.mark.parametrize(
    ("name", "rest", "answered"),
    [
        ("web:8080", "/why/node/n1", "a GET /why/node/n1 {}"),
        ("http:web:8080", "/x/", "a GET /x {}"),
        ("web", "", "b GET / {}"),
        ("web:9090", "/", "b GET / {}"),
    ],
)
def test_a_request_reaches_the_server_of_the_port(name: str, rest: str, answered: str) -> None:
    """Path, status and body pass through; without a port the first one that the pod names is meant."""
    api = Api()
    api.post(PODS, a_pod(ports=(9090, 8080)))
    api.server.proxy.serve("default", "web", 8080, an_echo("a"))
    api.server.proxy.serve("default", "web", 9090, an_echo("b"))
    assert ask(api, f"{PODS}/{name}/proxy{rest}") == (201, answered)


def test_method_and_query_are_handed_on() -> None:
    """What the client sent is what the pod's server gets."""
    api = Api()
    api.post(PODS, a_pod())
    api.server.proxy.serve("default", "web", 80, an_echo("a"))
    assert ask(api, f"{PODS}/web/proxy/y", "POST", q="1") == (201, "a POST /y {'q': '1'}")


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("nobody:8080", 404, 'pods "nobody" not found'),
        ("web:1", 503, "error trying to reach service: dial tcp web:1: connect: connection refused"),
        ("web:http", 400, "want [SCHEME:]NAME[:PORT]"),
        ("ftp:web:80", 400, "scheme 'ftp' is not http or https"),
    ],
)
def test_what_cannot_be_reached_says_why(name: str, status: int, message: str) -> None:
    """No such pod, nobody at the port, no port: the words are the API server's."""
    api = Api()
    api.post(PODS, a_pod())
    api.server.proxy.serve("default", "nobody", 8080, an_echo("a"))
    code, said = ask(api, f"{PODS}/{name}/proxy/x")
    assert code == status
    assert message in said


def test_a_server_that_fails_is_a_bad_answer_and_no_more() -> None:
    """An exception behind the proxy comes back as 503 with its words."""

    async def broken(method: str, path: str, query: Mapping[str, str]) -> Response:
        raise RuntimeError("ouch")

    api = Api()
    api.post(PODS, a_pod())
    api.server.proxy.serve("default", "web", 80, broken)
    assert ask(api, f"{PODS}/web/proxy") == (503, "error trying to reach service: RuntimeError: ouch")


def test_other_requests_are_answered_as_ever() -> None:
    """`answer` is `handle` for everything else, and `handle` knows no proxy."""
    api = Api()
    api.post(PODS, a_pod())
    assert asyncio.run(api.server.answer("GET", f"{PODS}/web")).status == 200
    assert api.get(f"{PODS}/web/proxy").code == 404
