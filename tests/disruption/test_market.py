"""What replacements could be launched for, at best and at worst."""

import math

import pytest

from karpenter.apis import labels
from karpenter.disruption.market import Market, enough_values, worst_price
from karpenter.model.instancetype import Offering
from karpenter.model.requirements import Requirement, Requirements
from karpenter.testing.builders import a_nodepool, an_instance_type, an_offer, an_offering

RESERVED = an_offering("zone-a", "reserved", 0.3, labels={"rid": "r"})
SPOT_A, SPOT_B = an_offering("zone-a", "spot", 0.4), an_offering("zone-b", "spot", 0.6)
FIRM_A, FIRM_B = an_offering("zone-a", "on-demand", 0.5), an_offering("zone-b", "on-demand", 1.0)
GONE = an_offering("zone-c", "spot", 0.01, available=False)


@pytest.mark.parametrize(
    ("offerings", "price"),
    [
        ([FIRM_A, FIRM_B], 1.0),
        ([FIRM_B, SPOT_A, SPOT_B], 0.6),
        ([FIRM_B, SPOT_B, RESERVED], 0.3),
        ([], math.inf),
    ],
)
def test_the_worst_is_the_dearest_of_what_is_tried_first(offerings: list[Offering], price: float) -> None:
    """Reserved before spot before on-demand, as clouds do, whatever they cost."""
    assert worst_price(offerings) == price


@pytest.mark.parametrize(
    ("wanted", "best", "worst"),
    [
        ({}, 0.3, 0.3),
        ({labels.CAPACITY_TYPE: ["spot"]}, 0.4, 0.6),
        ({labels.CAPACITY_TYPE: ["spot", "on-demand"]}, 0.4, 0.6),
        ({labels.CAPACITY_TYPE: ["on-demand"]}, 0.5, 1.0),
        ({labels.ZONE: ["zone-b"]}, 0.6, 0.6),
        ({labels.ZONE: ["zone-b"], labels.CAPACITY_TYPE: ["on-demand"]}, 1.0, 1.0),
        ({labels.ZONE: ["zone-c"]}, None, None),
    ],
)
def test_quotes_follow_requirements(
    wanted: dict[str, list[str]], best: float | None, worst: float | None
) -> None:
    """Only what is available, and may be taken, counts."""
    kind = an_instance_type("k", offerings=[FIRM_B, RESERVED, SPOT_A, SPOT_B, FIRM_A, GONE])
    market = Market([an_offer(a_nodepool(), [kind])], labels.WELL_KNOWN_LABELS | {"rid"})
    requirements = Requirements.of(*(Requirement.of(k, "In", values) for k, values in wanted.items()))
    for _ in range(2):  # quotes are kept
        found = market.quotes("default", requirements, ["k", "unknown"])
        assert [(q.best, q.worst) for q in found] == ([] if best is None else [(best, worst)])
    assert market.quotes("lost", requirements, ["k"]) == []


def test_quotes_come_cheapest_first() -> None:
    """Ties by name."""
    kinds = [an_instance_type(name, price=price) for name, price in [("c", 1.0), ("b", 1.0), ("a", 2.0)]]
    market = Market([an_offer(a_nodepool(), kinds)], labels.WELL_KNOWN_LABELS)
    assert [q.name for q in market.quotes("default", Requirements(), ["a", "b", "c"])] == ["b", "c", "a"]


def test_how_many_types_give_enough_values() -> None:
    """From the first; what is missing is told by key."""
    kinds = [
        an_instance_type(name, labels={"family": family})
        for name, family in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")]
    ]
    wanted = Requirements.of(Requirement.of("family", "In", ["a", "b"], min_values=2))
    assert enough_values(wanted, kinds) == (3, {})
    assert enough_values(wanted, kinds[:2]) == (2, {"family": 1})
    names = Requirements.of(Requirement.of(labels.INSTANCE_TYPE, "Exists", min_values=4))
    assert enough_values(names, kinds) == (4, {})
    assert enough_values(Requirements(), kinds) == (0, {})
