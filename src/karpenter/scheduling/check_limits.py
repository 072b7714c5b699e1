"""What may run out: limits of NodePools, money among them, and the stock of reservations."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Plan, PlannedClaim
from karpenter.scheduling.check_market import TOLERANCE, Market

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

_Lot = tuple[str, ...]


def stock(market: Market, plan: Plan) -> Iterator[str]:
    """Yield whether claims that nothing but reservations can serve are more than these hold.

    So are claims at a price that only the next few machines have.
    """
    if not market.has_stock:
        return
    left: dict[_Lot, int] = {}
    wants: dict[int, list[_Lot]] = {}
    for number, claim in enumerate(plan.claims):
        lots = dict(_lots(market, claim))
        if lots and None not in lots.values():
            left |= {lot: count for lot, count in lots.items() if count is not None}
            wants[number] = list(lots)
    served: dict[_Lot, list[int]] = {lot: [] for lot in left}
    for number in wants:
        if not _serve(number, wants, served, left, set()):
            yield f"claim {number}: its reservations are spoken for by other claims"


def _lots(market: Market, claim: PlannedClaim) -> Iterator[tuple[_Lot, int | None]]:
    """Yield what a claim may draw on, and how much of each is left; None: without end.

    One that is priced by a step of a price draws on that step.
    """
    pool = claim.pool.name
    names = [name for name in claim.instance_types if name in market.types.get(pool, {})]
    plain = min((market.cheapest(pool, claim.requirements, name) for name in names), default=claim.price)
    stepped = abs(plain - claim.price) > TOLERANCE
    for name in names:
        for offering in market.offerings(pool, claim.requirements, name):
            lot = market.lot_of(name, offering)
            if not stepped:
                yield lot, market.stock_of(name, offering)
            for number, (count, price) in enumerate(offering.steps):
                if stepped and abs(price - claim.price) <= TOLERANCE:
                    yield (*((offering.commitment,) if offering.commitment else lot), f"#{number}"), count


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
