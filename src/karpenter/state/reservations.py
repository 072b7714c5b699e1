"""Which pods are expected on which NodeClaim: what keeps a machine from being bought twice.

A claim is created for certain pods. Until they run, somebody has to remember that they are provided for; the
claim itself does, in its annotation `karpenter.sh/planned-pods`, so that a restart forgets nothing. A pod's
reservation ends when it is bound (unless its node goes away), gone or finished, when the claim is deleted,
or when the claim's node has been ready for a while without the pod getting there (`until`).
"""

from collections.abc import Iterable

from karpenter.apis import conditions
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import parse_time

PLANNED_PODS = "karpenter.sh/planned-pods"
"""Annotation of a NodeClaim: the pods it was created for, `namespace/name`, comma-separated, sorted."""

NEVER_READY_SECONDS = 15 * 60.0
"""A registered node that is not initialized by then holds no pods back any more."""


def render(pods: Iterable[str]) -> str:
    """Return the annotation's text for pod keys."""
    return ",".join(sorted(pods))


def planned_pods(claim: NodeClaim) -> tuple[str, ...]:
    """Return the keys of the pods that `claim` was created for."""
    text = claim.metadata.annotations.get(PLANNED_PODS, "")
    return tuple(key for key in text.split(",") if key)


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
    """Pods by claim and claims by pod, from the claims' annotations."""

    def __init__(self) -> None:
        self._claim_of: dict[str, str] = {}
        self._pods_of: dict[str, tuple[str, ...]] = {}
        self._until: dict[str, float] = {}

    def hold(self, claim: NodeClaim, grace_seconds: float, now: float) -> tuple[str, ...]:
        """Take in a claim as it is now; return the pods it does not hold any more.

        Of two claims that name a pod, the one that came last holds it.
        """
        end = until(claim, grace_seconds)
        if end <= now:
            return self.release(claim.name)
        if claim.name not in self._pods_of:
            pods = planned_pods(claim)
            if not pods:
                return ()
            self._pods_of[claim.name] = pods
            for key in pods:
                self._claim_of[key] = claim.name
        self._until[claim.name] = end
        return ()

    def release(self, claim: str) -> tuple[str, ...]:
        """Forget a claim that is gone; return the pods that were reserved for it."""
        pods = self._pods_of.pop(claim, ())
        self._until.pop(claim, None)
        freed = tuple(key for key in pods if self._claim_of.get(key) == claim)
        for key in freed:
            del self._claim_of[key]
        return freed

    def claim_of(self, pod: str) -> str:
        """Return the claim that holds `pod`, or nothing."""
        return self._claim_of.get(pod, "")

    def pods_of(self, claim: str) -> tuple[str, ...]:
        """Return the keys of the pods that `claim` holds."""
        return tuple(key for key in self._pods_of.get(claim, ()) if self._claim_of.get(key) == claim)

    def due(self, now: float) -> tuple[str, ...]:
        """Return the claims whose time to hold pods is over, by name."""
        return tuple(sorted(name for name, end in self._until.items() if end <= now))
