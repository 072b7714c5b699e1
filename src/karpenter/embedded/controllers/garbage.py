"""Owner references: what nobody owns any more goes, what waits for its dependents waits.

A graph of the metadata of every object (uid to owners) is kept from informers over every kind discovery
names. Background deletion follows from an owner's disappearance; `foregroundDeletion` and `orphan` are
finalizers that this controller removes when the dependents are gone, or let go.
"""

import asyncio
from typing import Any

import msgspec

from karpenter.apis.meta import KubeObject, OwnerReference, Resource
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.catalogue import metadata_kind, served_resources
from karpenter.kube.errors import Conflict, NotFound, error_of
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
IGNORED = {("", "events"), ("events.k8s.io", "events")}
"""Events own nothing and nobody owns them, and there are many."""
GRACE_SECONDS = 1.0
"""How long an owner may be unknown before we ask for it: its informer may only be slower."""
DISCOVERY_SECONDS = 60.0


class _Vertex(msgspec.Struct, frozen=True):
    resource: Resource
    kind: type[KubeObject]
    namespace: str
    name: str
    uid: str
    owners: list[OwnerReference]
    finalizers: list[str]
    deleting: bool

    def path(self) -> str:
        return self.resource.path(self.namespace, self.name)


class GarbageCollector:
    """Follows ownership through all kinds."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._cache = cache
        self._client = cache.client
        self._clock = clock
        self._graph: dict[str, _Vertex] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._kinds: dict[tuple[str, str], Resource] = {}  # (group, kind)
        self._watched: set[tuple[str, str]] = set()
        self._controller = Controller(
            "garbage-collector", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )

    async def run(self) -> None:
        """Collect until cancelled; kinds that appear later are taken in within a minute."""
        await self.discover()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            while True:
                await self._clock.sleep(DISCOVERY_SECONDS)
                await self.discover()

    async def discover(self) -> None:
        """Watch every kind that is not watched yet."""
        for resource in await served_resources(self._client):
            place = (resource.group, resource.plural)
            self._kinds[(resource.group, resource.kind)] = resource
            if place in self._watched or place in IGNORED:
                continue
            self._watched.add(place)
            kind = metadata_kind(resource)
            informer = self._cache.informer(kind)
            informer.subscribe(lambda change, r=resource, k=kind: self._observe(change, r, k))  # type: ignore[misc]

    def _observe(self, change: Change[KubeObject], resource: Resource, kind: type[KubeObject]) -> None:
        meta = change.object.metadata
        known = self._graph.get(meta.uid)
        if change.type == "DELETED":
            self._forget(meta.uid)
            return
        vertex = _Vertex(
            resource,
            kind,
            meta.namespace,
            meta.name,
            meta.uid,
            meta.owner_references,
            meta.finalizers,
            meta.deletion_timestamp is not None,
        )
        self._graph[meta.uid] = vertex
        if known is None or known.owners != vertex.owners:
            for owner in known.owners if known else ():
                self._dependents.get(owner.uid, {}).pop(meta.uid, None)
            for owner in vertex.owners:
                self._dependents.setdefault(owner.uid, {})[meta.uid] = None
            if any(owner.uid not in self._graph for owner in vertex.owners):
                self._controller.enqueue(meta.uid, after=GRACE_SECONDS)
        if vertex.deleting and (FOREGROUND in vertex.finalizers or ORPHAN in vertex.finalizers):
            self._controller.enqueue(meta.uid)

    def _forget(self, uid: str) -> None:
        vertex = self._graph.pop(uid, None)
        if vertex is None:
            return
        for owner in vertex.owners:
            siblings = self._dependents.get(owner.uid)
            if siblings is not None:
                siblings.pop(uid, None)
                if not siblings:
                    del self._dependents[owner.uid]
            above = self._graph.get(owner.uid)
            if above is not None and above.deleting:
                self._controller.enqueue(owner.uid)
        for dependent in self._dependents.get(uid, ()):
            self._controller.enqueue(dependent)

    async def reconcile(self, uid: str) -> Result:
        """See to one object: as an owner that waits, or as a dependent that may be garbage."""
        vertex = self._graph.get(uid)
        if vertex is None:
            return Result()
        try:
            if vertex.deleting:
                if ORPHAN in vertex.finalizers:
                    await self._orphan(vertex)
                elif FOREGROUND in vertex.finalizers:
                    await self._clear_dependents(vertex)
            else:
                await self._collect(vertex)
        except NotFound:
            return Result()
        return Result()

    async def _collect(self, vertex: _Vertex) -> None:
        if not vertex.owners:
            return
        solid: list[OwnerReference] = []
        dangling: list[OwnerReference] = []
        for owner in vertex.owners:
            (solid if await self._exists(owner, vertex.namespace) else dangling).append(owner)
        if not dangling:
            return
        if solid:
            gone = {owner.uid for owner in dangling}
            await self._keep_owners(vertex, [o for o in vertex.owners if o.uid not in gone])
            return
        policy = "Background"
        if ORPHAN in vertex.finalizers:
            policy = "Orphan"
        elif FOREGROUND in vertex.finalizers:
            policy = "Foreground"
        await self._delete(vertex, policy)

    async def _exists(self, owner: OwnerReference, namespace: str) -> bool:
        if owner.uid in self._graph:
            return True
        group = owner.api_version.rpartition("/")[0]
        resource = self._kinds.get((group, owner.kind))
        if resource is None:
            await self.discover()
            resource = self._kinds.get((group, owner.kind))
            if resource is None:
                return True  # of a kind nobody serves: we cannot know
        path = resource.path(namespace if resource.namespaced else "", owner.name)
        answer = await self._client.transport.request("GET", path)
        if answer.status == 404:
            return False
        if answer.status >= 400:
            raise error_of(answer.status, answer.body)
        return msgspec.json.decode(answer.body, type=KubeObject).metadata.uid == owner.uid

    async def _clear_dependents(self, vertex: _Vertex) -> None:
        blocking = False
        for uid in list(self._dependents.get(vertex.uid, ())):
            dependent = self._graph[uid]
            blocking |= any(o.uid == vertex.uid and o.block_owner_deletion for o in dependent.owners)
            if not dependent.deleting:
                await self._delete(dependent, "Foreground" if self._dependents.get(uid) else "Background")
        if not blocking:
            await self._remove_finalizer(vertex, FOREGROUND)

    async def _orphan(self, vertex: _Vertex) -> None:
        for uid in list(self._dependents.get(vertex.uid, ())):
            dependent = self._graph[uid]
            try:
                await self._keep_owners(dependent, [o for o in dependent.owners if o.uid != vertex.uid])
            except NotFound:
                continue
        await self._remove_finalizer(vertex, ORPHAN)

    async def _keep_owners(self, vertex: _Vertex, owners: list[OwnerReference]) -> None:
        await self._patch(vertex, {"ownerReferences": msgspec.to_builtins(owners) or None})

    async def _remove_finalizer(self, vertex: _Vertex, finalizer: str) -> None:
        await self._patch(vertex, {"finalizers": [f for f in vertex.finalizers if f != finalizer] or None})

    async def _patch(self, vertex: _Vertex, metadata: dict[str, Any]) -> None:
        document = {"metadata": {"uid": vertex.uid, **metadata}}
        try:
            await self._client.patch(vertex.kind, vertex.name, merge(document), namespace=vertex.namespace)
        except Conflict:
            return  # another object of that name by now

    async def _delete(self, vertex: _Vertex, policy: str) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy,
            "preconditions": {"uid": vertex.uid},
        }
        answer = await self._client.transport.request(
            "DELETE", vertex.path(), body=msgspec.json.encode(options)
        )
        if answer.status >= 400:
            error = error_of(answer.status, answer.body)
            if not isinstance(error, (NotFound, Conflict)):
                raise error
