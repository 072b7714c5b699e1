"""Judging all NodeOverlays together: which are valid, which contradict each other, which are in force.

Two overlays of the same weight contradict each other when both set the same thing: the price of one offering,
or one resource of one type, in one pool that can buy it. Saying the same is no excuse. The one whose name
sorts last stands; the other is rejected altogether, and what is rejected takes part in no further conflict.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeOverlay
from karpenter.apis.nodepool_validation import validate_overlay
from karpenter.cloudprovider.overlays import (
    Overlay,
    PoolLabels,
    Scoped,
    by_precedence,
    matching_offerings,
    overlay_of,
    scoped,
)
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.requirements import Requirements

RejectionReason = Literal["RuntimeValidation", "Conflict"]


class Rejection(NamedTuple):
    """Why an overlay is not in force."""

    reason: RejectionReason
    message: str


class PoolTypes(NamedTuple):
    """A pool and what its cloud offers it, without overlays."""

    pool: PoolLabels
    types: tuple[InstanceType, ...]


class Evaluation(msgspec.Struct, frozen=True):
    """The verdict on all overlays."""

    overlays: tuple[Overlay, ...] = ()
    """Those in force, in order of precedence."""
    rejected: Mapping[str, Rejection] = {}
    """By name of the overlay."""


class _Field(NamedTuple):
    """One thing that an overlay may set."""

    pool: str
    instance_type: str
    offering: Requirements | None
    """Whose price it is; None: it is a resource."""
    resource: str = ""

    def __str__(self) -> str:
        if self.offering is None:
            return f"{self.resource} of {self.instance_type}"
        of = self.offering
        place = f"{of.single_value(known.CAPACITY_TYPE)} in {of.single_value(known.ZONE)}"
        return f"the price of {self.instance_type} ({place})"


def evaluate(
    overlays: Iterable[NodeOverlay],
    pools: Sequence[PoolTypes],
    well_known: frozenset[str] = known.WELL_KNOWN_LABELS,
) -> Evaluation:
    """Judge `overlays` over the types of `pools`; the order of either does not matter."""
    rejected: dict[str, Rejection] = {}
    valid: list[Overlay] = []
    for overlay in by_precedence(overlays):
        problem = _problem(overlay, well_known)
        if problem:
            rejected[overlay.name] = Rejection("RuntimeValidation", problem)
        else:
            valid.append(overlay_of(overlay))
    offers = _Offers(pools)
    accepted: list[Overlay] = []
    for _, group in groupby(valid, key=lambda overlay: overlay.weight):
        equals = list(group)
        conflicts = _conflicts(equals, offers) if len(equals) > 1 else {}
        accepted.extend(overlay for overlay in equals if overlay.name not in conflicts)
        rejected.update(conflicts)
    return Evaluation(tuple(accepted), {name: rejected[name] for name in sorted(rejected)})


def _problem(overlay: NodeOverlay, well_known: frozenset[str]) -> str:
    """Return what keeps `overlay` from being applied at all; empty when nothing does."""
    problems = validate_overlay(overlay, well_known=well_known)
    if not problems:
        try:
            overlay_of(overlay)
        except ValueError as error:
            return str(error)
    return "; ".join(str(problem) for problem in problems)


def _conflicts(equals: Sequence[Overlay], offers: "_Offers") -> dict[str, Rejection]:
    """Return those of `equals` (one weight, in order of precedence) that set what an earlier one does."""
    owners: dict[_Field, str] = {}
    found: dict[str, Rejection] = {}
    for overlay in equals:
        fields = list(offers.fields(overlay))
        taken = [field for field in fields if field in owners]
        if taken:
            found[overlay.name] = Rejection("Conflict", _message(overlay, taken, owners))
        else:
            owners.update(dict.fromkeys(fields, overlay.name))
    return found


def _message(overlay: Overlay, taken: list[_Field], owners: Mapping[_Field, str]) -> str:
    first = taken[0]
    others = sorted({owners[field] for field in taken} - {owners[first]})
    also = f"; so do {', '.join(others)}" if others else ""
    more = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
    return (
        f"conflict with another overlay: {owners[first]}, of the same weight ({overlay.weight}), also sets "
        f"{first} in nodepool {first.pool}{more}{also}. Give one of them another weight, or requirements "
        "that do not overlap"
    )


class _Offers:
    """What each pool can buy, and which of it each overlay is for; worked out when first asked for."""

    def __init__(self, pools: Sequence[PoolTypes]) -> None:
        self._pools = sorted(pools, key=lambda each: each.pool.name)
        self._buyable: dict[str, dict[str, frozenset[int]]] = {}
        self._matching: dict[tuple[str, frozenset[str], int], list[tuple[InstanceType, tuple[int, ...]]]] = {}

    def fields(self, overlay: Overlay) -> Iterator[_Field]:
        """Return everything that `overlay` sets where it can matter, by pool and type."""
        for each in self._pools if overlay.price or overlay.capacity else ():
            scope = scoped(overlay, each.pool)
            for kind, positions in self._matches(scope, each.types) if scope is not None else ():
                buyable = self._of(each).get(kind.name, frozenset())
                matching = [i for i in positions if i in buyable]
                if overlay.price:
                    for i in matching:
                        yield _Field(each.pool.name, kind.name, kind.offerings[i].requirements)
                for resource in sorted(overlay.capacity) if matching else ():
                    yield _Field(each.pool.name, kind.name, None, resource)

    def _matches(
        self, scope: Scoped, types: tuple[InstanceType, ...]
    ) -> list[tuple[InstanceType, tuple[int, ...]]]:
        """Return what an overlay is for; pools that see it the same way share the answer."""
        key = (scope.overlay.name, scope.settled, id(types))
        if key not in self._matching:
            found = [(kind, matching_offerings(scope, kind)) for kind in types]
            self._matching[key] = [(kind, positions) for kind, positions in found if positions]
        return self._matching[key]

    def _of(self, each: PoolTypes) -> dict[str, frozenset[int]]:
        """Return the offerings, by position, that a pool's requirements allow, by type."""
        found = self._buyable.get(each.pool.name)
        if found is None:
            wanted = each.pool.requirements
            found = {
                kind.name: frozenset(i for i, o in enumerate(kind.offerings) if _allows(wanted, o))
                for kind in each.types
                if not wanted.intersects(kind.requirements)
            }
            self._buyable[each.pool.name] = found
        return found


def _allows(wanted: Requirements, offering: Offering) -> bool:
    return not wanted.intersects(offering.requirements)
