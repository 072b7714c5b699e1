"""The door for kubectl: the API server on a loopback socket, behind a token.

Plain HTTP on 127.0.0.1 only; whoever reads the kubeconfig (mode 0600) may do everything. The token is taken
as a bearer token and as the first segment of the path: kubectl sends no credentials over plain HTTP, but it
keeps the path of the server's URL, so its kubeconfig carries the token there.
"""

import asyncio
import contextlib
import hmac
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import structlog
import yaml
from aiohttp import web

from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.errors import StatusError
from karpenter.embedded.requests import MAX_BODY_BYTES, parse_target
from karpenter.kube.transport import Response

log = structlog.get_logger()
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class HttpDoor:
    """Serves one `ApiServer` over HTTP until closed.

    Args:
        host: a loopback address; anything else is refused, since the connection is not encrypted.
        port: 0 for one that is free.
        token: what clients must present as bearer token.
    """

    def __init__(self, server: ApiServer, *, host: str = "127.0.0.1", port: int = 0, token: str) -> None:
        if host not in LOOPBACK:
            raise ValueError(
                f"host {host!r} is not a loopback address (use 127.0.0.1): the API is not encrypted"
            )
        if not token:
            raise ValueError("token is empty: anybody on this machine could use the API")
        self._server = server
        self._host = host
        self._port = port
        self._token = token
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where the API is, once started."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Begin to listen; returns when connections are accepted.

        Raises:
            OSError: when the port is taken.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES + 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        for address in self._runner.addresses:
            self._port = address[1]
            break

    async def close(self) -> None:
        """Stop listening and end all watches."""
        self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> "HttpDoor":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = self._authorized_path(request)
        if path is None:
            return _answer(StatusError(401, "Unauthorized", "Unauthorized").response())
        query = dict(request.query)
        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.method == "GET" and self._server.is_watch(path, query):
            return await _stream_watch(request, self._server.watch(path, query, headers))
        if request.method == "GET" and path.endswith("/log") and query.get("follow") == "true":
            return await self._follow_log(request, path, query)
        body = await request.read()
        try:
            return _answer(await self._server.answer(request.method, path, query, headers, body))
        except Exception as error:  # a bug of ours must not look like a broken connection
            log.exception("request failed", method=request.method, path=path)
            return _answer(StatusError(500, "InternalError", f"Internal error: {error!r}").response())

    def _authorized_path(self, request: web.Request) -> str | None:
        """Return the path without its token, None when there is no token, or a wrong one."""
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        first, _, rest = request.path[1:].partition("/")
        if hmac.compare_digest(first.encode(), self._token.encode()):
            return f"/{rest}"
        return request.path if hmac.compare_digest(given.encode(), self._token.encode()) else None

    async def _follow_log(
        self, request: web.Request, path: str, query: Mapping[str, str]
    ) -> web.StreamResponse:
        # What is wrong with the request (no such pod, which container?) is said as for a plain read.
        plain = self._server.handle("GET", path, {**query, "tailLines": "0"})
        target = parse_target(path)
        if plain.status != 200 or target is None:
            return _answer(plain)
        lines = self._server.follow_log(target, query)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async with contextlib.aclosing(lines):
            with contextlib.suppress(ConnectionResetError):
                async for line in lines:
                    await response.write(line.encode() + b"\n")
        return response


async def _stream_watch(request: web.Request, events: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Send events as they come, those that are there already in one write."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    async with contextlib.aclosing(events):
        with contextlib.suppress(ConnectionResetError, asyncio.CancelledError):
            async for event in events:
                await response.write(event + b"\n")
    return response


def _answer(response: Response) -> web.Response:
    return web.Response(status=response.status, body=response.body, headers=dict(response.headers))


def write_kubeconfig(path: Path, *, url: str, token: str, name: str = "karpenter-embedded") -> None:
    """Write a kubeconfig for the door, readable by its owner only."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"{url}/{token}"}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(document, file, sort_keys=False)
    temporary.replace(path)
