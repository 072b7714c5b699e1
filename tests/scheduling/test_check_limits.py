"""The verifier adds up what runs out: machines, money, reservations."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import a_problem, an_instance_type, an_offer, an_offering, some_pods

replace = msgspec.structs.replace


def reserved(stock: int | None) -> InstanceType:
    """Return a type that only a reservation offers."""
    offering = replace(an_offering("zone-a", labels.CAPACITY_RESERVED, 0.1), stock=stock)
    return an_instance_type("reserved-4", offerings=[offering])


def two_claims(types: list[InstanceType]) -> Problem:
    """Return a problem whose plan has two claims of 4 cores."""
    return a_problem(some_pods(2, cpu="3"), instance_types=types)


@pytest.mark.parametrize(("left", "wrong"), [(400_000, False), (399_999, True), (0, True)])
def test_money_is_limited_to_the_micro_dollar(left: int, wrong: bool) -> None:
    """Two nodes of 20 cents may be bought for 40 cents an hour, and not for less."""
    plan = solve(two_claims([an_instance_type(price=0.2)]))
    offer = replace(an_offer(instance_types=[an_instance_type(price=0.2)]), remaining={"price": left})
    found = violations(a_problem(some_pods(2, cpu="3"), pools=[offer]), plan)
    assert len(plan.claims) == 2
    assert [text for text in found if "price planned" in text] == found
    assert bool(found) == wrong


@pytest.mark.parametrize(("stock", "wrong"), [(None, 0), (3, 0), (2, 0), (1, 1)])
def test_a_reservation_serves_no_more_claims_than_it_holds(stock: int | None, wrong: int) -> None:
    """Claims that can become nothing else are counted against what is left."""
    plan = solve(two_claims([reserved(None)]))
    found = violations(two_claims([reserved(stock)]), plan)
    assert len(plan.claims) == 2
    assert len([text for text in found if "spoken for" in text]) == wrong == len(found)


def test_a_claim_with_another_way_out_needs_no_reservation() -> None:
    """Claims that can also be bought on demand are not counted."""
    plenty = [reserved(None), an_instance_type("other-4")]
    plan = solve(two_claims(plenty))
    assert violations(two_claims([reserved(1), an_instance_type("other-4")]), plan) == []
