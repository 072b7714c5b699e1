"""Counting the nodes of a static pool."""

from typing import NamedTuple

from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context


class Census(NamedTuple):
    """The NodeClaims of one pool, those just created included; each list by name."""

    active: list[NodeClaim]
    leaving_soon: list[NodeClaim]
    """Chosen for disruption, and there until their replacements are."""
    going: list[NodeClaim]
    """Being deleted."""

    @property
    def staying(self) -> int:
        """How many count as the pool's replicas when nodes are added."""
        return len(self.active) + len(self.leaving_soon)

    @property
    def present(self) -> int:
        """How many count against `limits.nodes`: all that may still have a machine."""
        return self.staying + len(self.going)


def census(context: Context, pool: str) -> Census:
    """Count the pool's claims as they are known now."""
    cluster = context.cluster
    marked = {row.claim.name for row in cluster.nodes() if row.claim is not None and row.marked_for_deletion}
    found = Census([], [], [])
    for claim in cluster.claims_of_pool(pool):
        if cluster.is_ending(claim):
            found.going.append(claim)
        elif claim.name in marked:
            found.leaving_soon.append(claim)
        else:
            found.active.append(claim)
    return found
