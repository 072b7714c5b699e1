"""Who owns which field of an object, kept true across updates that are not applies.

Tracking begins with the first apply to an object: until then nothing is recorded, and that first apply
finds one manager, `before-first-apply`, owning everything. (Recording every write from the start, as the real
server does, would cost each create several times its own time, for a record nobody reads.)
"""

from typing import Any

import msgspec

from karpenter.base.clock import Clock, format_time
from karpenter.embedded.apply import Manager, decode_managers, encode_managers, equal_at, owned_paths
from karpenter.embedded.kinds import Kind
from karpenter.embedded.requests import WriteOptions
from karpenter.embedded.shapes import shape_of


class ManagedFields:
    """Records ownership changes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> str:
        """Return the time, as entries carry it."""
        return format_time(self._clock.now())

    def after_update(
        self,
        kind: Kind,
        obj: dict[str, Any],
        old: dict[str, Any],
        options: WriteOptions,
        subresource: str,
        applied_by: list[dict[str, Any]] | None,
    ) -> None:
        """Record in `obj` what an update changed; an apply brings its record along."""
        if applied_by is not None:
            obj["metadata"]["managedFields"] = applied_by
            return
        entries = old["metadata"].get("managedFields")
        if not entries:
            return
        shape = shape_of(kind)
        before, after = owned_paths(shape, old), owned_paths(shape, obj)
        changed = {path for path in after if not equal_at(shape, old, obj, path)}
        gone = before - after
        if not changed and not gone:
            return
        identity = (options.field_manager, "Update", subresource)
        managers, found = [], False
        for entry in decode_managers(entries):
            paths = entry.paths - gone - changed
            if entry.identity == identity:
                found = True
                paths = (paths | changed) & after
                entry = msgspec.structs.replace(entry, time=self.now() if changed else entry.time)
            managers.append(msgspec.structs.replace(entry, paths=frozenset(paths)))
        if not found and changed:
            new = Manager(*identity, frozenset(changed), kind.api_version, self.now())
            managers.append(new)
        obj["metadata"]["managedFields"] = encode_managers(managers)
