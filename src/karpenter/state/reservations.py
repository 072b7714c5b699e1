"""Which pods are expected on which NodeClaim: what keeps a machine from being bought twice.

A claim is created for certain pods. Until they run, somebody has to remember that they are provided for; the
claim itself does, in its annotation `karpenter-py.dev/planned-pods`, so that a restart forgets nothing. A
pod's reservation ends when it is bound (unless its node goes away), gone or finished, when the claim is
deleted, or when the claim's node has been ready for a while without the pod getting there (`until`).
"""

from bisect import insort
from collections.abc import Iterable

from karpenter.apis import conditions
from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import parse_time

PLANNED_PODS = f"{known.OWN_DOMAIN}/planned-pods"
"""Annotation of a NodeClaim: the pods it was created for, `namespace/name`, comma-separated, sorted."""

NEVER_READY_SECONDS = 15 * 60.0
"""A registered node that is not initialized by then holds no pods back any more."""


def render(pods: Iterable[str]) -> str:
    """Return the annotation's text for pod keys."""
    return ",".join(sorted(pods))


def planned_pods(claim: NodeClaim) -> tuple[str, ...]:
    """Return the keys of the pods that `claim` was created for."""
    text = claim.metadata.annotations.get(PLANNED_PODS, "")
    return tuple(sorted({key for key in text.split(",") if "/" in key}))


def until(claim: NodeClaim, grace_seconds: float) -> float:
    """Return until when (epoch seconds) `claim` holds its pods.

    Before it is registered: as long as it lives (liveness deletes it in time).
    """
    if claim.deleting:
        return 0.0
    initialized = conditions.get(claim.status.conditions, "Initialized")
    if initialized is not None and initialized.status == "True":
        return parse_time(initialized.last_transition_time or "1970-01-01T00:00:00Z") + grace_seconds
    registered = conditions.get(claim.status.conditions, "Registered")
    if registered is not None and registered.status == "True":
        since = parse_time(registered.last_transition_time or "1970-01-01T00:00:00Z")
        return since + NEVER_READY_SECONDS
    return float("inf")


class Reservations:
    """Pods by claim and claims by pod, from the claims' annotations.

    Of several claims that name a pod, the newest holds it (ties by name): it was planned last.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._pods_of: dict[str, tuple[str, ...]] = {}
        self._holders: dict[str, list[tuple[str, str]]] = {}
        """By pod: (creation time, name) of the claims that name it, sorted; the last one holds it."""
        self._until: dict[str, float] = {}

    def hold(self, claim: NodeClaim, grace_seconds: float, now: float) -> tuple[str, ...]:
        """Take in a claim as it is now; return all claims whose pods may have changed by it."""
        name, text = claim.name, claim.metadata.annotations.get(PLANNED_PODS, "")
        end = until(claim, grace_seconds)
        if end <= now or not text:
            return self.release(name)
        if self._texts.get(name) == text:
            self._until[name] = end
            return ()
        touched = {name, *self.release(name)}
        self._texts[name], self._until[name] = text, end
        self._pods_of[name] = planned_pods(claim)
        for pod in self._pods_of[name]:
            insort(self._holders.setdefault(pod, []), (claim.metadata.creation_timestamp or "", name))
            touched.update(holder for _, holder in self._holders[pod])
        return tuple(sorted(touched))

    def release(self, claim: str) -> tuple[str, ...]:
        """Forget a claim that is gone; return all claims whose pods may have changed by it, itself too."""
        if self._texts.pop(claim, None) is None:
            return ()
        touched = {claim}
        del self._until[claim]
        for pod in self._pods_of.pop(claim):
            left = [holder for holder in self._holders[pod] if holder[1] != claim]
            if left:
                self._holders[pod] = left
                touched.update(holder for _, holder in left)
            else:
                del self._holders[pod]
        return tuple(sorted(touched))

    def claim_of(self, pod: str) -> str:
        """Return the claim that holds `pod`, or nothing."""
        holders = self._holders.get(pod)
        return holders[-1][1] if holders else ""

    def pods_of(self, claim: str) -> tuple[str, ...]:
        """Return the keys of the pods that `claim` holds."""
        return tuple(key for key in self._pods_of.get(claim, ()) if self.claim_of(key) == claim)

    def is_over(self, claim: str, now: float) -> bool:
        """Tell whether a claim's time to hold pods is over, though it was not released yet."""
        return self._until.get(claim, 0.0) <= now

    def due(self, now: float) -> tuple[str, ...]:
        """Return the claims whose time to hold pods is over, by name."""
        return tuple(sorted(name for name, end in self._until.items() if end <= now))
