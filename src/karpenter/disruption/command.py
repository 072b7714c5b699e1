"""What disruption has decided to do."""

from typing import Literal

import msgspec

from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.verdicts import Method
from karpenter.model.problem import PlannedClaim

_CONSOLIDATION_TYPES: dict[Method, str] = {"emptiness": "empty", "multi": "multi", "single": "single"}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Take nodes away, after their replacements (if any) are ready."""

    reason: Reason
    method: Method = "emptiness"
    candidates: tuple[Candidate, ...]
    """In the order in which the method took them."""
    replacements: tuple[PlannedClaim, ...] = ()
    worst_price: float | None = None
    """USD per hour that the replacements cost at most, whichever of their types and offerings are launched;
    None when that was not worked out."""
    placements: dict[str, tuple[str, ...]] = {}
    """Pods (keys, sorted) that are expected to move to existing nodes, by node name."""

    @property
    def decision(self) -> Literal["delete", "replace"]:
        return "replace" if self.replacements else "delete"

    @property
    def consolidation_type(self) -> str:
        """The metrics' word for the method (upstream's): empty for drift; what searches sets counts as multi
        or single by how many nodes it takes."""
        if self.method == "sets":
            return "multi" if len(self.candidates) > 1 else "single"
        return _CONSOLIDATION_TYPES.get(self.method, "")

    @property
    def price_before(self) -> float:
        """USD per hour of the nodes that go."""
        return sum(c.price for c in self.candidates)

    @property
    def savings(self) -> float:
        """USD per hour saved, by what is known of prices."""
        return self.price_before - sum(r.price for r in self.replacements)

    @property
    def sure_savings(self) -> float:
        """USD per hour saved even if the dearest of what may be launched is; `savings` where that is not
        known."""
        return self.savings if self.worst_price is None else self.price_before - self.worst_price

    @property
    def disruption_cost(self) -> float:
        """What moving the pods costs, in the units of `Candidate.disruption_cost`."""
        return sum(c.disruption_cost for c in self.candidates)

    @property
    def moved(self) -> int:
        """How many pods have to be restarted elsewhere."""
        return sum(len(c.reschedulable) for c in self.candidates)

    def of_node(self, name: str) -> str:
        """Return the command as it concerns one of its nodes, savings aside: for events, which are short."""
        if len(self.candidates) > 1:
            return f"{self.decision}: [{name}] (part of {len(self.candidates)}-node consolidation)"
        return f"{self.decision}: [{name}]{self._target}"

    @property
    def _target(self) -> str:
        return f" -> [{len(self.replacements)} replacement(s)]" if self.replacements else ""

    def __str__(self) -> str:
        pools = ", ".join(sorted({candidate.pool.name for candidate in self.candidates}))
        nodes = ", ".join(candidate.node.name for candidate in self.candidates)
        return (
            f"{self.reason.lower()}: {self.decision}: nodepools=[{pools}]: [{nodes}]{self._target} "
            f"(savings: ${self.savings:.2f})"
        )
