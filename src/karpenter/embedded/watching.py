"""Watch streams: each one reads its resource's log at its own pace.

A watcher holds a position, not a queue, so a thousand slow ones cost nothing; who falls so far behind that
the log has dropped its position is told 410 and lists again. What the selectors make of a change depends on
both versions: an object that starts to match appears as ADDED, one that stops as DELETED.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from karpenter.embedded import errors
from karpenter.embedded.kinds import Kind
from karpenter.embedded.selecting import Accepts
from karpenter.embedded.store import Compacted, Entry, Record, Store, encode_event

BOOKMARK_SECONDS = 60.0
Render = Callable[[str, Record], bytes]
"""Encodes one event; given when a watcher wants something else than the object as it is (tables)."""


class Signals:
    """Wakes watchers when their resource changes."""

    def __init__(self, store: Store) -> None:
        self._events: dict[str, asyncio.Event] = {}
        store.listeners.append(self._changed)
        self.closed = False

    def _changed(self, group_resource: str) -> None:
        event = self._events.get(group_resource)
        if event is not None and not event.is_set():
            event.set()

    async def wait(self, group_resource: str, seconds: float) -> bool:
        """Return True after the next change, False when none came in time."""
        event = self._events.get(group_resource)
        if event is None or event.is_set():
            # A set event has woken those who waited; who comes later waits for the next change.
            event = self._events[group_resource] = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """End all watches."""
        self.closed = True
        for event in self._events.values():
            event.set()


class WatchPlan(msgspec.Struct, frozen=True):
    """What one watch request asks for."""

    kind: Kind
    namespace: str
    accepts: Accepts | None
    revision: int | None  # None: begin with what is there
    bookmarks: bool = False
    initial_bookmark: bool = False  # sendInitialEvents: say where the initial list ends
    timeout_seconds: float | None = None
    render: Render | None = None


async def watch_stream(store: Store, signals: Signals, plan: WatchPlan) -> AsyncGenerator[bytes, None]:
    """Yield the events of one watch until it times out, falls behind or the server closes."""
    resource = plan.kind.group_resource
    try:
        if plan.revision is None:
            revision = store.revision
            position = store.position(resource, revision)
            for record in store.records(resource, plan.namespace):
                if plan.accepts is None or plan.accepts(record):
                    yield _event(plan, "ADDED", record)
            if plan.initial_bookmark:
                yield _bookmark(plan.kind, revision, initial_end=True)
        else:
            position = store.position(resource, plan.revision)
    except Compacted:
        yield _expired()
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + plan.timeout_seconds if plan.timeout_seconds is not None else None
    while not signals.closed:
        try:
            entries = store.changes(resource, position)
        except Compacted:
            yield _expired()
            return
        if entries:
            position += len(entries)
            for entry in entries:
                event = _relevant(plan, entry)
                if event is not None:
                    yield event
            continue
        wait = BOOKMARK_SECONDS
        if deadline is not None:
            wait = min(wait, deadline - loop.time())
            if wait <= 0:
                if plan.bookmarks:
                    yield _bookmark(plan.kind, store.revision)
                return
        changed = await signals.wait(resource, wait)
        if plan.bookmarks and not changed and not store.changes(resource, position, 1):
            yield _bookmark(plan.kind, store.revision)


def _relevant(plan: WatchPlan, entry: Entry) -> bytes | None:
    """Return the event that a change is to this watcher, None when it is none."""
    record = entry.record
    if plan.namespace and record.namespace != plan.namespace:
        return None
    if plan.accepts is None:
        return entry.encoded() if plan.render is None else plan.render(entry.type, record)
    before = entry.previous is not None and plan.accepts(entry.previous)
    after = entry.type != "DELETED" and plan.accepts(record)
    if before and after:
        return _event(plan, "MODIFIED", record, entry)
    if after:
        return _event(plan, "ADDED", record, entry)
    if before:
        return _event(plan, "DELETED", record, entry)
    return None


def _event(plan: WatchPlan, type: str, record: Record, entry: Entry | None = None) -> bytes:
    if plan.render is not None:
        return plan.render(type, record)
    if entry is not None and entry.type == type:
        return entry.encoded()
    return encode_event(type, record.body)


def _bookmark(kind: Kind, revision: int, *, initial_end: bool = False) -> bytes:
    meta: dict[str, object] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
    return encode_event("BOOKMARK", msgspec.json.encode(body))


def _expired() -> bytes:
    return encode_event("ERROR", msgspec.json.encode(errors.expired().status()))


async def error_stream(error: errors.StatusError) -> AsyncGenerator[bytes, None]:
    """Yield a refusal as a watch says it."""
    yield encode_event("ERROR", msgspec.json.encode(error.status()))
