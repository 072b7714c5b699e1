"""Watching through the in-process transport, under virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from karpenter.base.clock import LoopClock
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.inprocess import InProcessTransport
from karpenter.embedded.store import LOG_LIMIT, Store
from karpenter.testing.embeddedapi import PODS, a_raw_pod

Event = tuple[str, str]


class World:
    """A server under virtual time, with helpers that speak in pod names."""

    def __init__(self, log_limit: int = LOG_LIMIT) -> None:
        self.store = Store(LoopClock(), seeded(1), log_limit=log_limit)
        self.server = ApiServer(self.store)
        self.transport = InProcessTransport(self.server)

    async def start(self) -> "World":
        body = b'{"metadata":{"name":"default"}}'
        await self.transport.request("POST", "/api/v1/namespaces", body=body)
        return self

    async def create(self, name: str, labels: dict[str, str] | None = None) -> None:
        body = msgspec.json.encode(a_raw_pod(name, labels=labels))
        assert (await self.transport.request("POST", PODS, body=body)).status == 201

    async def label(self, name: str, **labels: str | None) -> None:
        body = msgspec.json.encode({"metadata": {"labels": labels}})
        await self.transport.request(
            "PATCH", f"{PODS}/{name}", body=body, content_type="application/merge-patch+json"
        )

    async def delete(self, name: str) -> None:
        await self.transport.request("DELETE", f"{PODS}/{name}")

    def watch(self, **query: str) -> AsyncGenerator[bytes, None]:
        return self.transport.watch(PODS, query=query)


async def take(stream: AsyncGenerator[bytes, None], count: int) -> list[Event]:
    """Return the next `count` events as (type, name)."""
    return [named(msgspec.json.decode(await anext(stream))) for _ in range(count)]


def named(event: dict[str, Any]) -> Event:
    return event["type"], event["object"].get("metadata", {}).get("name", "")


def test_a_watch_tells_all_that_happens_after_its_version() -> None:
    """Changes come in order, each once, from the version on."""

    async def main() -> list[Event]:
        world = await World().start()
        await world.create("a")
        async with contextlib.aclosing(world.watch(resourceVersion=str(world.store.revision))) as stream:
            await world.create("b")
            await world.label("a", x="1")
            await world.delete("b")
            return await take(stream, 3)

    assert run_virtual(main()) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


def test_a_watch_without_version_begins_with_what_is_there() -> None:
    """Existing objects come as ADDED; with sendInitialEvents a bookmark ends them."""

    async def main() -> tuple[list[Event], list[Event]]:
        world = await World().start()
        await world.create("a")
        await world.create("b")
        streamed = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        async with contextlib.aclosing(world.watch()) as stream:
            plain = await take(stream, 2)
        async with contextlib.aclosing(world.watch(**streamed)) as stream:
            return plain, await take(stream, 3)

    plain, initial = run_virtual(main())
    assert plain == [("ADDED", "a"), ("ADDED", "b")]
    assert initial == [*plain, ("BOOKMARK", "")]


def test_selectors_turn_changes_into_arrivals_and_departures() -> None:
    """What begins to match is ADDED, what ceases to is DELETED, others are not heard of."""

    async def main() -> list[Event]:
        world = await World().start()
        await world.create("a", {"app": "x"})
        await world.create("b", {"app": "y"})
        async with contextlib.aclosing(world.watch(labelSelector="app=x")) as stream:
            first = await take(stream, 1)
            await world.label("b", other="1")
            await world.label("b", app="x")
            await world.label("a", more="1")
            await world.label("a", app=None)
            await world.delete("b")
            return first + await take(stream, 4)

    assert run_virtual(main()) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("DELETED", "b"),
    ]


def test_bookmarks_come_by_the_clock() -> None:
    """A quiet watch is told the newest version every minute, if it asked."""

    async def main() -> tuple[list[dict[str, Any]], float, str]:
        world = await World().start()
        started = asyncio.get_running_loop().time()
        query = {"allowWatchBookmarks": "true", "resourceVersion": "1"}
        async with contextlib.aclosing(world.watch(**query)) as stream:
            events = [msgspec.json.decode(await anext(stream)) for _ in range(2)]
        return events, asyncio.get_running_loop().time() - started, str(world.store.revision)

    events, seconds, revision = run_virtual(main())
    assert [event["type"] for event in events] == ["BOOKMARK", "BOOKMARK"]
    assert events[0]["object"]["metadata"]["resourceVersion"] == revision
    assert seconds == 120.0


def test_a_watch_ends_by_its_timeout() -> None:
    """timeoutSeconds ends the stream."""

    async def main() -> float:
        world = await World().start()
        started = asyncio.get_running_loop().time()
        async for _ in world.watch(timeoutSeconds="90"):
            pass
        return asyncio.get_running_loop().time() - started

    assert run_virtual(main()) == 90.0


def test_too_old_a_version_is_gone() -> None:
    """Both a start and a stream that fell behind are told 410."""

    async def main() -> tuple[dict[str, Any], dict[str, Any]]:
        world = await World(log_limit=4).start()
        await world.create("a")
        slow = world.watch(resourceVersion=str(world.store.revision))
        await world.label("a", n="0")
        await anext(slow)
        for index in range(20):
            await world.label("a", n=str(index))
        async with contextlib.aclosing(slow), contextlib.aclosing(world.watch(resourceVersion="1")) as late:
            behind = msgspec.json.decode(await anext(slow))
            return behind, msgspec.json.decode(await anext(late))

    behind, late = run_virtual(main())
    for event in (behind, late):
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_watch_of_nothing_is_refused_in_the_stream() -> None:
    """A refusal is one ERROR event."""

    async def main() -> list[bytes]:
        world = await World().start()
        return [event async for event in world.transport.watch("/apis/example.com/v1/widgets")]

    [event] = run_virtual(main())
    assert msgspec.json.decode(event)["object"]["code"] == 404


def test_two_runs_tell_the_same_story() -> None:
    """Same seed, same bytes."""

    async def main() -> list[bytes]:
        world = await World().start()
        async with contextlib.aclosing(world.watch()) as stream:
            await asyncio.gather(*(world.create(f"p{index}") for index in range(10)))
            return [await anext(stream) for _ in range(10)]

    assert run_virtual(main()) == run_virtual(main())
