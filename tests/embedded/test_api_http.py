"""The HTTP door: tokens, streams, and what comes over the wire."""

import asyncio
import io
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml

from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.http import HttpDoor, write_kubeconfig
from karpenter.embedded.store import Store
from karpenter.testing.embeddedapi import PODS, a_raw_pod

TOKEN = "secret"
JSON = {"content-type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def a_server() -> ApiServer:
    server = ApiServer(Store(SystemClock(), seeded(1)))
    server.handle("POST", "/api/v1/namespaces", {}, {}, b'{"metadata":{"name":"default"}}')
    return server


def test_only_the_token_opens() -> None:
    """As bearer token or as first path segment; everything else is 401."""

    async def main() -> dict[str, int]:
        async with HttpDoor(a_server(), token=TOKEN) as door, aiohttp.ClientSession() as session:
            codes = {}
            for name, path, headers in (
                ("bearer", "/api/v1/pods", BEARER),
                ("path", f"/{TOKEN}/api/v1/pods", {}),
                ("none", "/api/v1/pods", {}),
                ("wrong", "/api/v1/pods", {"Authorization": "Bearer guess"}),
                ("wrong path", "/guess/api/v1/pods", {}),
            ):
                async with session.get(door.url + path, headers=headers) as response:
                    codes[name] = response.status
            return codes

    assert asyncio.run(main()) == {"bearer": 200, "path": 200, "none": 401, "wrong": 401, "wrong path": 401}


def test_a_watch_streams_lines_and_ends_with_the_door() -> None:
    """Each event is one line; closing the door ends the stream."""

    async def main() -> list[str]:
        server = a_server()
        lines = []
        async with aiohttp.ClientSession(headers=BEARER) as session:
            door = HttpDoor(server, token=TOKEN)
            await door.start()
            async with session.get(f"{door.url}{PODS}?watch=true") as response:
                for name in ("a", "b"):
                    body = msgspec.json.encode(a_raw_pod(name))
                    async with session.post(
                        f"{door.url}{PODS}", data=body, headers={"content-type": "application/json"}
                    ) as made:
                        assert made.status == 201
                    lines.append(await response.content.readline())
                closing = asyncio.create_task(door.close())
                assert await response.content.readline() == b""
                await closing
        return [msgspec.json.decode(line)["object"]["metadata"]["name"] for line in lines]

    assert asyncio.run(main()) == ["a", "b"]


def test_large_bodies_are_refused() -> None:
    """413 beyond 3 MiB."""

    async def main() -> int:
        async with (
            HttpDoor(a_server(), token=TOKEN) as door,
            aiohttp.ClientSession(headers=BEARER) as session,
            session.post(f"{door.url}{PODS}", data=io.BytesIO(b" " * (3 * 1024 * 1024 + 10))) as response,
        ):
            return response.status

    assert asyncio.run(main()) == 413


def test_a_bug_is_answered_as_one() -> None:
    """500 with a Status, instead of a dropped connection."""

    async def main() -> tuple[int, str]:
        server = a_server()

        def refuse(_: object) -> None:
            raise OSError("disk full")

        server.store.journal = refuse
        async with HttpDoor(server, token=TOKEN) as door, aiohttp.ClientSession(headers=BEARER) as session:
            body = msgspec.json.encode(a_raw_pod())
            async with session.post(f"{door.url}{PODS}", data=body, headers=JSON) as response:
                return response.status, (await response.json())["message"]

    code, message = asyncio.run(main())
    assert code == 500
    assert "disk full" in message


def test_the_door_stays_on_this_machine() -> None:
    """Other addresses and empty tokens are refused."""
    with pytest.raises(ValueError, match="not a loopback address"):
        HttpDoor(a_server(), host="0.0.0.0", token=TOKEN)
    with pytest.raises(ValueError, match="token is empty"):
        HttpDoor(a_server(), token="")


def test_the_kubeconfig_is_private(tmp_path: Path) -> None:
    """Mode 0600, also where a laxer file was before."""
    path = tmp_path / "deep" / "config"
    path.parent.mkdir()
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, url="http://127.0.0.1:1", token=TOKEN)
    assert path.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == f"http://127.0.0.1:1/{TOKEN}"
    assert config["users"][0]["user"]["token"] == TOKEN
