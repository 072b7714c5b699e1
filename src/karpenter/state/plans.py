"""Which pods each machine on its way was bought for.

Without this, a second look at the same pending pods would spread them differently over the machines on their
way, find some left over, and buy again. A plan ends when the pod is bound or gone, when the claim goes, or a
while after the machine was ready and the pod still was not bound there (the scheduler chose otherwise).
"""

from collections.abc import Iterable

from karpenter.base.clock import Clock


class Plans:
    """Pods by claim, and claims by pod."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, frozenset[str]] = {}
        self._claims: dict[str, str] = {}
        self._until: dict[str, float] = {}

    def make(self, claim: str, pods: Iterable[str]) -> None:
        """Plan `pods` (keys) on the claim called `claim`."""
        for pod in pods:
            self.drop_pod(pod)
            self._claims[pod] = claim
            self._pods[claim] = self._pods.get(claim, frozenset()) | {pod}

    def of(self, claim: str) -> frozenset[str]:
        """Return the keys of the pods planned on a claim."""
        self._expire(claim)
        return self._pods.get(claim, frozenset())

    def claim_of(self, pod: str) -> str:
        """Return the claim a pod is planned on, or an empty string."""
        claim = self._claims.get(pod, "")
        if claim:
            self._expire(claim)
        return self._claims.get(pod, "")

    def expire_after(self, claim: str, seconds: float) -> None:
        """Let the claim's plan end after `seconds`, unless it already does earlier."""
        if claim in self._pods:
            self._until.setdefault(claim, self._clock.now() + seconds)

    def drop_pod(self, pod: str) -> None:
        """End the plan of one pod."""
        claim = self._claims.pop(pod, None)
        if claim is not None:
            left = self._pods[claim] - {pod}
            if left:
                self._pods[claim] = left
            else:
                del self._pods[claim]

    def drop_claim(self, claim: str) -> None:
        """End the plans of all pods of one claim."""
        for pod in self._pods.pop(claim, frozenset()):
            self._claims.pop(pod, None)
        self._until.pop(claim, None)

    def _expire(self, claim: str) -> None:
        until = self._until.get(claim)
        if until is not None and self._clock.now() >= until:
            self.drop_claim(claim)
