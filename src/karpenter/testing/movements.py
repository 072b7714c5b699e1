"""Who moved where, told from what was written to the API server, not from what the operator remembers."""

import json
from typing import Any

from karpenter.apis import labels
from karpenter.embedded.store import Journal
from karpenter.testing.watchdog import CLAIMS, PODS, Watchdog

Raw = dict[str, Any]

_REPLACES = f"{labels.OWN_DOMAIN}/replaces"
_PLANNED = f"{labels.OWN_DOMAIN}/planned-pods"


class Movements:
    """Put its `take` in the place of a watchdog's `then`."""

    def __init__(self, watchdog: Watchdog, payback_seconds: float) -> None:
        self._watchdog = watchdog
        self._payback = payback_seconds
        self.last_at = 0.0
        """When a claim last came or went, epoch seconds."""
        self.moves = 0
        """Claims that went for consolidation's sake."""
        self.returns: list[str] = []
        """Claims bought by consolidation that became machines of a type which pods of the same workloads had
        been moved from less than the payback time before."""
        self._launched: set[str] = set()
        self._deleting: set[str] = set()
        self._left: dict[str, dict[str, float]] = {}
        """The types that pods of each workload (uid) were moved from, and when they last were."""

    def take(self, entry: Journal) -> None:
        """Note one write."""
        if entry.group_resource != CLAIMS:
            return
        now, claim = self._watchdog.now(), entry.record.object()
        name = claim["metadata"]["name"]
        if entry.type in ("ADDED", "DELETED"):
            self.last_at = now
        if claim["metadata"].get("labels", {}).get(labels.INSTANCE_TYPE) and name not in self._launched:
            self._launched.add(name)
            self._bought(claim, now)
        if claim["metadata"].get("deletionTimestamp") and name not in self._deleting:
            self._deleting.add(name)
            if _reason(claim) == "Underutilized":
                self.moves += 1
                self._going(claim, now)

    def _bought(self, claim: Raw, now: float) -> None:
        """See whether what consolidation has launched is what its pods were moved from."""
        notes, kind = claim["metadata"].get("annotations", {}), _kind(claim)
        if json.loads(notes.get(_REPLACES, "{}")).get("reason") != "Underutilized":
            return
        keys = notes.get(_PLANNED, "").split(",")
        pods = [p for p in self._watchdog.objects[PODS].values() if _key(p) in keys]
        for workload in sorted({w for pod in pods for w in _workloads(pod)}):
            at = self._left.get(workload, {}).get(kind)
            if at is not None and now - at < self._payback:
                self.returns.append(f"{claim['metadata']['name']} is a {kind}, left {now - at:.0f} s before")

    def _going(self, claim: Raw, now: float) -> None:
        node = claim.get("status", {}).get("nodeName")
        for pod in self._watchdog.objects[PODS].values():
            if pod["spec"].get("nodeName") == node:
                for workload in _workloads(pod):
                    self._left.setdefault(workload, {})[_kind(claim)] = now


def _workloads(pod: Raw) -> list[str]:
    owners = pod["metadata"].get("ownerReferences", [])
    return [owner["uid"] for owner in owners if owner["kind"] != "DaemonSet"]


def _kind(claim: Raw) -> str:
    found: str = claim["metadata"].get("labels", {}).get(labels.INSTANCE_TYPE, "")
    return found


def _key(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _reason(claim: Raw) -> str:
    conditions = claim.get("status", {}).get("conditions", [])
    return next((c["reason"] for c in conditions if c["type"] == "DisruptionReason"), "")
