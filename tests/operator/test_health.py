"""The operator's web: /healthz, /readyz, /metrics over real sockets on the loopback interface."""

import asyncio
import socket

import aiohttp
import pytest

from karpenter.base.metrics import Metrics
from karpenter.operator.health import PortTaken, health_app, metrics_app, serving


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


def test_readyz_says_which_check_fails_and_why() -> None:
    """An unready operator names the check and the reason; a ready one says ok; healthz is always ok."""

    async def scenario() -> None:
        port, why = _free_port(), ["state is not synced"]
        async with serving(health_app({"state": lambda: why[0]}), port, "port", "127.0.0.1"):
            assert await _get(port, "/readyz") == (503, "[-]state failed: state is not synced")
            assert await _get(port, "/healthz") == (200, "ok")
            why[0] = ""
            assert await _get(port, "/readyz") == (200, "ok")

    asyncio.run(scenario())


def test_metrics_come_in_prometheus_text() -> None:
    """/metrics renders what was counted."""

    async def scenario() -> None:
        port, metrics = _free_port(), Metrics()
        metrics.counter("karpenter_nodes_created_total", "Nodes.", ["nodepool"]).labels("default").inc()
        async with serving(metrics_app(metrics), port, "port", "127.0.0.1"):
            status, text = await _get(port, "/metrics")
        assert status == 200
        assert 'karpenter_nodes_created_total{nodepool="default"} 1.0' in text

    asyncio.run(scenario())


def test_port_zero_serves_nothing() -> None:
    """Port 0 turns a server off."""

    async def scenario() -> None:
        async with serving(metrics_app(Metrics()), 0, "metrics-port"):
            pass

    asyncio.run(scenario())


def test_a_taken_port_is_said_with_its_option() -> None:
    """The error names the option, the port and the reason."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(PortTaken, match=f"--metrics-port={port} .*address already in use"):
                async with serving(metrics_app(Metrics()), port, "metrics-port", "127.0.0.1"):
                    pass
        with pytest.raises(PortTaken, match="--metrics-port=70000"):
            async with serving(metrics_app(Metrics()), 70000, "metrics-port", "127.0.0.1"):
                pass

    asyncio.run(scenario())
