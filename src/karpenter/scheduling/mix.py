"""A wanted mix of capacity types: which one the next node of a pool should be of.

Steering, not a rule: nodes are bought of the capacity type that lags behind its share of vCPU most, as far as
it can be had for the pods at hand; otherwise of whichever can. No pod waits for the mix to be right.
"""

from collections.abc import Iterable, Mapping

from karpenter.apis import labels
from karpenter.model.snapshot import NodeView


class Mix:
    """The thousandths of cores that a pool has of each capacity type, and the shares it wants."""

    def __init__(self, wanted: Mapping[str, int], pool: str, nodes: Iterable[NodeView]) -> None:
        """Start from what `nodes` of the pool have; `wanted` gives per cent by capacity type, or nothing."""
        self.wanted = dict(wanted)
        self._have = dict.fromkeys(wanted, 0)
        for node in nodes if wanted else ():
            if node.nodepool == pool:
                self.add(node.labels.get(labels.CAPACITY_TYPE, ""), node.capacity.get("cpu", 0))

    def add(self, kind: str, milli: int) -> None:
        """Count a node of `kind`; capacity types without a share don't matter."""
        if kind in self._have:
            self._have[kind] += milli

    def order(self) -> list[str]:
        """Return the capacity types, the one that lags behind most first; those not wanted last, by name."""
        shares = {kind: share for kind, share in self.wanted.items() if share}
        most = sum(self._have.values()) + 1
        lag = {kind: self._have[kind] / (share * most) for kind, share in shares.items()}
        return [*sorted(shares, key=lambda kind: (lag[kind], -shares[kind], kind)), *self._unwanted()]

    def most(self, kind: str, milli: int) -> int | None:
        """Return how many nodes of `kind` and `milli` thousandths of a core to buy before looking again.

        None: as many as one likes, since no other capacity type is to have a share.
        """
        share = self.wanted.get(kind, 0)
        others = [(self._have[k], s) for k, s in self.wanted.items() if s and k != kind]
        if not share or not others or not milli:
            return None
        return max(1, min((have * share - self._have[kind] * s) // (milli * s) + 1 for have, s in others))

    def _unwanted(self) -> list[str]:
        return sorted(kind for kind, share in self.wanted.items() if not share)
