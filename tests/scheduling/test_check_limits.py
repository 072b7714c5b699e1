"""The verifier adds up what runs out: machines, money, reservations."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Problem
from karpenter.model.requirements import Requirement
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


@pytest.mark.parametrize(("held", "wrong"), [({}, False), ({"r": 1}, True)])
def test_claims_on_their_way_hold_reservations_too(held: dict[str, int], wrong: bool) -> None:
    """What they will use is not there for the plan."""
    label = "cloud.example/reservation"
    offering = an_offering("zone-a", labels.CAPACITY_RESERVED, 0.1, labels={label: "r"})

    def problem(stock: int | None) -> Problem:
        made = two_claims([an_instance_type("reserved-4", offerings=[replace(offering, stock=stock)])])
        known = made.options.well_known_labels | {label}
        options = replace(made.options, reservation_label=label, well_known_labels=known)
        return replace(made, options=options)

    plan = solve(problem(2))
    assert len(plan.claims) == 2
    assert bool(violations(replace(problem(2), held=held), plan)) == wrong


def test_reserved_capacity_may_be_switched_off() -> None:
    """Then a claim that can only be reserved can be nothing."""
    problem = two_claims([reserved(2)])
    plan = solve(problem)
    off = replace(problem, options=replace(problem.options, reserved_capacity=False))
    assert violations(problem, plan) == []
    assert any("no available offering" in text for text in violations(off, plan))


@pytest.mark.parametrize(("count", "wrong"), [(2, False), (1, True)])
def test_a_price_for_the_next_few_is_for_no_more(count: int, wrong: bool) -> None:
    """Two claims at the price of a step are wrong when the step is good for one."""

    def problem(count: int) -> Problem:
        offering = replace(an_offering("zone-a", price=0.2), steps=((count, 0.1),))
        return two_claims([an_instance_type(offerings=[offering])])

    plan = solve(problem(2))
    assert [c.price for c in plan.claims] == [0.1, 0.1]
    assert bool(violations(problem(count), plan)) == wrong


def spot_and_more(stock: int | None) -> InstanceType:
    """Return a type that is there on demand too, for more."""
    spot = replace(an_offering("zone-a", labels.CAPACITY_SPOT, 0.1), stock=stock)
    return an_instance_type("four", offerings=[spot, an_offering("zone-a", price=0.2)])


def test_a_claim_at_the_price_of_its_way_out_needs_nothing_scarce() -> None:
    """Claims that cost what on-demand costs are not counted, though they may find a spot machine left."""
    plan = solve(two_claims([spot_and_more(0)]))
    wide = Requirement.of(labels.CAPACITY_TYPE, "In", [labels.CAPACITY_SPOT, labels.CAPACITY_ON_DEMAND])
    claims = [
        replace(c, requirements=c.requirements.without(labels.CAPACITY_TYPE).add(wide)) for c in plan.claims
    ]
    assert violations(two_claims([spot_and_more(1)]), replace(plan, claims=tuple(claims))) == []


def test_claims_at_the_price_of_what_is_scarce_are_counted() -> None:
    """Two claims at the spot price need two spot machines, another way out or not."""
    plan = solve(two_claims([spot_and_more(None)]))
    found = violations(two_claims([spot_and_more(1)]), plan)
    assert [c.price for c in plan.claims] == [0.1, 0.1]
    assert found == ["claim 1: its reservations are spoken for by other claims"]


def test_a_claim_must_stay_clear_of_reservations_it_does_not_count_on() -> None:
    """A claim at the on-demand price that the cloud may serve from a reservation takes it from somebody."""
    reservation = replace(an_offering("zone-a", labels.CAPACITY_RESERVED, 0.01), stock=0)
    kind = an_instance_type("four", offerings=[reservation, an_offering("zone-a", price=0.2)])
    plan = solve(two_claims([kind]))
    claims = [replace(c, requirements=c.requirements.without(labels.CAPACITY_TYPE)) for c in plan.claims]
    stocked = replace(kind, offerings=(replace(reservation, stock=5), kind.offerings[1]))
    found = violations(two_claims([stocked]), replace(plan, claims=tuple(claims)))
    assert found == [f"claim {i}: may take a reservation that it does not count on" for i in (0, 1)]


def test_what_all_pools_may_spend_is_checked_too() -> None:
    """Two nodes of 20 cents pass a limit of 39 cents on everything."""
    problem = two_claims([an_instance_type(price=0.2)])
    plan = solve(problem)
    tight = replace(problem, options=replace(problem.options, price_remaining=390_000))
    assert violations(tight, plan) == ["all NodePools: 400000 price planned, 390000 left of the limit"]
    assert violations(problem, plan) == []
