"""Our own annotations of NodePools: what they mean, and what a user reads about mistakes in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis.annotations import (
    CAPACITY_TYPE_MIX,
    INTERRUPTION_COST,
    PRICE_LIMIT,
    REPLACE_BEFORE_EXPIRY,
    capacity_type_mix,
    format_usd,
    interruption_cost,
    micro_usd,
    price_limit,
)
from karpenter.apis.karpenter import NodePool
from karpenter.apis.nodepool_validation import validate_nodepool
from karpenter.testing.builders import a_nodepool


def annotated(key: str, value: str) -> NodePool:
    """Return a pool with one annotation."""
    pool = a_nodepool()
    return replace(pool, metadata=replace(pool.metadata, annotations={key: value}))


def test_without_annotations_nothing_is_limited() -> None:
    """A pool that says nothing has no price limit, no interruption cost and no mix."""
    pool = a_nodepool()
    assert (price_limit(pool), interruption_cost(pool), capacity_type_mix(pool)) == (None, 0.0, {})
    assert validate_nodepool(pool) == []


@pytest.mark.parametrize(
    ("text", "micro"), [("12.50", 12_500_000), ("0", 0), (" 3 ", 3_000_000), ("1e-6", 1)]
)
def test_money_is_read_exactly(text: str, micro: int) -> None:
    """Dollars become micro-dollars without passing through floats."""
    assert price_limit(annotated(PRICE_LIMIT, text)) == micro


def test_interruptions_and_mixes_are_read() -> None:
    """Costs are dollars, shares are per cent, with or without the sign."""
    assert interruption_cost(annotated(INTERRUPTION_COST, "0.05")) == pytest.approx(0.05)
    mix = capacity_type_mix(annotated(CAPACITY_TYPE_MIX, "spot=70%, on-demand=30"))
    assert mix == {"on-demand": 30, "spot": 70}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (PRICE_LIMIT, "12,50", "want an amount"),
        (PRICE_LIMIT, "-1", "0 or more"),
        (PRICE_LIMIT, "NaN", "0 or more"),
        (PRICE_LIMIT, "", "want an amount"),
        (INTERRUPTION_COST, "much", "want an amount"),
        (CAPACITY_TYPE_MIX, "spot", "is not TYPE=PERCENT"),
        (CAPACITY_TYPE_MIX, "spot=-5,on-demand=105", "is not TYPE=PERCENT"),
        (CAPACITY_TYPE_MIX, "spot=50,reserved=50", "is not a capacity type to mix"),
        (CAPACITY_TYPE_MIX, "spot=50,spot=50", "is named twice"),
        (CAPACITY_TYPE_MIX, "spot=50,on-demand=40", "the shares make 90"),
        (REPLACE_BEFORE_EXPIRY, "soon", "duration"),
        (REPLACE_BEFORE_EXPIRY, "-1h", "duration"),
    ],
)
def test_mistakes_are_named(key: str, value: str, said: str) -> None:
    """The finding names the annotation, what it says, and an example of what it wants."""
    (found,) = validate_nodepool(annotated(key, value))
    assert found.field == f"metadata.annotations[{key}]"
    assert found.value == value
    assert said in found.message
    assert found.fix.startswith("e.g.")


@pytest.mark.parametrize(
    ("price", "micro"), [(0.1, 100_000), (0.1 + 0.2, 300_001), (1e-9, 1), (0.0, 0), (0.280000, 280_000)]
)
def test_prices_are_rounded_up(price: float, micro: int) -> None:
    """A price counts against a limit with all of it."""
    assert micro_usd(price) == micro


@given(st.integers(0, 10**12))
def test_money_is_shown_as_it_is_read(micro: int) -> None:
    """What is printed, read again, is the same amount."""
    assert price_limit(annotated(PRICE_LIMIT, format_usd(micro).removeprefix("$"))) == micro
