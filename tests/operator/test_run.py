"""`karpenter run` as a process of its own against an API server over HTTP."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from karpenter.apis.crds import load_crds
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.http import HttpDoor, write_kubeconfig
from karpenter.embedded.store import Store

_TOKEN = "not-a-secret"
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter-leader-election"


@asynccontextmanager
async def _api(folder: Path) -> AsyncIterator[ApiServer]:
    """Serve an API without our CRDs; its kubeconfig is `folder`/kubeconfig."""
    server = ApiServer(Store(SystemClock(), seeded(1)))
    async with HttpDoor(server, token=_TOKEN) as door:
        write_kubeconfig(folder / "kubeconfig", url=door.url, token=_TOKEN)
        _send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
        yield server


def _send(server: ApiServer, method: str, path: str, body: object) -> None:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = server.handle(method, path, {}, {"content-type": kind}, msgspec.json.encode(body))
    assert answer.status < 400, answer.body


def _install_crds(server: ApiServer) -> None:
    for crd in load_crds():
        _send(server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(folder: Path, port: int, *more: str) -> list[str]:
    arguments = [f"--kubeconfig={folder}/kubeconfig", f"--health-probe-port={port}", "--metrics-port=0"]
    return [sys.executable, "-m", "karpenter", "run", *arguments, *more]


@asynccontextmanager
async def _operator(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*_command(folder, port), stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _leads(server: ApiServer) -> None:
    """Return once somebody holds the Lease."""
    for _ in range(300):
        if server.handle("GET", _LEASE, {}, {}, b"").status == 200:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("nobody took the Lease within 30 s")


async def _readyz(port: int, until: str, seconds: float = 30.0) -> str:
    """Return the first answer of /readyz that contains `until`."""
    said = "nothing"
    async with aiohttp.ClientSession() as session:
        for _ in range(int(seconds / 0.1)):
            await asyncio.sleep(0.1)
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    said = await answer.text()
            except aiohttp.ClientError:
                continue
            if until in said:
                return said
    raise AssertionError(f"/readyz never said {until!r}; last: {said}")


@pytest.mark.slow
def test_it_waits_for_its_crds_and_ends_when_asked(tmp_path: Path) -> None:
    """Without CRDs it says which are missing; once they are there it works; SIGTERM ends it."""

    async def scenario() -> None:
        port = _free_port()
        async with _api(tmp_path) as server, _operator(tmp_path, port) as process:
            said = await _readyz(port, "[-]crd failed")
            assert "nodeclaims.karpenter.sh, nodepools.karpenter.sh" in said
            _install_crds(server)
            await _readyz(port, "ok", seconds=60)
            await _leads(server)
            await asyncio.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            out, complaints = await asyncio.wait_for(process.communicate(), 5)
            assert (process.returncode, complaints) == (0, b"")
            assert b'"message":"starting controllers"' in out
            answer = server.handle("GET", _LEASE, {}, {}, b"")
            assert not msgspec.json.decode(answer.body)["spec"].get("holderIdentity"), "it is released"

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_lost_lease_ends_the_process_with_one_line(tmp_path: Path) -> None:
    """Whoever is no longer the leader stops: exit code 1, and stderr says why."""

    async def scenario() -> None:
        port = _free_port()
        async with _api(tmp_path) as server, _operator(tmp_path, port) as process:
            _install_crds(server)
            await _readyz(port, "ok", seconds=60)
            await _leads(server)
            _send(server, "PATCH", _LEASE, {"spec": {"holderIdentity": "another"}})
            _, complaints = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 1
        text = complaints.decode().strip()
        assert text == "karpenter run: lease kube-system/karpenter-leader-election was taken by another"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--solve-budgte=1"], 2, "unknown option --solve-budgte; did you mean --solve-budget?"),
        (["--metrics-port=many"], 2, "--metrics-port has value 'many': want a whole number"),
        (["--kubeconfig"], 2, "--kubeconfig needs a value: --kubeconfig=FILE"),
        (["--kubeconfig=nowhere"], 2, "nowhere"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    tmp_path: Path, arguments: list[str], code: int, complaint: str
) -> None:
    """Exit code 2, and stderr names the option and what it wants."""
    command = [sys.executable, "-m", "karpenter", "run", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == code
    [line] = done.stderr.splitlines()
    assert line.startswith("karpenter run: ")
    assert complaint in line


def test_a_taken_health_port_is_said(tmp_path: Path) -> None:
    """Exit code 1, and the line names the option."""
    write_kubeconfig(tmp_path / "kubeconfig", url="http://127.0.0.1:9", token=_TOKEN)
    with socket.create_server(("0.0.0.0", 0)) as taken:
        command = _command(tmp_path, taken.getsockname()[1])
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("karpenter run: --health-probe-port=")
    assert "address already in use" in line
