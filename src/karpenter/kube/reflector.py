"""Keeps a local copy of one kind in step with the API server: list, then watch, for ever.

The protocol (kubernetes.io, "API concepts", efficient detection of changes): a list in pages gives a resource
version; a watch from there gives every later change; bookmarks move the version on in quiet times; 410 means
that the version is too old and the list must be taken again. A broken watch is resumed where it stopped.
"""

from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import structlog

from karpenter.apis.meta import KubeObject
from karpenter.base.clock import Clock
from karpenter.base.randomness import Random
from karpenter.kube.client import Client, resource_of
from karpenter.kube.errors import ApiError, Gone, error_of
from karpenter.kube.transport import TransportError

log = structlog.get_logger()

K = TypeVar("K", bound=KubeObject)

PAGE_SIZE = 500
WATCH_TIMEOUT_SECONDS = 300
"""The server ends a watch after about this long; spread by up to as much again, as client-go does."""

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
    """Just enough of an object to know its resource version."""

    class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
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
                self._failures = 0
            except Gone:
                self._version = ""
            except (ApiError, TransportError) as error:
                self._failures += 1
                if self._failures > 1:
                    log.warning("watch failed", kind=self._kind.__name__, error=str(error))
                await self._clock.sleep(self._pause())

    def _pause(self) -> float:
        ceiling = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** (self._failures - 1))
        return ceiling * (0.5 + self._rng.random() / 2)

    async def _list(self) -> None:
        """Take the whole list, in pages of one consistent version."""
        query = {"limit": str(PAGE_SIZE), **self._selector}
        items: list[K] = []
        while True:
            page = await self._client.list_page(self._kind, self._namespace, query=query)
            items.extend(page.items)
            if not page.metadata.continue_token:
                break
            query["continue"] = page.metadata.continue_token
        self._sink.replace(items)
        self._version = page.metadata.resource_version

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
        async with aclosing(self._client.transport.watch(path, query=query)) as events:
            async for line in events:
                self._take(self._events.decode(line))

    def _take(self, event: _WatchEvent) -> None:
        if event.type == "ERROR":
            status: dict[str, Any] = msgspec.json.decode(event.object)
            raise error_of(int(status.get("code", 500)), bytes(event.object))
        if event.type == "BOOKMARK":
            self._version = self._versions.decode(event.object).metadata.resource_version
            return
        obj = self._objects.decode(event.object)
        self._version = obj.metadata.resource_version
        self._sink.apply(event.type, obj)
        self._failures = 0
