"""Keeps a local copy of one kind in step with the API server: list, then watch, for ever.

The protocol (kubernetes.io, "API concepts", efficient detection of changes): a list in pages gives a resource
version; a watch from there gives every later change; bookmarks move the version on in quiet times; 410 means
that the version is too old and the list must be taken again. A broken watch is resumed where it stopped.
"""

from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from karpenter.apis.meta import KubeObject
from karpenter.base.clock import Clock
from karpenter.base.randomness import Random
from karpenter.kube.client import Client, resource_of
from karpenter.kube.errors import ApiError, Gone, StatusBody, error_of
from karpenter.kube.transport import TransportError

log = structlog.get_logger()

K = TypeVar("K", bound=KubeObject)

PAGE_SIZE = 500
WATCH_TIMEOUT_SECONDS = 300
"""The server ends a watch after about this long; spread by up to as much again, as client-go does."""

SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner and told nothing is a failure, or it would be opened again in a tight loop."""

_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 30.0


class Sink(Protocol[K]):
    """Where a reflector puts what it learns."""

    def replace(self, items: list[K]) -> None:
        """Take `items` as everything there is."""
        ...

    def apply(self, event: str, obj: K) -> None:
        """Take one change (`ADDED`, `MODIFIED` or `DELETED`)."""
        ...


class _WatchEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Versioned(msgspec.Struct, frozen=True, gc=False):
    """Just enough of an object to know which it is, and of which version."""

    class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
        name: str = ""
        namespace: str = ""
        resource_version: str = ""

    metadata: Meta = Meta()


class Reflector(Generic[K]):
    """Lists and watches one kind, telling a sink."""

    def __init__(
        self,
        client: Client,
        kind: type[K],
        sink: Sink[K],
        *,
        clock: Clock,
        rng: Random,
        namespace: str = "",
        field_selector: str = "",
    ) -> None:
        self._client = client
        self._kind = kind
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._namespace = namespace
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._version = ""
        self._failures = 0
        self._heard = False
        self._events = msgspec.json.Decoder(_WatchEvent)
        self._objects: msgspec.json.Decoder[K] = msgspec.json.Decoder(kind)
        self._versions = msgspec.json.Decoder(_Versioned)

    async def run(self) -> None:
        """Reflect until cancelled; whatever fails is tried again with growing, jittered pauses."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone as error:
                self._version = ""
                if self._failures:  # the first time, list again at once
                    await self._rest(error)
                self._failures += 1
            except (ApiError, TransportError, msgspec.DecodeError) as error:
                await self._rest(error)

    async def _rest(self, error: Exception) -> None:
        """Note a failure and pause: longer each time, and at least as long as the server asks for."""
        self._failures += 1
        if self._failures > 1:
            log.warning("watch failed", kind=self._kind.__name__, error=str(error), failures=self._failures)
        ceiling = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(self._failures - 1, 16))
        pause = ceiling * (0.5 + self._rng.random() / 2)
        asked = error.retry_after_seconds if isinstance(error, ApiError) else None
        await self._clock.sleep(max(pause, asked or 0.0))

    async def _list(self) -> None:
        """Take the whole list, in pages of one consistent version.

        When that version is compacted between two pages, the list is taken once more in one piece, as
        client-go does: a list that always outlives its token would never end otherwise.
        """
        try:
            items, version = await self._pages({"limit": str(PAGE_SIZE), **self._selector})
        except Gone:
            items, version = await self._pages(dict(self._selector))
        self._sink.replace(items)
        self._version = version

    async def _pages(self, query: dict[str, str]) -> tuple[list[K], str]:
        items: list[K] = []
        while True:
            page = await self._client.list_page(
                self._kind, self._namespace, query=query, unreadable=self._unreadable
            )
            items.extend(page.items)
            if not page.metadata.continue_token:
                return items, page.metadata.resource_version
            query["continue"] = page.metadata.continue_token

    def _unreadable(self, body: bytes, error: msgspec.ValidationError) -> None:
        """Say that one object is left out; the others must not suffer for it."""
        meta = self._versions.decode(body).metadata
        log.error(
            "object left out, it does not fit its kind",
            kind=self._kind.__name__,
            name=meta.name,
            namespace=meta.namespace,
            error=str(error),
        )

    async def _watch(self) -> None:
        """Follow changes until the server ends the stream."""
        timeout = int(WATCH_TIMEOUT_SECONDS * (1 + self._rng.random()))
        query = {
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout),
            **self._selector,
        }
        path = resource_of(self._kind).path(self._namespace)
        started, self._heard = self._clock.monotonic(), False
        async with aclosing(self._client.transport.watch(path, query=query)) as events:
            async for line in events:
                self._take(self._events.decode(line))
        if not self._heard and self._clock.monotonic() - started < SHORT_WATCH_SECONDS:
            raise TransportError("the watch ended at once and told nothing")
        self._failures = 0

    def _take(self, event: _WatchEvent) -> None:
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=StatusBody)
            raise error_of(status.code or 500, bytes(event.object))
        self._heard, self._failures = True, 0
        if event.type == "BOOKMARK":
            self._version = self._versions.decode(event.object).metadata.resource_version
            return
        try:
            obj = self._objects.decode(event.object)
        except msgspec.ValidationError as error:
            self._unreadable(bytes(event.object), error)
            self._version = self._versions.decode(event.object).metadata.resource_version
            return
        self._version = obj.metadata.resource_version
        self._sink.apply(event.type, obj)
