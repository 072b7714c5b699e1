"""The HTTP transport against a real local server, and its parts without one."""

import asyncio
import gc
import shutil
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from karpenter.base.clock import LoopClock, SystemClock
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.client import Client
from karpenter.kube.config import ClientConfig
from karpenter.kube.errors import TooManyRequests, error_of
from karpenter.kube.features import discover
from karpenter.kube.http import HttpTransport, RateLimit
from karpenter.kube.lines import LineDecoder
from karpenter.kube.transport import TransportError
from karpenter.testing.transport import ScriptedTransport, answer


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_lines_do_not_depend_on_chunks(parts: list[bytes], size: int) -> None:
    """However the stream is cut, the lines are the same; what has no newline yet is held back."""
    stream = b"\n".join(parts) + b"\n"
    decoder = LineDecoder()
    chunks = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert [line for c in chunks for line in decoder.feed(c)] == [
        line for line in stream.split(b"\n") if line
    ]
    assert decoder.feed(b"tail") == []


def test_rate_limit() -> None:
    """A burst goes at once, then so many a second; idle time earns no more than the burst."""

    async def main() -> list[float]:
        clock = LoopClock()
        limit, times = RateLimit(clock, 10.0, 3), []
        for _ in range(5):
            await limit.wait()
            times.append(round(clock.monotonic(), 6))
        await clock.sleep(60)
        for _ in range(4):
            await limit.wait()
            times.append(round(clock.monotonic(), 6))
        return times

    assert run_virtual(main()) == [0, 0, 0, 0.1, 0.2, 60.2, 60.2, 60.2, 60.3]


def serve(handler: Callable[[web.Request], Awaitable[web.StreamResponse]], body: Any, **config: Any) -> Any:
    """Run `body(transport)` against a local server."""

    async def main() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        settings = ClientConfig(server=f"http://127.0.0.1:{port}", **config)
        transport = HttpTransport(settings, clock=SystemClock())
        try:
            return await body(transport)
        finally:
            await transport.close()
            await transport.close()
            await runner.cleanup()

    return asyncio.run(main())


def test_a_request_and_its_answer() -> None:
    """Method, query, body, content type and token arrive; status, headers and body come back."""
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.extend([request.method, request.path_qs, await request.read(), request.content_type])
        seen.append(request.headers["Authorization"])
        return web.Response(status=418, body=b"{}", headers={"Retry-After": "7"})

    async def body(transport: HttpTransport) -> Any:
        return await transport.request(
            "PATCH", "/x", query={"a": "b c"}, body=b"1", content_type="application/merge-patch+json"
        )

    response = serve(handler, body, token="t")
    assert seen == ["PATCH", "/x?a=b+c", b"1", "application/merge-patch+json", "Bearer t"]
    assert (response.status, response.body, response.headers["retry-after"]) == (418, b"{}", "7")


def test_watches_yield_lines_and_tell_how_they_end() -> None:
    """Lines come whole; an orderly end ends the generator, a broken one raises."""

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.query["watch"] == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in (b'{"a"', b":1}\n{}", b"\n"):
            await response.write(chunk)
        if request.path == "/broken":
            assert request.transport is not None
            request.transport.abort()
        return response

    async def body(transport: HttpTransport) -> Any:
        async def lines(path: str) -> list[bytes]:
            async with aclosing(transport.watch(path)) as events:
                return [line async for line in events]

        with pytest.raises(TransportError, match="watch /broken"):
            await lines("/broken")
        return await lines("/fine")

    assert serve(handler, body) == [b'{"a":1}', b"{}"]


def test_a_watch_that_is_left_closes_its_connection(tmp_path: Path) -> None:
    """Over TLS too, before the loop can end: Python warns of a socket that is still open then."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the server's certificate, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    def answer_one(listener: socket.socket) -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
            with suppress(OSError):
                connection.recv(1)  # until the client hangs up

    async def client(port: int) -> None:
        settings = ClientConfig(server=f"https://127.0.0.1:{port}", ca_data=certificate.read_bytes())
        transport = HttpTransport(settings, clock=SystemClock())
        async with aclosing(transport.watch("/x")) as events:
            assert await anext(events) == b"{}"
        await transport.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_one, args=(listener,))
        server.start()
        asyncio.run(client(listener.getsockname()[1]))
        server.join()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(w.message) for w in seen] == []


def test_a_refused_watch_is_an_error_event() -> None:
    """A refusal comes as an ERROR event with the code and how long to wait."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, body=b"slow down", headers={"Retry-After": "9"})

    async def body(transport: HttpTransport) -> Any:
        return [line async for line in transport.watch("/x")]

    (line,) = serve(handler, body)
    assert b'"ERROR"' in line
    error = error_of(429, msgspec.json.encode(msgspec.json.decode(line)["object"]))
    assert isinstance(error, TooManyRequests)
    assert error.retry_after_seconds == 9.0


def test_nobody_there() -> None:
    """A refused connection is a TransportError that names the request."""

    async def main() -> None:
        transport = HttpTransport(ClientConfig(server="http://127.0.0.1:9"), clock=SystemClock())
        try:
            with pytest.raises(TransportError, match="GET /version"):
                await transport.request("GET", "/version")
        finally:
            await transport.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("minor", "groups", "expected"),
    [
        ("32", {}, (False, "", False)),
        ("33+", {"resource.k8s.io": ["v1beta1"]}, (False, "v1beta1", True)),
        ("36", {"resource.k8s.io": ["v1", "v1beta2"]}, (True, "v1", True)),
    ],
)
def test_features(minor: str, groups: dict[str, list[str]], expected: tuple[bool, str, bool]) -> None:
    """Abilities follow from the version and from what is served."""
    server = ScriptedTransport()
    server.on("GET", "/version", answer({"major": "1", "minor": minor}))
    listed = [{"name": n, "versions": [{"version": v} for v in vs]} for n, vs in groups.items()]
    server.on("GET", "/apis", answer({"groups": listed}))
    features = run_virtual(discover(Client(server)))
    assert (features.nomination, features.dra_version, features.in_place_resize) == expected
    assert not features.provisioning_request
