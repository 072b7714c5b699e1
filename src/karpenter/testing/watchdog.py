"""Looks at every write to the API server as it happens, and notes what must never be.

It reads the store's journal, so nothing is too short-lived for it. It knows the rules by itself (raw objects,
its own arithmetic): it must not share a mistake with what it watches.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from karpenter.base.quantity import to_units
from karpenter.embedded.store import Journal

Raw = dict[str, Any]

CLAIMS, NODES, PODS, POOLS = "nodeclaims.karpenter.sh", "nodes", "pods", "nodepools.karpenter.sh"
_KEPT = (CLAIMS, NODES, PODS, POOLS)
_POOL = "karpenter.sh/nodepool"


class Watchdog:
    """Put its `take` in the place of a `Store.journal`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.violations: list[str] = []
        self.objects: dict[str, dict[str, Raw]] = {kind: {} for kind in _KEPT}
        self.history: list[bytes] = []
        """Every write of Pods, Nodes and NodeClaims: `time type resource body`."""
        self.claims_created = 0
        self.writes: Counter[str] = Counter()
        """Writes by resource."""
        self.now = now
        self.then: Callable[[Journal], None] | None = None
        """Told of each write before it is noted."""

    def take(self, entry: Journal) -> None:
        """Note one write."""
        if self.then is not None:
            self.then(entry)
        kind, key = entry.group_resource, entry.record.key
        self.writes[kind] += 1
        if kind not in self.objects:
            return
        if kind != POOLS:
            head = f"{self.now():.6f} {entry.type} {kind} {key} "
            self.history.append(head.encode() + entry.record.body)
        if entry.type == "DELETED":
            self.objects[kind].pop(key, None)
            return
        obj = self.objects[kind][key] = entry.record.object()
        self.claims_created += kind == CLAIMS and entry.type == "ADDED"
        for trouble in self._troubles(kind, obj):
            line = f"{self.now():.3f}: {entry.type} {kind} {key}: {trouble}"
            if line.partition(": ")[2] not in {v.partition(": ")[2] for v in self.violations}:
                self.violations.append(line)

    def _troubles(self, kind: str, obj: Raw) -> Iterable[str]:
        if kind == CLAIMS:
            yield from self._twins(CLAIMS, obj, ("status", "providerID"))
            yield from self._over_limits(obj)
        elif kind == NODES:
            yield from self._twins(NODES, obj, ("spec", "providerID"))
        elif kind == PODS and obj["spec"].get("nodeName"):
            yield from self._misplaced(obj)

    def _twins(self, kind: str, obj: Raw, path: tuple[str, str]) -> Iterable[str]:
        """No machine has two Nodes, or two NodeClaims."""
        name, own = obj["metadata"]["name"], _dig(obj, *path)
        for other in self.objects[kind].values():
            if own and other["metadata"]["name"] != name and _dig(other, *path) == own:
                yield f"shares machine {own} with {other['metadata']['name']}"

    def _over_limits(self, claim: Raw) -> Iterable[str]:
        """What a pool has bought never passes its limits; machines whose end has begun are let be."""
        pool_name = claim["metadata"].get("labels", {}).get(_POOL, "")
        pool = self.objects[POOLS].get(pool_name)
        if not pool_name:
            yield "belongs to no pool"
        if pool is None:
            return
        own = [
            c
            for c in self.objects[CLAIMS].values()
            if c["metadata"]["labels"].get(_POOL) == pool_name and not self._ends(c)
        ]
        for resource, limit in pool["spec"].get("limits", {}).items():
            bought = len(own) if resource == "nodes" else sum(_capacity(c, resource) for c in own)
            allowed = int(limit) if resource == "nodes" else to_units(resource, str(limit))
            if bought > allowed:
                yield f"pool {pool_name} has {bought} {resource}, its limit is {allowed}"

    def _ends(self, claim: Raw) -> bool:
        node = self.objects[NODES].get(_dig(claim, "status", "nodeName") or "")
        return any(obj and "deletionTimestamp" in obj["metadata"] for obj in (claim, node))

    def _misplaced(self, pod: Raw) -> Iterable[str]:
        """A bound pod's node has room for it and all others, and the labels it asks for."""
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return
        name = pod["spec"]["nodeName"]
        node = self.objects[NODES].get(name)
        if node is None:
            return  # the node went first; the pod collector's matter
        labels = node["metadata"].get("labels", {})
        for key, value in pod["spec"].get("nodeSelector", {}).items():
            if labels.get(key) != value:
                yield f"wants {key}={value}, {name} has {labels.get(key)}"
        allocatable = node.get("status", {}).get("allocatable", {})
        used: Counter[str] = Counter()
        for other in self.objects[PODS].values():
            if other["spec"].get("nodeName") == name and not _over(other):
                used["pods"] += 1
                for container in other["spec"]["containers"]:
                    for resource, amount in container.get("resources", {}).get("requests", {}).items():
                        used[resource] += to_units(resource, str(amount))
        for resource, amount in sorted(used.items()):
            if amount > to_units(resource, str(allocatable.get(resource, 0))):
                yield f"{name} has {amount} {resource} bound, allocatable {allocatable.get(resource, 0)}"


def _over(pod: Raw) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _capacity(claim: Raw, resource: str) -> int:
    return to_units(resource, str(claim.get("status", {}).get("capacity", {}).get(resource, 0)))


def _dig(obj: Mapping[str, Any], *path: str) -> Any:
    found: Any = obj
    for key in path:
        found = (found or {}).get(key)
    return found
