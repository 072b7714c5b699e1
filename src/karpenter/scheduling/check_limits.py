"""What may run out: limits of NodePools, money among them, and the stock of reservations."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.problem import Plan, PlannedClaim
from karpenter.model.requirements import Requirements
from karpenter.scheduling.check_market import Market

PRICE = "price"
"""The key of `PoolOffer.remaining` that is money: micro-USD per hour."""
NODES = "nodes"
_MICRO = 1_000_000


def limits(market: Market, plan: Plan) -> Iterator[str]:
    """Yield the limits that are passed if every claim becomes the largest machine it lists."""
    for name, offer in market.offers.items():
        claims = [c for c in plan.claims if c.pool.name == name]
        catalogue = market.types[name]
        for resource, left in sorted(offer.remaining.items()):
            used = sum(_most(claim, resource, catalogue) for claim in claims)
            if used > max(left, 0):
                yield f"NodePool {name}: {used} {resource} planned, {left} left of the limit"


def _most(claim: PlannedClaim, resource: str, catalogue: Mapping[str, InstanceType]) -> int:
    if resource == NODES:
        return 1
    if resource == PRICE:
        # The exact value of the decimal that the price is written as, not of its nearest float.
        return math.ceil(Fraction(repr(claim.price)) * _MICRO)
    sizes = [catalogue[n].capacity.get(resource, 0) for n in claim.instance_types if n in catalogue]
    return max(sizes, default=0)


# --- stock ----------------------------------------------------------------------------------------------

_Lot = tuple[str, Requirements]
"""One reservation: instance type and what its offering requires (its id among that)."""


def stock(market: Market, plan: Plan) -> Iterator[str]:
    """Yield whether claims that nothing but reservations can serve are more than these hold."""
    if not market.has_stock:
        return
    left: dict[_Lot, int] = {}
    wants: dict[int, list[_Lot]] = {}
    for number, claim in enumerate(plan.claims):
        options = list(_options(market, claim))
        if not options or any(offering.stock is None for _, offering in options):
            continue
        for lot, offering in options:
            left[lot] = min(left.get(lot, offering.stock or 0), offering.stock or 0)
        wants[number] = [lot for lot, _ in options]
    served: dict[_Lot, list[int]] = {lot: [] for lot in left}
    for number in wants:
        if not _serve(number, wants, served, left, set()):
            yield f"claim {number}: its reservations are spoken for by other claims"


def _options(market: Market, claim: PlannedClaim) -> Iterator[tuple[_Lot, Offering]]:
    pool = claim.pool.name
    for name in claim.instance_types:
        if name in market.types.get(pool, {}):
            for offering in market.offerings(pool, claim.requirements, name):
                yield (name, offering.requirements), offering


def _serve(
    number: int,
    choices: Mapping[int, list[_Lot]],
    served: dict[_Lot, list[int]],
    left: Mapping[_Lot, int],
    tried: set[_Lot],
) -> bool:
    """Give a claim one of its lots, moving others to theirs where that helps (an augmenting path)."""
    for lot in choices[number]:
        if lot in tried:
            continue
        tried.add(lot)
        if len(served[lot]) < left[lot]:
            served[lot].append(number)
            return True
        for other in list(served[lot]):
            if _serve(other, choices, served, left, tried):
                served[lot].remove(other)
                served[lot].append(number)
                return True
    return False
