"""Informers kept in step by a reflector, against scripted servers, under virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from karpenter.apis.core import Node, Pod
from karpenter.base.background import background
from karpenter.base.clock import LoopClock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.client import Client
from karpenter.kube.informer import Cache, Change
from karpenter.kube.transport import TransportError
from karpenter.testing.transport import ScriptedTransport, Stream, a_list, refusal

PODS = "/api/v1/pods"


def pod(name: str, version: int, *, uid: str = "", node: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or name,
            "resourceVersion": str(version),
            "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}],
        },
        "spec": {"nodeName": node},
    }


def bookmark(version: int) -> tuple[str, dict[str, Any]]:
    return "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}


Told = list[tuple[str, str, str]]


def play(
    server: ScriptedTransport, seconds: float, check: Callable[[Cache, LoopClock], None] | None = None
) -> Told:
    """Run a pod informer on `server` for `seconds`; return (change, name, version) as told."""
    told: Told = []

    async def main() -> None:
        clock = LoopClock()
        cache = Cache(Client(server), clock=clock, rng=seeded(1), metrics=Metrics())

        def note(change: Change[Pod]) -> None:
            told.append((change.type, change.object.name, change.object.metadata.resource_version))

        cache.informer(Pod).subscribe(note)
        async with background(cache.run(), "cache"):
            await clock.sleep(seconds)
            if check:
                check(cache, clock)

    run_virtual(main())
    return told


def test_pages_then_events_then_resume() -> None:
    """All pages make one list; a broken watch is resumed where it stopped, without another list."""
    server = ScriptedTransport()
    server.on(
        "GET",
        PODS,
        a_list(pod("a", 1), version="5", more="next"),
        a_list(pod("b", 2), version="5"),
    )
    server.on_watch(
        PODS,
        Stream((("ADDED", pod("c", 6)), bookmark(9)), then="break"),
        Stream((("MODIFIED", pod("a", 10)), ("DELETED", pod("b", 11)))),
    )
    told = play(server, 60)
    assert told == [
        ("ADDED", "a", "1"),
        ("ADDED", "b", "2"),
        ("ADDED", "c", "6"),
        ("MODIFIED", "a", "10"),
        ("DELETED", "b", "11"),
    ]
    assert [r.query.get("continue") for r in server.of("GET", PODS)] == [None, "next"]
    assert server.of("GET", PODS)[0].query["limit"] == "500"
    assert [w.query["resourceVersion"] for w in server.watches] == ["5", "9"]
    assert server.watches[0].query["allowWatchBookmarks"] == "true"


@pytest.mark.parametrize("how", ["event", "http"])
def test_gone_lists_again_and_tells_the_differences(how: str) -> None:
    """After 410 the list replaces the copy: gone is DELETED, remade is DELETED and ADDED, equal is silent."""
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    server = ScriptedTransport()
    server.on(
        "GET",
        PODS,
        a_list(pod("gone", 1), pod("remade", 2), pod("same", 3), pod("changed", 4), version="5"),
        a_list(pod("changed", 8), pod("new", 9), pod("remade", 2, uid="other"), pod("same", 3), version="9"),
    )
    events = (("ERROR", gone),) if how == "event" else (bookmark(6), ("ERROR", gone))
    server.on_watch(PODS, Stream(events))
    told = play(server, 30)
    assert told[4:] == [
        ("DELETED", "gone", "1"),
        ("MODIFIED", "changed", "8"),
        ("ADDED", "new", "9"),
        ("DELETED", "remade", "2"),
        ("ADDED", "remade", "2"),
    ]
    assert server.watches[-1].query["resourceVersion"] == "9"


def test_a_list_token_that_expires_is_followed_by_one_whole_list() -> None:
    """410 between two pages: the list is taken again without pages, once."""
    server = ScriptedTransport()
    server.on(
        "GET",
        PODS,
        a_list(pod("a", 1), version="5", more="next"),
        refusal(410, "Expired"),
        a_list(pod("a", 1), pod("b", 2), version="7"),
    )
    assert play(server, 1) == [("ADDED", "a", "1"), ("ADDED", "b", "2")]
    assert [r.query for r in server.of("GET", PODS)][2] == {}


@pytest.mark.parametrize(
    "failure", [TransportError("refused"), refusal(500), refusal(403, "Forbidden"), refusal(410, "Expired")]
)
def test_a_server_that_keeps_failing_is_asked_less_and_less(failure: Any) -> None:
    """Failures are retried for ever, with pauses that grow to half a minute: no tight loop."""
    server = ScriptedTransport()
    server.on("GET", PODS, failure)
    play(server, 600)
    assert 20 <= len(server.of("GET", PODS)) <= 90


def test_watches_that_end_at_once_do_not_spin() -> None:
    """A server that closes every watch unheard is asked less and less."""
    server = ScriptedTransport()
    server.on("GET", PODS, a_list(version="5"))
    server.on_watch(PODS, *[Stream(then="end")] * 1000)
    play(server, 600)
    assert 20 <= len(server.watches) <= 50
    assert len(server.of("GET", PODS)) == 1


def test_the_pause_the_server_asks_for_is_kept() -> None:
    """Retry-After is a lower bound for the pause."""
    server = ScriptedTransport()
    server.on("GET", PODS, refusal(429, "TooManyRequests", retry_after="100"), a_list(version="5"))
    play(server, 99)
    assert len(server.of("GET", PODS)) == 1
    server.on("GET", PODS, refusal(429, "TooManyRequests", retry_after="100"), a_list(version="5"))
    play(server, 101)
    assert len(server.of("GET", PODS)) == 3


def test_an_object_that_does_not_fit_leaves_the_others_alone() -> None:
    """One unreadable object, listed or watched, is left out; the version moves on over it."""
    bad = {"metadata": {"name": "bad", "resourceVersion": "7"}, "spec": {"nodeName": 5}}
    server = ScriptedTransport()
    server.on("GET", PODS, a_list(pod("a", 1), bad, pod("b", 2), version="5"))
    server.on_watch(PODS, Stream((("ADDED", pod("c", 6)), ("ADDED", bad)), then="break"))
    assert [name for _, name, _ in play(server, 60)] == ["a", "b", "c"]
    assert server.watches[1].query["resourceVersion"] == "7"


def test_indexes_follow_changes() -> None:
    """An index knows each object under its present values only; lookups are by key order."""
    server = ScriptedTransport()
    server.on("GET", PODS, a_list(pod("b", 1, node="n1"), pod("a", 2, node="n1"), pod("c", 3), version="5"))
    server.on_watch(PODS, Stream((("MODIFIED", pod("b", 6, node="n2")), ("DELETED", pod("a", 7, node="n1")))))

    def check(cache: Cache, clock: LoopClock) -> None:
        informer = cache.informer(Pod)
        informer.add_index("node", lambda p: [p.spec.node_name] if p.spec.node_name else [])
        assert [p.name for p in informer.by_index("node", "n2")] == ["b"]
        assert informer.by_index("node", "n1") == []
        assert [p.name for p in informer.items()] == ["b", "c"]
        found = informer.get("b", "ns")
        assert found is not None
        assert found.metadata.resource_version == "6"
        assert informer.get("b") is None

    play(server, 5, check)


def test_a_failing_handler_harms_nobody_else() -> None:
    """Handlers after a failing one still hear everything, and the reflector goes on."""
    server = ScriptedTransport()
    server.on("GET", PODS, a_list(pod("a", 1), version="5"))
    server.on_watch(PODS, Stream((("ADDED", pod("b", 6)),)))
    heard: list[str] = []

    async def main() -> None:
        clock = LoopClock()
        cache = Cache(Client(server), clock=clock, rng=seeded(1))

        def broken(change: Change[Pod]) -> None:
            raise RuntimeError("a bug")

        cache.informer(Pod).subscribe(broken)
        cache.informer(Pod).subscribe(lambda change: heard.append(change.object.name))
        async with background(cache.run(), "cache"):
            await clock.sleep(1)

    run_virtual(main())
    assert heard == ["a", "b"]


def _run_cache(
    body: Callable[[Cache, LoopClock], Coroutine[Any, Any, None]], server: ScriptedTransport
) -> None:
    async def main() -> None:
        clock = LoopClock()
        cache = Cache(Client(server), clock=clock, rng=seeded(1))
        async with background(cache.run(), "cache"):
            await body(cache, clock)

    run_virtual(main())


def test_informers_made_late_start_at_once_and_replay() -> None:
    """In a running cache a new informer syncs; a late subscriber hears what is there as ADDED."""
    server = ScriptedTransport()
    server.on(
        "GET", "/api/v1/nodes", a_list({"metadata": {"name": "n1", "resourceVersion": "1"}}, version="2")
    )

    async def body(cache: Cache, clock: LoopClock) -> None:
        await clock.sleep(1)
        nodes = cache.informer(Node)
        assert not nodes.synced
        assert cache.informer(Node) is nodes
        async with asyncio.timeout(5):
            await cache.wait_synced()
        heard: list[tuple[str, str]] = []
        nodes.subscribe(lambda change: heard.append((change.type, change.object.name)))
        assert heard == [("ADDED", "n1")]

    _run_cache(body, server)


def test_field_selectors_are_informers_of_their_own() -> None:
    """The selector goes into list and watch, and keeps its own copy."""
    server = ScriptedTransport()
    server.on("GET", PODS, a_list(version="2"))

    async def body(cache: Cache, clock: LoopClock) -> None:
        some = cache.informer(Pod, field_selector="spec.nodeName=n1")
        assert some is not cache.informer(Pod)
        await clock.sleep(1)

    _run_cache(body, server)
    assert {r.query.get("fieldSelector") for r in server.requests} == {None, "spec.nodeName=n1"}
    assert {w.query.get("fieldSelector") for w in server.watches} == {None, "spec.nodeName=n1"}
