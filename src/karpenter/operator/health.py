"""The operator's small web: /healthz and /readyz on one port, /metrics and /why on another."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from karpenter.base.metrics import Metrics
from karpenter.kube.transport import Response

Check = Callable[[], str]
"""Returns why not; empty when all is well."""

Answerer = Callable[[str, Mapping[str, str]], Awaitable[Response]]
"""Answers a GET by path and query."""

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PortTaken(Exception):
    """Something else listens there already, or the port cannot be."""


def health_app(checks: dict[str, Check]) -> web.Application:
    """Return the app of `/healthz` (alive at all) and `/readyz` (every check passes)."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        failures = {name: why for name, check in checks.items() if (why := check())}
        if failures:
            text = "\n".join(f"[-]{name} failed: {why}" for name, why in failures.items())
            return web.Response(status=503, text=text)
        return web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


def metrics_app(metrics: Metrics, answer: Answerer | None = None) -> web.Application:
    """Return the app of `/metrics`, and of `/why/KIND/NAME` where there is something to `answer`.

    Rendering metrics runs beside the loop, since it can take a while.
    """

    async def render(_: web.Request) -> web.Response:
        body = await asyncio.get_running_loop().run_in_executor(None, metrics.render)
        return web.Response(body=body, headers={"Content-Type": _METRICS_TYPE})

    async def why(request: web.Request) -> web.Response:
        assert answer is not None
        said = await answer(request.path, request.query)
        return web.Response(status=said.status, body=said.body, headers=dict(said.headers))

    app = web.Application()
    app.add_routes([web.get("/metrics", render)])
    if answer is not None:
        app.add_routes([web.get("/why/{rest:.*}", why)])
    return app


def without_socket(
    metrics: Metrics, answer: Answerer
) -> Callable[[str, str, Mapping[str, str]], Awaitable[Response]]:
    """Return the server of `metrics_app` as a function of method, path and query, for an embedded cluster."""

    async def serve(method: str, path: str, query: Mapping[str, str]) -> Response:
        if method == "GET" and path == "/metrics":
            return Response(200, metrics.render(), {"content-type": _METRICS_TYPE})
        if method == "GET" and path.startswith("/why/"):
            return await answer(path, query)
        return Response(404, b"404: Not Found", {"content-type": "text/plain; charset=utf-8"})

    return serve


@asynccontextmanager
async def serving(app: web.Application, port: int, option: str, host: str = "0.0.0.0") -> AsyncIterator[None]:
    """Serve `app` on `host`:`port` for the length of the block; port 0 means not at all.

    Raises:
        PortTaken: when that cannot be; names `option`, which the port comes from.
    """
    if port == 0:
        yield
        return
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            reason = os.strerror(number).lower() if number else str(error)
            raise PortTaken(
                f"--{option}={port} cannot be served: {reason} (choose another, or 0 for none)"
            ) from error
        yield
    finally:
        await runner.cleanup()
