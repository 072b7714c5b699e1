"""Local copies of API objects that tell of changes, with indexes; one per kind, shared by everybody.

Reads never wait and never fail; they may be a moment behind the API server. Objects are immutable and shared:
nobody copies them.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import structlog

from karpenter.apis.meta import KubeObject
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.kube.client import Client
from karpenter.kube.reflector import Reflector

log = structlog.get_logger()

K = TypeVar("K", bound=KubeObject)


class Change(NamedTuple, Generic[K]):
    """Something happened to one object."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: K
    """As it is now; for `DELETED`, as it last was."""
    old: K | None
    """As it was before; None for `ADDED`."""


class _Index(Generic[K]):
    """Objects by the values a function gives for them."""

    def __init__(self, keys: Callable[[K], Iterable[str]]) -> None:
        self._keys = keys
        self._members: dict[str, dict[str, K]] = {}

    def remove(self, obj: K) -> None:
        for value in self._keys(obj):
            members = self._members.get(value)
            if members is not None:
                members.pop(obj.key, None)
                if not members:
                    del self._members[value]

    def add(self, obj: K) -> None:
        for value in self._keys(obj):
            self._members.setdefault(value, {})[obj.key] = obj

    def get(self, value: str) -> list[K]:
        members = self._members.get(value)
        return [members[key] for key in sorted(members)] if members else []


class Informer(Generic[K]):
    """The local copy of one kind."""

    def __init__(self, kind: type[K]) -> None:
        self.kind = kind
        self.synced = False
        """True once the first whole list is in."""
        self._synced = asyncio.Event()
        self._objects: dict[str, K] = {}
        self._sorted: list[K] | None = None
        self._indexes: dict[str, _Index[K]] = {}
        self._handlers: list[Callable[[Change[K]], None]] = []

    def get(self, name: str, namespace: str = "") -> K | None:
        """Return one object, or None."""
        return self._objects.get(f"{namespace}/{name}" if namespace else name)

    def items(self) -> list[K]:
        """Return all objects by key; the list is shared until the next change: do not alter it."""
        if self._sorted is None:
            self._sorted = [self._objects[key] for key in sorted(self._objects)]
        return self._sorted

    def __len__(self) -> int:
        return len(self._objects)

    def add_index(self, name: str, keys: Callable[[K], Iterable[str]]) -> None:
        """Keep objects by the values of `keys`; asking twice for the same name keeps the first."""
        if name in self._indexes:
            return
        index = self._indexes[name] = _Index(keys)
        for obj in self._objects.values():
            index.add(obj)

    def by_index(self, name: str, value: str) -> list[K]:
        """Return the objects for which index `name` gives `value`, by key."""
        return self._indexes[name].get(value)

    def subscribe(self, handler: Callable[[Change[K]], None]) -> None:
        """Call `handler` with every change, in order; what is there already comes as `ADDED` now."""
        self._handlers.append(handler)
        for obj in list(self.items()):
            self._call(handler, Change("ADDED", obj, None))

    async def wait_synced(self) -> None:
        """Return once the first whole list is in."""
        await self._synced.wait()

    # What the reflector calls.

    def replace(self, items: list[K]) -> None:
        """Take `items` as everything there is, telling of the differences."""
        present = {obj.key for obj in items}
        for key in sorted(self._objects.keys() - present):
            self._remove(self._objects[key])
        for obj in items:
            old = self._objects.get(obj.key)
            if old is not None and old.metadata.uid != obj.metadata.uid:
                self._remove(old)
                old = None
            if old is None or old.metadata.resource_version != obj.metadata.resource_version:
                self._put(obj)
        self.synced = True
        self._synced.set()

    def apply(self, event: str, obj: K) -> None:
        """Take one change from a watch."""
        if event == "DELETED":
            if obj.key in self._objects:
                self._remove(obj)
        else:
            self._put(obj)

    def _put(self, obj: K) -> None:
        old = self._objects.get(obj.key)
        for index in self._indexes.values():
            if old is not None:
                index.remove(old)
            index.add(obj)
        self._objects[obj.key] = obj
        self._sorted = None
        self._tell(Change("ADDED" if old is None else "MODIFIED", obj, old))

    def _remove(self, last: K) -> None:
        old = self._objects.pop(last.key)
        for index in self._indexes.values():
            index.remove(old)
        self._sorted = None
        self._tell(Change("DELETED", last, old))

    def _tell(self, change: Change[K]) -> None:
        for handler in tuple(self._handlers):
            self._call(handler, change)

    def _call(self, handler: Callable[[Change[K]], None], change: Change[K]) -> None:
        """Tell one handler; its failure is its own and keeps nobody else from hearing."""
        try:
            handler(change)
        except Exception:
            log.exception(
                "change handler failed",
                kind=self.kind.__name__,
                key=change.object.key,
                change=change.type,
                handler=getattr(handler, "__qualname__", repr(handler)),
            )


class Cache:
    """The informers of one assembly, and their running."""

    def __init__(self, client: Client, *, clock: Clock, rng: Random, metrics: Metrics | None = None) -> None:
        self.client = client
        self._clock = clock
        self._rng = rng
        self._informers: dict[tuple[type, str, str], Informer[Any]] = {}
        self._reflectors: list[Reflector[Any]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._objects = metrics and metrics.gauge(
            "karpenter_kube_cache_objects", "Objects held in the local cache.", ["kind"]
        )

    def informer(self, kind: type[K], *, namespace: str = "", field_selector: str = "") -> Informer[K]:
        """Return the informer of `kind`, made on first use; in a running cache it starts at once."""
        key = (kind, namespace, field_selector)
        if key not in self._informers:
            informer: Informer[K] = Informer(kind)
            self._informers[key] = informer
            reflector = Reflector(
                self.client,
                kind,
                informer,
                clock=self._clock,
                rng=self._rng,
                namespace=namespace,
                field_selector=field_selector,
            )
            self._reflectors.append(reflector)
            if self._objects:
                self._objects.labels(kind.__name__).set_function(lambda: self._count(kind))
            if self._tasks is not None:
                self._tasks.create_task(reflector.run(), name=f"reflector/{kind.__name__}")
        return cast(Informer[K], self._informers[key])

    async def run(self) -> None:
        """Keep every informer in step until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for informer, reflector in zip(self._informers.values(), self._reflectors, strict=True):
                tasks.create_task(reflector.run(), name=f"reflector/{informer.kind.__name__}")
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None

    def unsynced(self) -> list[str]:
        """Return the kinds whose first whole list is not in yet."""
        return sorted({kind.__name__ for (kind, _, _), i in self._informers.items() if not i.synced})

    def _count(self, kind: type[KubeObject]) -> float:
        """Return how many objects all informers of `kind` hold."""
        return float(sum(len(i) for (known, _, _), i in self._informers.items() if known is kind))

    async def wait_synced(self) -> None:
        """Return once every informer asked for so far has its first whole list."""
        for informer in list(self._informers.values()):
            await informer.wait_synced()
