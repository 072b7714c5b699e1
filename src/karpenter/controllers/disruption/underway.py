"""A command on its way from decision to deed."""

from dataclasses import dataclass, field
from typing import Literal

from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command

Phase = Literal["waiting", "starting", "replacing", "failing"]
"""It waits for its second look; nodes are being marked and replacements created; replacements come up, then
nodes go; it is being undone."""

_SECONDS_PER_COMMAND = 0.08
_LEAST_TIMEOUT_SECONDS = 600.0
_MOST_TIMEOUT_SECONDS = 3600.0


@dataclass
class Underway:
    """One command, and how far it has come. Nothing here survives a crash, nor needs to."""

    id: str
    command: Command
    phase: Phase
    since: float
    """Epoch seconds: when it was decided; once started, when that was."""
    decision: Literal["delete", "replace"]
    left: list[Candidate]
    """Nodes whose end has not begun."""
    replacements: list[str] = field(default_factory=list)
    """Claims created, by name."""
    launched: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    noted: bool = False
    """Whether nodes that take its pods remember that."""
    failure: str = ""

    @property
    def reason(self) -> str:
        """The metrics' word for the reason."""
        return self.command.reason.lower()

    @property
    def provider_ids(self) -> list[str]:
        """Of the nodes whose end has not begun."""
        return [candidate.node.provider_id for candidate in self.left]

    @property
    def pools(self) -> list[str]:
        """Names of the pools that lose nodes, sorted."""
        return sorted({candidate.pool.name for candidate in self.command.candidates})

    @property
    def bought_from(self) -> list[str]:
        """Names of the pools that replacements are of, sorted; those that lose nodes if that is forgotten."""
        return sorted({claim.pool.name for claim in self.command.replacements}) or self.pools


def timeout_seconds(commands: int) -> float:
    """Return how long replacements may take while so many commands are underway: 10 minutes to an hour."""
    return min(_MOST_TIMEOUT_SECONDS, max(_LEAST_TIMEOUT_SECONDS, _SECONDS_PER_COMMAND * commands))
