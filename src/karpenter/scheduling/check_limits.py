"""What may run out: limits of NodePools, money among them, and the stock of reservations."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from karpenter.apis import labels as known
from karpenter.model.problem import Plan, PlannedClaim
from karpenter.scheduling.check_claims import lots_paid
from karpenter.scheduling.check_market import Lot, Market

PRICE = "price"
"""The key of `PoolOffer.remaining` that is money: micro-USD per hour."""
NODES = "nodes"
_MICRO = 1_000_000


def limits(market: Market, plan: Plan) -> Iterator[str]:
    """Yield the limits that are passed if every claim becomes the largest machine it lists."""
    for name, offer in market.offers.items():
        claims = [c for c in plan.claims if c.pool.name == name]
        for resource, left in sorted(offer.remaining.items()):
            used = sum(_most(market, claim, resource) for claim in claims)
            if used > max(left, 0):
                yield f"NodePool {name}: {used} {resource} planned, {left} left of the limit"
    together = market.problem.options.price_remaining
    if together is not None:
        used = sum(_most(market, claim, PRICE) for claim in plan.claims)
        if used > max(together, 0):
            yield f"all NodePools: {used} {PRICE} planned, {together} left of the limit"


def _most(market: Market, claim: PlannedClaim, resource: str) -> int:
    if resource == NODES:
        return 1
    if resource == PRICE:
        # The exact value of the decimal that the price is written as, not of its nearest float.
        return math.ceil(Fraction(repr(claim.price)) * _MICRO)
    pool = claim.pool.name
    listed = (name for name in claim.instance_types if name in market.types[pool])
    machines = (m for name in listed for m in market.machines(pool, claim.requirements, name))
    return max((m.capacity.get(resource, 0) for m in machines), default=0)


# --- stock ----------------------------------------------------------------------------------------------


def stock(market: Market, plan: Plan) -> Iterator[str]:
    """Yield whether claims for their price need more of something than there is.

    A claim that something without end can serve at its price needs nothing else, and must stay clear of
    reservations: they are for those that count on them.
    """
    if not market.left:
        return
    wants: dict[int, list[Lot]] = {}
    for number, claim in enumerate(plan.claims):
        if not claim.instance_types or not _listed(market, claim):
            continue  # said elsewhere
        lots = lots_paid(market, claim)
        if () not in lots:
            wants[number] = lots
        elif _may_take_reserved(market, claim):
            yield f"claim {number}: may take a reservation that it does not count on"
    served: dict[Lot, list[int]] = {lot: [] for lot in market.left}
    for number in wants:
        if not _serve(number, wants, served, market.left, set()):
            yield f"claim {number}: its reservations are spoken for by other claims"


def _listed(market: Market, claim: PlannedClaim) -> bool:
    known_types = market.types.get(claim.pool.name, {})
    return all(name in known_types for name in claim.instance_types) and any(
        market.prices(claim.pool.name, claim.requirements)[name] for name in claim.instance_types[:1]
    )


def _may_take_reserved(market: Market, claim: PlannedClaim) -> bool:
    return any(
        offering.stock is not None and offering.capacity_type == known.CAPACITY_RESERVED
        for name in claim.instance_types
        for offering in market.offerings(claim.pool.name, claim.requirements, name)
    )


def _serve(
    number: int,
    choices: Mapping[int, list[Lot]],
    served: dict[Lot, list[int]],
    left: Mapping[Lot, int],
    tried: set[Lot],
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
