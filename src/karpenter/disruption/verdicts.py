"""Why a node is not disrupted, as data: one verdict for each node and method that looked at it."""

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

Method = Literal["emptiness", "staticDrift", "drift", "multi", "single", "sets"]
"""Which search for disruptions is meant; `sets` is ours, `multi` and `single` are upstream's."""

Code = Literal[
    # The node may not be touched at all (`karpenter.disruption.candidates`).
    "queued",
    "noClaim",
    "noNode",
    "notInitialized",
    "deleting",
    "nominated",
    "doNotDisrupt",
    "noNodePool",
    "noInstanceTypes",
    "podDoNotDisrupt",
    "podDisruptionBudget",
    # The method is not for it.
    "static",
    "dynamic",
    "never",
    "policy",
    "notEmpty",
    "empty",
    "tooFresh",
    "headroom",
    "notDrifted",
    "unknownType",
    "unknownPlace",
    # It would be, but.
    "budget",
    "noPlace",
    "tooMany",
    "notCheaper",
    "spotToSpot",
    "balance",
    "payback",
    "undone",
    "rollout",
    "halted",
    "timeout",
    "changed",
    "alone",
    "limit",
    "failed",
]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why one method leaves one node alone, and what it would have gained."""

    node: str
    method: Method | None
    """None: the node may not be touched by any."""
    code: Code
    message: str
    """For people; upstream's words where it has any."""
    saving: float | None = None
    """USD per hour that disrupting it would have saved; None when that was not worked out."""
    remedy: str = ""
    """The cheapest change that would unlock it, as an instruction; empty when nothing sensible would."""
    detail: dict[str, Any] = {}
    """Figures behind it, for whoever wants to make the change."""

    def about(self, node: str, method: Method, *, saving: float | None = None) -> "Verdict":
        """Return the same of another node or method; `saving` fills in where it is not known."""
        return replace(self, node=node, method=method, saving=saving if self.saving is None else self.saving)
