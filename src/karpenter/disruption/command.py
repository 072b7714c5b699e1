"""What disruption has decided to do."""

from typing import Literal

import msgspec

from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.model.problem import PlannedClaim


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Take nodes away, after their replacements (if any) are ready."""

    reason: Reason
    candidates: tuple[Candidate, ...]
    replacements: tuple[PlannedClaim, ...] = ()

    @property
    def decision(self) -> Literal["delete", "replace"]:
        return "replace" if self.replacements else "delete"

    @property
    def savings(self) -> float:
        """USD per hour saved, by what is known of prices."""
        return sum(c.price for c in self.candidates) - sum(r.price for r in self.replacements)

    def __str__(self) -> str:
        pools = ", ".join(sorted({candidate.pool.name for candidate in self.candidates}))
        nodes = ", ".join(candidate.node.name for candidate in self.candidates)
        target = f" -> [{len(self.replacements)} replacement(s)]" if self.replacements else ""
        return (
            f"{self.reason.lower()}: {self.decision}: nodepools=[{pools}]: [{nodes}]{target} "
            f"(savings: ${self.savings:.2f})"
        )
