"""What has to be placed: pods of one shape that may go to the same places.

Classes become asks once it is settled in which domains their pods go; from then on classes that differ only
in their topology constraints are one ask.
"""

from collections.abc import Sequence

import msgspec

from karpenter.base.quantity import Resources
from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.classes import PodClass, Port, Variant
from karpenter.scheduling.topology import UNLIMITED, Profile

Needs = tuple[tuple[int, int], ...]
"""What a pod wants as (column, amount), without what is zero."""


def needs_of(wanted: Amounts) -> Needs:
    """Return what a pod wants, without what is zero."""
    return tuple((column, amount) for column, amount in enumerate(wanted.tolist()) if amount)


class Origin(msgspec.Struct, frozen=True):
    """Where some pods of an ask come from."""

    pod_class: int
    cell: tuple[str, ...]
    """The domains they were dealt to; empty when none were to be chosen."""
    count: int


class Ask(msgspec.Struct):
    """Pods on their way: what is left of them, and under which variant and in which pool they want a node."""

    index: int
    wanted: Amounts
    needs: Needs
    requests: Resources
    variants: tuple[Variant, ...]
    ports: frozenset[Port]
    profile: Profile
    """The part that concerns single nodes."""
    priority: int
    pods: list[str]
    """Keys; those placed so far are the first ones."""
    origins: list[Origin]
    remaining: int = 0
    variant: int = 0
    tried: set[int] = set()
    """Variants of the present tier under which no node can be bought any more."""
    mixed: bool = False
    """Some of its pods were placed with more preferences kept than others."""
    home: int | None = None
    """The first pool that can buy a node for it."""
    worth: float = 0.0
    choices: int = 0
    """How many types of its home its requirements leave at the price they have for everyone."""
    level: int = 0
    """How many others have to be placed before it."""
    most: int = UNLIMITED
    """How many of its pods one empty node may hold, whatever its size."""

    @property
    def demands(self) -> Variant:
        return self.variants[self.variant]

    def options(self) -> list[int]:
        """Return the variants that are as good as the present one, in order."""
        if len(self.variants) == 1:
            return [0]
        tier = self.demands.tier
        return [i for i, v in enumerate(self.variants) if v.tier == tier]

    @property
    def placed(self) -> int:
        return len(self.pods) - self.remaining

    def take(self, count: int) -> list[str]:
        """Hand out the next `count` pods."""
        first = self.placed
        self.remaining -= count
        return self.pods[first : first + count]

    @property
    def celled(self) -> bool:
        """Some of its pods were dealt to a domain."""
        return any(o.cell for o in self.origins)

    def left_by_origin(self) -> list[tuple[Origin, int]]:
        """Return the origins whose pods could not all be placed, and how many of each were."""
        found, placed = [], self.placed
        for origin in self.origins:
            here = min(origin.count, placed)
            placed -= here
            if here < origin.count:
                found.append((origin, here))
        return found


class Outline:
    """What the asks for pods of one class have in common."""

    def __init__(
        self, pod_class: PodClass, wanted: Amounts, needs: Needs, profile: Profile, most: int
    ) -> None:
        """Note what a pod wants, in full and without what is zero, and how many one empty node may hold."""
        self._pod_class = pod_class
        self._wanted, self._needs = wanted, needs
        self._profile = profile
        self._most = most

    def ask(self, variants: tuple[Variant, ...], pods: Sequence[str], origin: Origin) -> Ask:
        """Return an ask for some pods of the class, where `variants` would do for them."""
        return Ask(
            index=-1,
            wanted=self._wanted,
            needs=self._needs,
            requests=self._pod_class.requests,
            variants=variants,
            ports=self._pod_class.ports,
            profile=self._profile,
            priority=self._pod_class.priority,
            pods=list(pods),
            origins=[origin],
            remaining=len(pods),
            most=self._most,
        )
