"""Creating, updating and deleting objects: the rules every kind obeys.

The order of a write is fixed: what the request may not touch is put back (system metadata, and the part of
the object that another endpoint owns), unknown fields go, defaults come, rules are checked, the generation
moves if the spec did, and, unless it is a dry run, the store takes it. An update that changes nothing
writes nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from karpenter.base.clock import format_time, parse_time
from karpenter.base.randomness import name_suffix, new_uid
from karpenter.embedded import errors
from karpenter.embedded.admission import Admission
from karpenter.embedded.errors import Cause
from karpenter.embedded.kinds import Kind, KindRegistry
from karpenter.embedded.managed import ManagedFields
from karpenter.embedded.requests import WriteOptions
from karpenter.embedded.store import Record, Store

DEFAULT_GRACE_SECONDS = 30
_ANSWERED_WHOLE = frozenset(
    {"pods", "services", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims"}
)
"""Kinds whose deletion answers the object that was, not a Status."""
_VERSION_NEEDED = frozenset({"poddisruptionbudgets.policy", "leases.coordination.k8s.io"})
"""Built-in kinds that cannot be replaced without saying which version; custom kinds never can."""
_SYSTEM_META = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Written(NamedTuple):
    """What a write answers: the object as stored (or as it would be) and warnings for the user."""

    body: bytes
    warnings: tuple[str, ...] = ()
    created: bool = False


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.DeleteOptions."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: dict[str, str] | None = None
    dry_run: list[str] | None = None


class Objects:
    """Writes to the store, through admission.

    `on_write` and `on_remove` are told of every object written and removed, after the fact.
    """

    def __init__(
        self, store: Store, registry: KindRegistry, admission: Admission, managed: ManagedFields
    ) -> None:
        self.store = store
        self.registry = registry
        self._admission = admission
        self._managed = managed
        self.on_write: list[Callable[[Kind, Mapping[str, Any]], None]] = []
        self.on_remove: list[Callable[[Kind, Mapping[str, Any]], None]] = []

    def get(self, kind: Kind, namespace: str, name: str) -> Record:
        """Return the newest version of one object.

        Raises:
            StatusError: 404.
        """
        record = self.store.get(kind, namespace, name)
        if record is None:
            raise errors.not_found(kind.group_resource, name)
        return record

    def create(
        self,
        kind: Kind,
        namespace: str,
        obj: Any,
        options: WriteOptions,
        *,
        applied_by: list[dict[str, Any]] | None = None,
    ) -> Written:
        """Create one object; `applied_by` are managedFields entries when an apply creates it."""
        obj = self._shaped(kind, namespace, obj)
        meta = obj["metadata"]
        if meta.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generate_name(kind, namespace, str(meta["generateName"]))
        name = meta.get("name") or ""
        self._admission.check_name(kind, name, meta)
        self._admission.check_namespace(kind, namespace, name)
        if self.store.get(kind, namespace, name) is not None:
            raise errors.already_exists(kind.group_resource, name)
        for field in (*_SYSTEM_META, "managedFields", "selfLink"):
            meta.pop(field, None)
        meta["uid"] = new_uid(self.store.rng)
        meta["creationTimestamp"] = format_time(self.store.clock.now())
        if kind.generation:
            meta["generation"] = 1
        if applied_by:
            meta["managedFields"] = applied_by
        obj, warnings = self._admission.admit_create(kind, obj, options)
        return self._write(kind, obj, options, warnings, created=True)

    def update(
        self,
        kind: Kind,
        record: Record,
        obj: Any,
        options: WriteOptions,
        *,
        subresource: str = "",
        applied_by: list[dict[str, Any]] | None = None,
        trusted: bool = False,
    ) -> Written:
        """Replace one object by `obj`, as far as the endpoint (`subresource`) may.

        A `metadata.resourceVersion` in `obj` must be the newest. `trusted` skips validation of what only the
        server itself changes.
        """
        old = record.object()
        obj = self._shaped(kind, record.namespace, obj)
        meta, old_meta = obj["metadata"], old["metadata"]
        if meta.setdefault("name", record.name) != record.name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({record.name})"
            )
        if meta.get("uid") and meta["uid"] != old_meta.get("uid"):
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {record.uid}"
            raise errors.conflict(kind.group_resource, record.name, why)
        version = meta.get("resourceVersion")
        if (
            not version
            and not trusted
            and (kind.custom is not None or kind.group_resource in _VERSION_NEEDED)
        ):
            cause = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise errors.invalid(kind.group, kind.kind, record.name, [cause])
        if version and version != str(record.revision):
            raise errors.conflict(kind.group_resource, record.name)
        _keep_system_meta(meta, old_meta)
        obj = self._admission.isolate(kind, obj, old, subresource)
        obj, warnings = self._admission.admit_update(kind, obj, old, options, subresource, trusted=trusted)
        meta = obj["metadata"]
        if kind.generation and _spec_changed(obj, old):
            meta["generation"] = old_meta.get("generation", 1) + 1
        self._managed.after_update(kind, obj, old, options, subresource, applied_by)
        meta["resourceVersion"] = old_meta["resourceVersion"]
        if obj == old:
            return Written(record.body, warnings)
        if _finished_deleting(kind, obj):
            if not options.dry_run:
                self._remove(kind, obj)
            return Written(msgspec.json.encode(obj), warnings)
        return self._write(kind, obj, options, warnings)

    def delete(self, kind: Kind, record: Record, options: DeleteOptions, *, dry_run: bool = False) -> bytes:
        """Delete one object, or mark it deleted when a finalizer or grace period keeps it.

        Returns the body to answer: a Status when it is gone, else the object.
        """
        dry_run = dry_run or options.dry_run == ["All"]
        check_preconditions(kind, record, options)
        obj = record.object()
        meta = obj["metadata"]
        before = msgspec.json.encode(obj)
        _add_propagation_finalizer(meta, options)
        grace = self._grace(kind, obj, options)
        now = self.store.clock.now()
        finalizers = meta.get("finalizers") or []
        if kind.group_resource == "namespaces" and (obj.get("spec") or {}).get("finalizers"):
            obj.setdefault("status", {})["phase"] = "Terminating"
        elif not finalizers and grace == 0:
            if not dry_run:
                self._remove(kind, obj)
            return record.body if kind.group_resource in _ANSWERED_WHOLE else _deleted_status(kind, record)
        if "deletionTimestamp" not in meta:
            meta["deletionTimestamp"] = format_time(now + grace)
            meta["deletionGracePeriodSeconds"] = grace
            if kind.generation:
                meta["generation"] = meta.get("generation", 1) + 1
        elif grace < meta.get("deletionGracePeriodSeconds", 0):
            started = parse_time(meta["deletionTimestamp"]) - meta["deletionGracePeriodSeconds"]
            meta["deletionTimestamp"] = format_time(max(now, started + grace) if grace else now)
            meta["deletionGracePeriodSeconds"] = grace
        if msgspec.json.encode(obj) == before:
            return record.body
        return self._write(kind, obj, WriteOptions(dry_run=dry_run), ()).body

    def remove(self, kind: Kind, record: Record) -> None:
        """Delete one object at once, whatever it says."""
        self._remove(kind, record.object())

    def _shaped(self, kind: Kind, namespace: str, obj: Any) -> dict[str, Any]:
        """Check what must hold before anything else can be said of an object, and complete it."""
        if not isinstance(obj, dict):
            raise errors.bad_request(f"the body must be an object, not {type(obj).__name__}")
        given_version, given_kind = obj.get("apiVersion", ""), obj.get("kind", "")
        if given_kind and (given_kind, given_version or kind.api_version) != (kind.kind, kind.api_version):
            raise errors.bad_request(
                f"the object is a {given_version}, Kind={given_kind}, "
                f"the path is of {kind.api_version}, Kind={kind.kind}"
            )
        meta = obj.get("metadata")
        if meta is None:
            meta = {}
        if not isinstance(meta, dict):
            raise errors.bad_request("metadata must be an object")
        meta = dict(meta)
        given = meta.get("namespace", "")
        if kind.namespaced:
            if given and given != namespace:
                raise errors.bad_request(
                    f"the namespace of the object ({given}) does not match "
                    f"the namespace on the URL ({namespace})"
                )
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)
        rest = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
        shaped = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **rest}
        causes = self._admission.meta_causes(kind, meta)
        if causes:
            raise errors.invalid(kind.group, kind.kind, str(meta.get("name", "")), causes)
        return shaped

    def _generate_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        for _ in range(8):
            name = prefix[:58] + name_suffix(self.store.rng)
            if self.store.get(kind, namespace, name) is None:
                return name
        raise errors.already_exists(kind.group_resource, name)

    def _grace(self, kind: Kind, obj: Mapping[str, Any], options: DeleteOptions) -> int:
        """Return how many seconds a deletion waits: pods that run somewhere have time to stop."""
        if kind.group_resource != "pods":
            return 0
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        meta = obj["metadata"]
        grace = options.grace_period_seconds
        if grace is None:
            grace = meta.get("deletionGracePeriodSeconds")
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        if grace < 0:
            grace = 1
        if "deletionTimestamp" in meta:
            return min(grace, int(meta.get("deletionGracePeriodSeconds", 0)))
        return int(grace)

    def _write(
        self,
        kind: Kind,
        obj: dict[str, Any],
        options: WriteOptions,
        warnings: tuple[str, ...],
        *,
        created: bool = False,
    ) -> Written:
        if options.dry_run:
            return Written(msgspec.json.encode(obj), warnings, created)
        body = self.store.put(kind, obj).body
        for hook in self.on_write:
            hook(kind, obj)
        return Written(body, warnings, created)

    def _remove(self, kind: Kind, obj: dict[str, Any]) -> None:
        self.store.remove(kind, obj)
        for hook in self.on_remove:
            hook(kind, obj)


def _keep_system_meta(meta: dict[str, Any], old: Mapping[str, Any]) -> None:
    for field in _SYSTEM_META:
        if field in old:
            meta[field] = old[field]
        else:
            meta.pop(field, None)
    meta.pop("selfLink", None)
    if "generateName" in old:
        meta.setdefault("generateName", old["generateName"])
    if "managedFields" in old:
        meta["managedFields"] = old["managedFields"]
    else:
        meta.pop("managedFields", None)


def _spec_changed(obj: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Tell whether anything changed but metadata and status."""
    skip = ("metadata", "status")
    return {k: v for k, v in obj.items() if k not in skip} != {k: v for k, v in old.items() if k not in skip}


def _finished_deleting(kind: Kind, obj: Mapping[str, Any]) -> bool:
    """Tell whether the last thing that kept a deleted object is gone."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.group_resource == "namespaces" and (obj.get("spec") or {}).get("finalizers"))


def check_preconditions(kind: Kind, record: Record, options: DeleteOptions) -> None:
    """Refuse (409) to delete another object, or another version of it, than the client means."""
    wanted = options.preconditions or {}
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != record.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
        raise errors.conflict(kind.group_resource, record.name, why)
    if version and version != str(record.revision):
        why = (
            f"Precondition failed: ResourceVersion in precondition: {version}, "
            f"ResourceVersion in object meta: {record.revision}"
        )
        raise errors.conflict(kind.group_resource, record.name, why)


def _add_propagation_finalizer(meta: dict[str, Any], options: DeleteOptions) -> None:
    """Leave word for the garbage collector: wait for dependents, or let them live on."""
    policy = options.propagation_policy
    if policy is None and options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if policy is None:
        return
    if policy not in ("Background", "Foreground", "Orphan"):
        cause = Cause("propagationPolicy", f'Unsupported value: "{policy}"', "FieldValueNotSupported")
        raise errors.invalid("", "DeleteOptions", "", [cause])
    finalizers = [f for f in meta.get("finalizers") or [] if f not in ("orphan", "foregroundDeletion")]
    wanted = {"Foreground": ["foregroundDeletion"], "Orphan": ["orphan"]}.get(policy, [])
    finalizers += wanted
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def _deleted_status(kind: Kind, record: Record) -> bytes:
    details = {"name": record.name, "kind": kind.plural, "uid": record.uid}
    if kind.group:
        details["group"] = kind.group
    return msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )
