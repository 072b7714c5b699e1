"""Annotations of NodePools that only this implementation knows: what they say, and what is wrong with them.

    price-limit-per-hour: "12.50"              machines of the pool never cost more, USD per hour
    interruption-cost: "0.05"                  what one interruption of a node costs us, USD
    capacity-type-mix: "spot=70,on-demand=30"  shares of vCPU that new nodes are steered to, per cent
    replace-before-expiry: "6h"                how long before nodes expire they are replaced, within budgets

They are metadata.annotations of the NodePool itself, not of its template: changing them drifts no node.
"""

from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodePool
from karpenter.apis.validation.errors import FieldError
from karpenter.base.duration import parse_duration

PRICE_LIMIT = f"{known.OWN_DOMAIN}/price-limit-per-hour"
INTERRUPTION_COST = f"{known.OWN_DOMAIN}/interruption-cost"
CAPACITY_TYPE_MIX = f"{known.OWN_DOMAIN}/capacity-type-mix"
REPLACE_BEFORE_EXPIRY = f"{known.OWN_DOMAIN}/replace-before-expiry"

PLANNED_PRICE = f"{known.OWN_DOMAIN}/planned-price"
"""Of a NodeClaim: USD per hour that it counts against price limits until its machine is launched."""

PRICE_USED = f"{known.OWN_DOMAIN}/price-per-hour"
"""In status.resources of a NodePool: USD per hour of its machines and of those on their way."""
PLANNED_LOT = f"{known.OWN_DOMAIN}/planned-lot"
"""Of a NodeClaim: the reservation, commitment or price step that it is meant to be bought from."""
MOVED_FROM = f"{known.OWN_DOMAIN}/moved-from"
"""Of a NodeClaim: the instance types that consolidation has moved workloads on it from, and when, as JSON
(`karpenter.disruption.ledger`)."""

MICRO = 1_000_000
"""Micro-USD in a dollar."""
_LARGEST = Decimal(1_000_000_000)
_WHOLE = 100


def price_limit(pool: NodePool) -> int | None:
    """Return what the machines of `pool` may cost, micro-USD per hour; None: as much as they like.

    Raises:
        ValueError: when the annotation is not an amount of money.
    """
    text = pool.metadata.annotations.get(PRICE_LIMIT)
    return None if text is None else parse_usd(text)


def interruption_cost(pool: NodePool) -> float:
    """Return what one interruption of a node of `pool` costs, USD; 0 unless it says.

    Raises:
        ValueError: when the annotation is not an amount of money.
    """
    text = pool.metadata.annotations.get(INTERRUPTION_COST)
    return 0.0 if text is None else parse_usd(text) / MICRO


def capacity_type_mix(pool: NodePool) -> Mapping[str, int]:
    """Return the wanted shares of capacity types in `pool`, per cent, by capacity type; empty: no wish.

    Raises:
        ValueError: when the annotation is not `type=share,...` with shares that make 100.
    """
    text = pool.metadata.annotations.get(CAPACITY_TYPE_MIX)
    return {} if text is None else _parse_mix(text)


def replace_before_expiry(pool: NodePool) -> float:
    """Return how many seconds before they expire nodes of `pool` are to be replaced; 0 unless it says.

    Raises:
        ValueError: when the annotation is not a duration.
    """
    text = pool.metadata.annotations.get(REPLACE_BEFORE_EXPIRY)
    if text is None:
        return 0.0
    seconds = parse_duration(text)
    if seconds < 0:
        raise ValueError("want a duration of 0 or more")
    return seconds


def parse_usd(text: str) -> int:
    """Return an amount of money in micro-USD, from dollars written as a decimal; what is finer is cut off.

    Raises:
        ValueError: when it is not a number from 0 to a thousand million.
    """
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError('want an amount in US dollars, such as "12.50"') from None
    if not amount.is_finite() or not 0 <= amount <= _LARGEST:
        raise ValueError('want an amount in US dollars, 0 or more, such as "12.50"')
    return int(amount * MICRO)


@lru_cache(maxsize=1 << 16)
def micro_usd(price: float) -> int:
    """Return a finite price in micro-USD, rounded up: limits are never passed by what rounding hides.

    Taken is the decimal that the price is written as, not what its nearest float happens to be.
    """
    return int((Decimal(repr(float(price))) * MICRO).to_integral_value(ROUND_CEILING))


def format_usd(micro: int) -> str:
    """Return an amount of money for people: at least two decimals, as many as it takes."""
    whole, rest = divmod(micro, MICRO)
    decimals = f"{rest:06d}"
    kept = max(2, len(decimals.rstrip("0")))
    return f"${whole}.{decimals[:kept]}"


def validate_annotations(pool: NodePool) -> Iterator[FieldError]:
    """Yield what is wrong with the annotations of `pool` that are ours."""
    for key, parse, example in (
        (PRICE_LIMIT, price_limit, '"12.50" for 12.50 USD per hour'),
        (INTERRUPTION_COST, interruption_cost, '"0.05" for 5 cents per interruption'),
        (CAPACITY_TYPE_MIX, capacity_type_mix, '"spot=70,on-demand=30"'),
        (REPLACE_BEFORE_EXPIRY, replace_before_expiry, '"6h"'),
    ):
        try:
            parse(pool)
        except ValueError as error:
            value = pool.metadata.annotations[key]
            yield FieldError(f"metadata.annotations[{key}]", value, str(error), f"e.g. {example}")


def _parse_mix(text: str) -> dict[str, int]:
    shares: dict[str, int] = {}
    for entry in text.split(","):
        kind, equals, share = (part.strip() for part in entry.partition("="))
        if not equals or not share.removesuffix("%").isdigit():
            raise ValueError(f"{entry.strip()!r} is not TYPE=PERCENT")
        if kind not in (known.CAPACITY_SPOT, known.CAPACITY_ON_DEMAND):
            raise ValueError(f"{kind!r} is not a capacity type to mix: want spot or on-demand")
        if kind in shares:
            raise ValueError(f"{kind!r} is named twice")
        shares[kind] = int(share.removesuffix("%"))
    if sum(shares.values()) != _WHOLE:
        raise ValueError(f"the shares make {sum(shares.values())}, want 100")
    return dict(sorted(shares.items()))
