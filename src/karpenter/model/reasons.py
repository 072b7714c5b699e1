"""Why not: refusals as data. Text, JSON, events and conditions are renderings of these."""

from typing import Any, Literal

import msgspec

Constraint = Literal[
    "taints",
    "requirements",
    "resources",
    "offering",
    "limits",
    "minValues",
    "topologySpread",
    "podAffinity",
    "podAntiAffinity",
    "hostPorts",
    "volumes",
    "volumeLimits",
    "daemonOverhead",
    "dra",
    "priority",
    "nodepool",
    "unsupported",
]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why one place (a NodePool, or a node) cannot take a pod."""

    place: str
    """`nodepool/NAME`, `node/NAME` or `nodeclaim/NAME`; empty when it is true of every place."""
    constraint: Constraint
    """The step at which the set of candidates became empty."""
    message: str
    """One sentence for people, in upstream's words where it has words for it."""
    detail: dict[str, Any] = {}
    """The figures behind it, e.g. how many instance types each constraint removed."""
    remedy: str = ""
    """The smallest change that would make it fit, when one is known."""


class Unschedulable(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod could not be placed at all."""

    pod: str
    """`namespace/name`."""
    refusals: tuple[Refusal, ...]
    """In the order in which places were tried."""

    def __str__(self) -> str:
        return "; ".join(f"{r.place}: {r.message}" if r.place else r.message for r in self.refusals)
