"""What workload controllers need to know about pods, and how they make them from templates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from karpenter.apis.core import Pod
from karpenter.apis.labels import POD_DELETION_COST
from karpenter.apis.meta import Condition, KubeObject, OwnerReference
from karpenter.base.clock import Clock, parse_time
from karpenter.kube.client import Client, resource_of
from karpenter.kube.errors import AlreadyExists, Conflict, NotFound, error_of
from karpenter.kube.informer import Cache, Change, Informer
from karpenter.runtime import Controller

OWNER_INDEX = "controller-uid"
NODE_INDEX = "node"
EXPECTATION_SECONDS = 300.0
GATHER_SECONDS = 0.05
_canonical = msgspec.json.Encoder(order="sorted")


def condition(pod: Pod, type: str) -> Condition | None:
    """Return the pod's condition of a type."""
    for found in pod.status.conditions:
        if found.type == type:
            return found
    return None


def is_ready(pod: Pod) -> bool:
    """Tell whether the pod says it is ready."""
    found = condition(pod, "Ready")
    return found is not None and found.status == "True"


def available_in(pod: Pod, min_ready_seconds: int, now: float) -> float | None:
    """Return in how many seconds the pod counts as available (0: it does; None: it is not ready)."""
    found = condition(pod, "Ready")
    if found is None or found.status != "True":
        return None
    if min_ready_seconds == 0 or not found.last_transition_time:
        return 0.0
    return max(0.0, parse_time(found.last_transition_time) + min_ready_seconds - now)


def is_finished(pod: Pod) -> bool:
    """Tell whether the pod has run to its end."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_active(pod: Pod) -> bool:
    """Tell whether the pod counts as a replica: neither finished nor on its way out."""
    return not is_finished(pod) and not pod.deleting


def controller_of(obj: KubeObject) -> OwnerReference | None:
    """Return the owner reference of the object's controller."""
    return next((o for o in obj.metadata.owner_references if o.controller), None)


def owner_index(obj: KubeObject) -> list[str]:
    """Index objects by their controller's uid."""
    owner = controller_of(obj)
    return [owner.uid] if owner else []


def owned_by(pods: Informer[Pod], owner: KubeObject) -> list[Pod]:
    """Return the pods a controller owns, by name."""
    return pods.by_index(OWNER_INDEX, owner.metadata.uid)


def owner_key(kind: str) -> Callable[[Change[Any]], Iterable[str]]:
    """Return a watch mapping from an object to the key of its controller of `kind`."""

    def keys(change: Change[Any]) -> Iterable[str]:
        owner = controller_of(change.object)
        if owner is not None and owner.kind == kind:
            return [f"{change.object.namespace}/{owner.name}"]
        return []

    return keys


def own_key(change: Change[Any]) -> Iterable[str]:
    """Map an object to its own key."""
    return [change.object.key]


def watch_pods(
    controller: Controller, pods: Informer[Pod], keys: Callable[[Change[Pod]], Iterable[str]]
) -> None:
    """Reconcile keys when a pod comes, goes, or changes in a way that counts.

    Changes are gathered for `GATHER_SECONDS`: a hundred pods that start together are one reconcile, not a
    hundred.
    """

    def on_change(change: Change[Pod]) -> None:
        if (
            change.old is not None
            and change.type == "MODIFIED"
            and _counts(change.old) == _counts(change.object)
        ):
            return
        for key in keys(change):
            controller.enqueue(key, after=GATHER_SECONDS)

    pods.subscribe(on_change)


def _counts(pod: Pod) -> tuple[object, ...]:
    """Return everything of a pod that a controller counts by."""
    meta = pod.metadata
    return (
        *(pod.status.phase, is_ready(pod), pod.deleting, bool(pod.spec.node_name)),
        *(meta.labels, meta.owner_references, meta.finalizers),
    )


def pod_cache(cache: Cache) -> Informer[Pod]:
    """Return the pod informer with the indexes that workload controllers use."""
    informer = cache.informer(Pod)
    informer.add_index(OWNER_INDEX, owner_index)
    informer.add_index(NODE_INDEX, lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])
    return informer


def removal_order(pod: Pod, siblings: Mapping[str, int]) -> tuple[Any, ...]:
    """Return a sort key that puts first what a ReplicaSet gives up first.

    Unassigned before assigned, pending before running, unready before ready, lower deletion cost, more
    siblings on the same node (`siblings` by node name), shorter ready (in powers of two would be finer than
    the API's seconds), newer.
    """
    cost = pod.metadata.annotations.get(POD_DELETION_COST, "0")
    ready = condition(pod, "Ready")
    ready_since = parse_time(ready.last_transition_time) if ready and ready.last_transition_time else 0.0
    created = parse_time(pod.metadata.creation_timestamp) if pod.metadata.creation_timestamp else 0.0
    return (
        bool(pod.spec.node_name),
        {"Pending": 0, "Unknown": 1, "Running": 2}.get(pod.status.phase, 0),
        is_ready(pod),
        int(cost) if cost.lstrip("+-").isdigit() else 0,
        -siblings.get(pod.spec.node_name, 0),
        -ready_since,
        -created,
        pod.name,
    )


# --- templates ---------------------------------------------------------------------------------------------


def decode(raw: msgspec.Raw) -> dict[str, Any]:
    """Return a template as a dictionary of its own."""
    document = msgspec.json.decode(raw)
    return document if isinstance(document, dict) else {}


def canonical(document: Any) -> bytes:
    """Return bytes that are equal for equal documents."""
    return _canonical.encode(document)


def owner_reference(owner: KubeObject) -> dict[str, Any]:
    """Return the reference that makes `owner` the controller."""
    resource = resource_of(type(owner))
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(
    template: Mapping[str, Any],
    owner: KubeObject,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a pod of a template; without `name` the server appends a suffix to the owner's name."""
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "namespace": owner.namespace,
        "labels": {**(given.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(owner)],
    }
    merged = {**(given.get("annotations") or {}), **(annotations or {})}
    if merged:
        metadata["annotations"] = merged
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{owner.name}-"
    kept = [*(given.get("finalizers") or []), *finalizers]
    if kept:
        metadata["finalizers"] = kept
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**(template.get("spec") or {}), **(spec or {})},
    }


# --- writing -----------------------------------------------------------------------------------------------


class Created(msgspec.Struct):
    """What of a created object matters: how to recognise it."""

    metadata: "CreatedMeta"


class CreatedMeta(msgspec.Struct):
    """The name and uid the server gave."""

    name: str
    uid: str = ""


_created = msgspec.json.Decoder(Created)


async def post(client: Client, path: str, body: bytes) -> CreatedMeta:
    """Create an object from raw bytes, which keeps every field."""
    answer = await client.transport.request("POST", path, body=body)
    if answer.status >= 400:
        raise error_of(answer.status, answer.body)
    return _created.decode(answer.body).metadata


async def create_unless_there(client: Client, path: str, document: Mapping[str, Any]) -> bool:
    """Create an object of a fixed name; tells whether it was missing."""
    try:
        await post(client, path, msgspec.json.encode(document))
    except AlreadyExists:
        return False
    return True


async def delete_pod(client: Client, pod: Pod) -> None:
    """Delete this very pod; that it is gone already is fine."""
    try:
        await client.delete(Pod, pod.name, namespace=pod.namespace, uid=pod.metadata.uid)
    except (NotFound, Conflict):
        return


class Expectations:
    """Writes whose echo has not come back through the watch yet, per controller key.

    A controller that counts pods in its cache would create twice what it has just created; so it waits until
    the cache has seen its own writes, or `EXPECTATION_SECONDS` (an echo may be lost in a relist).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, dict[str, float]] = {}

    def expect(self, key: str, uid: str) -> None:
        """Wait for an object to appear (`uid`) or disappear (`-uid`)."""
        self._waiting.setdefault(key, {})[uid] = self._clock.now() + EXPECTATION_SECONDS

    def satisfied(self, key: str) -> bool:
        """Tell whether the cache has caught up with all writes under `key`."""
        waiting = self._waiting.get(key)
        if not waiting:
            return True
        now = self._clock.now()
        alive = {uid: until for uid, until in waiting.items() if until > now}
        if alive:
            self._waiting[key] = alive
            return False
        del self._waiting[key]
        return True

    def observe(self, key: str, change: Change[Any]) -> None:
        """Note what the watch says about an object that belongs to `key`."""
        waiting = self._waiting.get(key)
        if not waiting:
            return
        uid = change.object.metadata.uid
        waiting.pop(uid, None)
        if change.type == "DELETED" or change.object.deleting:
            waiting.pop(f"-{uid}", None)
        if not waiting:
            del self._waiting[key]
