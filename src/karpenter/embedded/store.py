"""The database under the embedded API server: objects as JSON bytes, one revision counter, and history.

Pure: no I/O, no event loop, no policy. Everything that makes an object acceptable (defaults, validation,
finalizers …) is decided above, in the API server; everything that makes a change *ordered* is here:

* every write gets the next revision, which becomes its object's `metadata.resourceVersion`;
* every write is appended to its resource's log, from which watches read at their own pace;
* the log is bounded: who asks for what fell off gets `Compacted` (410 at the API);
* an object version is encoded once; lists, watches and the journal share those bytes.

A `Record` never changes; decoding it gives a fresh dict each time, so no caller can alter history.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from karpenter.base.clock import Clock
from karpenter.base.randomness import Random
from karpenter.embedded.kinds import Kind

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
LOG_LIMIT = 20_000  # entries kept per resource, at least, unless they are too many bytes
LOG_BYTES = 48 * 2**20  # of encoded objects per resource, at most


class Compacted(Exception):
    """The history asked for is gone."""


class Record:
    """One version of one object: its bytes, and what selectors need of it."""

    __slots__ = ("body", "fields", "key", "labels", "name", "namespace", "revision", "uid")

    def __init__(
        self,
        namespace: str,
        name: str,
        uid: str,
        revision: int,
        body: bytes,
        labels: Mapping[str, str],
        fields: Mapping[str, str],
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.key = key_of(namespace, name)
        self.uid = uid
        self.revision = revision
        self.body = body
        self.labels = labels
        self.fields = fields

    def object(self) -> dict[str, Any]:
        """Decode a fresh copy of the object."""
        result: dict[str, Any] = msgspec.json.decode(self.body)
        return result


class Entry:
    """One change in a resource's log. `previous` is the version before (None for ADDED)."""

    __slots__ = ("_encoded", "previous", "record", "revision", "type")

    def __init__(self, type: EventType, record: Record, previous: Record | None) -> None:
        self.revision = record.revision
        self.type = type
        self.record = record
        self.previous = previous
        self._encoded: bytes | None = None

    def encoded(self) -> bytes:
        """Return the watch event, encoded once for all watchers."""
        if self._encoded is None:
            self._encoded = encode_event(self.type, self.record.body)
        return self._encoded


class Journal(NamedTuple):
    """One write, as told to whoever keeps it (see `karpenter.embedded.persistence`)."""

    group_resource: str
    type: EventType
    record: Record


def encode_event(type: str, body: bytes) -> bytes:
    """Return a watch event around an encoded object."""
    return b'{"type":"%s","object":%s}' % (type.encode(), body)


def key_of(namespace: str, name: str) -> str:
    """Return the key objects are ordered by: `namespace/name`, or the bare name."""
    return f"{namespace}/{name}" if namespace else name


class _Resource:
    """The objects of one resource, sorted by key, and their recent history."""

    __slots__ = ("dropped", "keys", "log", "objects", "size")

    def __init__(self) -> None:
        self.objects: dict[str, Record] = {}
        self.keys: list[str] = []
        self.log: list[Entry] = []
        #: How many entries fell off the front; positions handed to watches count them.
        self.dropped = 0
        #: Bytes of the objects in the log.
        self.size = 0

    def append(self, entry: Entry, limit: int) -> int:
        """Append to the log; return the revision up to which history is gone now (0: nothing dropped)."""
        self.log.append(entry)
        self.size += len(entry.record.body)
        if len(self.log) < 2 * limit and self.size < LOG_BYTES:
            return 0
        half = max(1, len(self.log) // 2)
        gone = self.log[half - 1].revision
        self.size -= sum(len(old.record.body) for old in self.log[:half])
        del self.log[:half]
        self.dropped += half
        return gone


class Page(NamedTuple):
    """Part of a list, all of one revision. `next_key` is where the next page starts ("" at the end)."""

    records: list[Record]
    revision: int
    next_key: str
    remaining: int


class Store:
    """All objects of a cluster.

    Args:
        clock: read for creation timestamps by the API server above.
        rng: where uids and generated names come from.
        crds: CustomResourceDefinitions present from the start (raw objects).
        log_limit: how many changes per resource can be watched from the past, `LOG_BYTES` permitting.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        *,
        crds: Iterable[Mapping[str, Any]] = (),
        log_limit: int = LOG_LIMIT,
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.initial_crds = tuple(crds)
        self.revision = 1
        self._compacted: dict[str, int] = {}
        self._limit = log_limit
        self._resources: dict[str, _Resource] = {}
        #: Called with each write before it is acknowledged; raising refuses the write.
        self.journal: Callable[[Journal], None] | None = None
        #: Called with the group resource after each write.
        self.listeners: list[Callable[[str], None]] = []

    def get(self, kind: Kind, namespace: str, name: str) -> Record | None:
        """Return the newest version of one object."""
        return self._of(kind.group_resource).objects.get(key_of(namespace, name))

    def count(self, group_resource: str) -> int:
        """Return how many objects a resource has."""
        return len(self._of(group_resource).objects)

    def records(self, group_resource: str, namespace: str = "") -> list[Record]:
        """Return the newest versions of all objects (of one namespace), sorted by key."""
        resource = self._of(group_resource)
        objects = resource.objects
        if not namespace:
            return [objects[key] for key in resource.keys]
        start, end = _bounds(resource.keys, namespace)
        return [objects[key] for key in resource.keys[start:end]]

    def page(
        self,
        group_resource: str,
        namespace: str,
        accepts: Callable[[Record], bool] | None,
        *,
        limit: int = 0,
        start: str = "",
        revision: int = 0,
    ) -> Page:
        """Return up to `limit` accepted objects from key `start` on, as they were at `revision` (0: now).

        Raises:
            Compacted: when that revision's history is gone.
        """
        if revision and revision != self.revision:
            records = self._records_at(group_resource, namespace, revision)
        else:
            records = self.records(group_resource, namespace)
        if start:
            records = records[bisect_left(records, start, key=lambda record: record.key) :]
        if accepts is not None:
            records = [record for record in records if accepts(record)]
        page = records[:limit] if limit else records
        rest = len(records) - len(page)
        next_key = records[limit].key if rest else ""
        return Page(page, revision or self.revision, next_key, rest)

    def put(self, kind: Kind, obj: dict[str, Any]) -> Record:
        """Write one object as its newest version (`metadata.resourceVersion` is set in `obj`)."""
        group_resource = kind.group_resource
        resource = self._of(group_resource)
        record = self._record(kind, obj)
        previous = resource.objects.get(record.key)
        entry = Entry("MODIFIED" if previous else "ADDED", record, previous)
        self._commit(group_resource, entry)
        if previous is None:
            insort(resource.keys, record.key)
        resource.objects[record.key] = record
        self._publish(group_resource, resource, entry)
        return record

    def remove(self, kind: Kind, obj: dict[str, Any]) -> Record:
        """Delete one object; `obj` is its last state, which watchers see with the deletion's revision."""
        group_resource = kind.group_resource
        resource = self._of(group_resource)
        record = self._record(kind, obj)
        entry = Entry("DELETED", record, resource.objects[record.key])
        self._commit(group_resource, entry)
        del resource.objects[record.key]
        del resource.keys[bisect_left(resource.keys, record.key)]
        self._publish(group_resource, resource, entry)
        return record

    def load(self, kind: Kind, obj: dict[str, Any], body: bytes, revision: int) -> None:
        """Put back an object as it was written at `revision`; history before the load is gone."""
        resource = self._of(kind.group_resource)
        record = _make_record(kind, obj, revision, body)
        if record.key not in resource.objects:
            insort(resource.keys, record.key)
        resource.objects[record.key] = record
        self.revision = max(self.revision, revision)

    def forget_history(self) -> None:
        """Drop every log: watches from the past get `Compacted`."""
        for group_resource, resource in self._resources.items():
            resource.dropped += len(resource.log)
            resource.log.clear()
            resource.size = 0
            self._compacted[group_resource] = self.revision

    # Watching: a watch is a position in a resource's log.

    def position(self, group_resource: str, revision: int) -> int:
        """Return the log position of the first change after `revision`.

        Raises:
            Compacted: when changes after `revision` have been dropped.
        """
        resource = self._of(group_resource)
        if revision < self._compacted.get(group_resource, 0):
            raise Compacted
        return resource.dropped + bisect_right(resource.log, revision, key=lambda entry: entry.revision)

    def changes(self, group_resource: str, position: int, limit: int = 500) -> list[Entry]:
        """Return up to `limit` changes from a log position on.

        Raises:
            Compacted: when that position has been dropped.
        """
        resource = self._of(group_resource)
        index = position - resource.dropped
        if index < 0:
            raise Compacted
        return resource.log[index : index + limit]

    def _of(self, group_resource: str) -> _Resource:
        resource = self._resources.get(group_resource)
        if resource is None:
            resource = self._resources[group_resource] = _Resource()
        return resource

    def _records_at(self, group_resource: str, namespace: str, revision: int) -> list[Record]:
        """Undo, on a copy, what was written after `revision`."""
        position = self.position(group_resource, revision)
        objects = dict(self._of(group_resource).objects)
        for entry in reversed(self.changes(group_resource, position, limit=2**62)):
            if entry.previous is None:
                objects.pop(entry.record.key, None)
            else:
                objects[entry.record.key] = entry.previous
        keys = sorted(objects)
        start, end = _bounds(keys, namespace) if namespace else (0, len(keys))
        return [objects[key] for key in keys[start:end]]

    def _record(self, kind: Kind, obj: dict[str, Any]) -> Record:
        revision = self.revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        return _make_record(kind, obj, revision, msgspec.json.encode(obj))

    def _commit(self, group_resource: str, entry: Entry) -> None:
        """Tell the journal first: what it refuses has not happened."""
        if self.journal is not None:
            self.journal(Journal(group_resource, entry.type, entry.record))
        self.revision = entry.revision

    def _publish(self, group_resource: str, resource: _Resource, entry: Entry) -> None:
        gone = resource.append(entry, self._limit)
        if gone:
            self._compacted[group_resource] = gone
        for listener in self.listeners:
            listener(group_resource)


def _bounds(keys: list[str], namespace: str) -> tuple[int, int]:
    """Return where a namespace's keys begin and end ("0" is the character after "/")."""
    return bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")


def _make_record(kind: Kind, obj: Mapping[str, Any], revision: int, body: bytes) -> Record:
    meta = obj["metadata"]
    fields = {path: field_text(obj, path) for path in kind.selectable}
    return Record(
        meta.get("namespace", ""),
        meta["name"],
        meta.get("uid", ""),
        revision,
        body,
        meta.get("labels") or {},
        fields,
    )


def field_text(obj: Mapping[str, Any], path: str) -> str:
    """Return what a field selector compares at a dotted path: text, `true`/`false`, or nothing."""
    value: Any = obj
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return ""
        value = value.get(name)
        if value is None:
            return "false" if path in _BOOLEAN_FIELDS else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):  # core/v1 events: "source" selects by component
        return str(value.get("component", ""))
    return str(value)


_BOOLEAN_FIELDS = frozenset({"spec.unschedulable", "spec.hostNetwork"})
