"""What we did to claims and the watch has not told of yet: reading one's own writes.

The API server has accepted the write; until the informer shows it, whoever asks must see it all the same, or
the same machine is bought twice, or its end is begun and counted twice.
"""

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim


class Unconfirmed:
    """Claims created and claims ended, each until the watch says so too."""

    def __init__(self) -> None:
        self._created: dict[str, tuple[float, NodeClaim]] = {}
        self._ended: set[str] = set()

    def create(self, claim: NodeClaim, now: float) -> None:
        """Note a claim that was created."""
        self._created[claim.name] = (now, claim)

    def created(self, name: str) -> NodeClaim | None:
        """Return a created claim that the watch has not told of."""
        found = self._created.get(name)
        return found[1] if found is not None else None

    def created_until(self, latest: float) -> list[NodeClaim]:
        """Return those created no later than `latest` (epoch seconds), by name."""
        return [claim for _, (at, claim) in sorted(self._created.items()) if at <= latest]

    def of_pool(self, pool: str) -> list[NodeClaim]:
        """Return a pool's created claims that the watch has not told of, by name."""
        return [
            claim
            for _, (_, claim) in sorted(self._created.items())
            if claim.metadata.labels.get(known.NODEPOOL) == pool
        ]

    def seen(self, name: str) -> bool:
        """Drop a created claim: the watch tells of it now, or it is not there. Tells whether it was known."""
        return self._created.pop(name, None) is not None

    def end(self, uid: str) -> bool:
        """Note that a claim's deletion was accepted; tell whether that is news."""
        if uid in self._ended:
            return False
        self._ended.add(uid)
        return True

    def is_ended(self, uid: str) -> bool:
        """Tell whether we had this claim deleted."""
        return uid in self._ended

    def gone(self, uid: str) -> None:
        """Drop a claim that is no more."""
        self._ended.discard(uid)
