"""NodeOverlays: which instance types one is for, and what a type looks like under several of them.

An overlay sets or adjusts prices of offerings, and adds resources that the cloud does not know of. The one of
highest weight decides, offering by offering and resource by resource; among equals the name that sorts last.
Nothing here looks at a cluster; what an overlay does not speak of stays the very object it was.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeOverlay, NodePool
from karpenter.base.quantity import Resources, resources_of
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.requirements import Requirements

_DECIMALS = 9
"""So that 50 % more than 0.2 is 0.3, not a little more: limits on money count every millionth."""
_PRICE = re.compile(r"(?P<sign>[+-]?)(?P<amount>\d*\.?\d+)(?P<percent>%?)")


class Overlay(msgspec.Struct, frozen=True):
    """A NodeOverlay, ready to be applied."""

    name: str
    weight: int
    requirements: Requirements
    price: str = ""
    """A price in USD per hour, or with a sign the change of it (`+0.1`, `-10%`); empty: leaves it alone."""
    capacity: Resources = {}


class PoolLabels(msgspec.Struct, frozen=True):
    """What is known of the labels of a pool's nodes before their type is."""

    name: str
    labels: Requirements
    """The pool itself and the labels of its template."""
    fixed: Requirements
    """Labels that the pool's requirements leave no choice about; they count where types define none."""
    requirements: Requirements
    """All requirements of the pool: what it can buy."""


def overlay_of(overlay: NodeOverlay) -> Overlay:
    """Return `overlay` ready to be applied.

    Raises:
        ValueError: when a requirement, a price or a quantity cannot be read.
    """
    spec = overlay.spec
    price = spec.price or spec.price_adjustment or ""
    adjusted_price(0.0, price)  # raises here rather than in the middle of a catalogue
    return Overlay(
        name=overlay.name,
        weight=spec.weight or 0,
        requirements=Requirements.from_specs(spec.requirements),
        price=price,
        capacity=resources_of(spec.capacity),
    )


def pool_labels(pool: NodePool) -> PoolLabels:
    """Return what overlays can know of `pool`.

    Raises:
        ValueError: when a requirement of the pool cannot be read.
    """
    template = pool.spec.template
    own = {**template.metadata.labels, known.NODEPOOL: pool.name}
    requirements = Requirements.from_specs(template.spec.requirements)
    fixed = {key: r for key, r in requirements.items() if len(r) == 1 and not r.complement and not r.absent}
    return PoolLabels(pool.name, Requirements.from_labels(own), Requirements(fixed), requirements)


def by_precedence(overlays: Iterable[NodeOverlay]) -> list[NodeOverlay]:
    """Return `overlays`, those that win first: weight descending, then name descending."""
    by_name = sorted(overlays, key=lambda overlay: overlay.name, reverse=True)
    return sorted(by_name, key=lambda overlay: -(overlay.spec.weight or 0))


def adjusted_price(price: float, change: str) -> float:
    """Return `price` (USD per hour) under `change`: a new price, or with a sign a change, in percent or not.

    A price that was adjusted is never below zero.

    Raises:
        ValueError: when `change` is neither.
    """
    if not change:
        return price
    amount, relative, percent = _parsed(change)
    if not relative:
        return amount
    changed = price * (1 + amount / 100) if percent else price + amount
    return max(0.0, round(changed, _DECIMALS))


@lru_cache(maxsize=1024)
def _parsed(change: str) -> tuple[float, bool, bool]:
    """Return the number, whether it is a change, and whether it is in percent."""
    match = _PRICE.fullmatch(change)
    if match is None or (match["percent"] and not match["sign"]):
        raise ValueError(f'{change!r} is no price or change of one (want e.g. "1.25", "+0.1" or "-10%")')
    return float(match["sign"] + match["amount"]), bool(match["sign"]), bool(match["percent"])


class Scoped(msgspec.Struct, frozen=True):
    """An overlay as one pool sees it; equal for all pools that see it the same way."""

    overlay: Overlay
    settled: frozenset[str]
    """Required labels that types need not define: the pool does, or their absence will do."""


def scoped(overlay: Overlay, pool: PoolLabels) -> Scoped | None:
    """Return `overlay` in `pool`; None when the pool's own labels rule it out."""
    settled: set[str] = set()
    for key, wanted in overlay.requirements.items():
        if wanted.impossible or (key in pool.labels and not pool.labels[key].has_intersection(wanted)):
            return None
        if key in pool.labels or (
            pool.fixed[key].has_intersection(wanted) if key in pool.fixed else wanted.absent
        ):
            settled.add(key)
    return Scoped(overlay, frozenset(settled))


def matching_offerings(scope: Scoped, kind: InstanceType) -> tuple[int, ...]:
    """Return which offerings of `kind`, by position, an overlay is for; none: not for this type.

    The type or the pool must define every label that the overlay requires (but for NotIn and DoesNotExist,
    which its absence satisfies).
    """
    wanted, own = scope.overlay.requirements, kind.requirements
    for key, requirement in wanted.items():
        if not (own[key].has_intersection(requirement) if key in own else key in scope.settled):
            return ()
    return tuple(i for i, o in enumerate(kind.offerings) if not wanted.intersects(o.requirements))


def overlaid(kind: InstanceType, scopes: Sequence[Scoped]) -> InstanceType:
    """Return `kind` as overlays, in order of precedence, make it; the same object when none is for it."""
    prices: dict[int, str] = {}
    capacity: Resources = {}
    for scope in scopes:
        overlay, matching = scope.overlay, matching_offerings(scope, kind)
        if overlay.price:
            for position in matching:
                prices.setdefault(position, overlay.price)
        if matching:
            for name, amount in overlay.capacity.items():
                capacity.setdefault(name, amount)
    if prices:
        offerings = tuple(_priced(o, prices.get(i, "")) for i, o in enumerate(kind.offerings))
        kind = replace(kind, offerings=offerings, price_overlaid=True)
    if capacity:
        kind = replace(kind, capacity={**kind.capacity, **capacity}, capacity_overlaid=True)
        if kind.has_overrides:
            kind = replace(kind, offerings=tuple(_resized(o, capacity) for o in kind.offerings))
    return kind


def _resized(offering: Offering, capacity: Resources) -> Offering:
    """Return `offering` with `capacity` no longer overridden: an overlay is for all offerings of a type."""
    own = {name: amount for name, amount in offering.capacity_override.items() if name not in capacity}
    return offering if own == offering.capacity_override else replace(offering, capacity_override=own)


def _priced(offering: Offering, change: str) -> Offering:
    price = adjusted_price(offering.price, change)
    return offering if price == offering.price else replace(offering, price=price)
