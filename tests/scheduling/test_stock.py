"""Reservations and other things of which there is only so much: who gets them, and who goes on without."""

from collections.abc import Iterable

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.karpenter import RequirementSpec
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.requirements import Requirement
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    an_instance_type,
    an_offer,
    an_offering,
    some_pods,
)

replace = msgspec.structs.replace
ID = "cloud.example/reservation-id"
RESERVED, ON_DEMAND, SPOT = labels.CAPACITY_RESERVED, labels.CAPACITY_ON_DEMAND, labels.CAPACITY_SPOT


def a_reservation(name: str, stock: int | None, zone: str = "zone-a", price: float = 0.0001) -> Offering:
    """Return an offering from the reservation called `name`."""
    offering = an_offering(zone, RESERVED, price)
    return replace(
        offering, requirements=offering.requirements.add(Requirement.of(ID, "In", [name])), stock=stock
    )


def a_type(
    *reservations: Offering, name: str = "four", others: Iterable[str] = (ON_DEMAND,), price: float = 0.2
) -> InstanceType:
    """Return a type of four cores with these reservations, beside others that are of none."""
    plain = [an_offering("zone-a", kind, price) for kind in others]
    none = Requirement.of(ID, "DoesNotExist")
    apart = [replace(o, requirements=o.requirements.add(none)) for o in plain]
    return an_instance_type(name, offerings=[*apart, *reservations])


def reserving(problem: Problem, **options: object) -> Problem:
    """Return `problem` in a cloud whose reservations have ids."""
    known = problem.options.well_known_labels | {ID}
    changed = replace(problem.options, reservation_label=ID, well_known_labels=known, **options)
    return replace(problem, options=changed)


def planned(problem: Problem) -> Plan:
    """Solve, and make sure that the plan is right."""
    plan = solve(problem)
    assert violations(problem, plan) == []
    return plan


def reservation_of(claim: PlannedClaim) -> str:
    """Return the reservation a claim is pinned to; empty when it stays clear of them all."""
    kinds = claim.requirements.get(labels.CAPACITY_TYPE).permitted()
    if kinds == (RESERVED,):
        return claim.requirements.single_value(ID)
    assert RESERVED not in kinds
    return ""


def reservations(plan: Plan) -> list[str]:
    """Return what the claims are pinned to, sorted; empty strings are claims outside of reservations."""
    return sorted(map(reservation_of, plan.claims))


@pytest.mark.parametrize(("stock", "inside"), [(0, 0), (1, 1), (2, 2), (5, 3)])
def test_a_reservation_is_used_up_and_the_rest_goes_on_demand(stock: int, inside: int) -> None:
    """In one pass as many nodes as there are come from the reservation; nobody waits for another pass."""
    problem = reserving(a_problem(some_pods(3, cpu="3"), instance_types=[a_type(a_reservation("r", stock))]))
    plan = planned(problem)
    assert reservations(plan) == [""] * (3 - inside) + ["r"] * inside
    assert plan.unschedulable == ()


def test_two_reservations_of_one_type_are_used_one_after_the_other() -> None:
    """A claim holds one reservation, so that two of one node each serve two claims."""
    kind = a_type(a_reservation("r1", 1), a_reservation("r2", 1))
    plan = planned(reserving(a_problem(some_pods(3, cpu="3"), instance_types=[kind])))
    assert reservations(plan) == ["", "r1", "r2"]


def test_pools_share_a_reservation() -> None:
    """What one pool takes of a reservation is not there for the other, though both see all of it."""
    kind = a_type(a_reservation("r", 1), others=())
    pools = [a_nodepool("a", labels={"team": "a"}), a_nodepool("b", labels={"team": "b"})]
    pods = [a_pod(f"pod-{t}", cpu="3", node_selector={"team": t}) for t in "ab"]
    plan = planned(reserving(a_problem(pods, pools=pools, instance_types=[kind])))
    assert reservations(plan) == ["r"]
    assert len(plan.unschedulable) == 1


def test_the_least_that_any_pool_sees_counts() -> None:
    """Catalogues of different age disagree about what is left; the smaller number is the safe one."""
    fresh, stale = a_type(a_reservation("r", 1)), a_type(a_reservation("r", 3))
    offers = [an_offer(a_nodepool("a"), [fresh]), an_offer(a_nodepool("b"), [stale])]
    plan = planned(reserving(a_problem(some_pods(3, cpu="3"), pools=offers)))
    assert reservations(plan) == ["", "", "r"]


def test_claims_on_their_way_hold_their_part() -> None:
    """A reservation of two that a claim not launched yet will draw on has one left."""
    problem = reserving(a_problem(some_pods(2, cpu="3"), instance_types=[a_type(a_reservation("r", 2))]))
    assert reservations(planned(replace(problem, held={"r": 1}))) == ["", "r"]


def test_pods_joining_a_reserved_node_leave_it_reserved() -> None:
    """Several pods share a reserved node, also such that ask for reserved capacity themselves."""
    pods = [*some_pods(3), a_pod("wants", node_selector={labels.CAPACITY_TYPE: RESERVED})]
    plan = planned(reserving(a_problem(pods, instance_types=[a_type(a_reservation("r", 1))])))
    assert reservations(plan) == ["r"]
    assert len(plan.claims[0].pods) == 4


def test_a_pod_may_ask_for_one_reservation() -> None:
    """Selecting a reservation's id gets a node from it, or none when it is used up."""
    kind = a_type(a_reservation("r1", 3), a_reservation("r2", 1))
    pods = [a_pod(f"pod-{i}", cpu="3", node_selector={ID: "r2"}) for i in range(2)]
    plan = planned(reserving(a_problem(pods, instance_types=[kind])))
    assert reservations(plan) == ["r2"]
    assert len(plan.unschedulable) == 1


def test_without_the_gate_reservations_are_left_alone() -> None:
    """With ReservedCapacity off nothing is bought from reservations, however cheap they are."""
    problem = a_problem(some_pods(2, cpu="3"), instance_types=[a_type(a_reservation("r", 5))])
    assert reservations(planned(reserving(problem, reserved_capacity=False))) == ["", ""]


def test_min_values_beyond_a_reservation_are_met_outside_of_it() -> None:
    """A reservation has one type; a pool that wants two to choose from buys elsewhere."""
    types = [a_type(a_reservation("r", 5)), a_type(name="other")]
    two = RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", min_values=2)
    pool = a_nodepool(requirements=[two])
    plan = planned(reserving(a_problem(some_pods(1, cpu="3"), pools=[pool], instance_types=types)))
    assert reservations(plan) == [""]


def test_the_last_machines_of_a_kind_are_counted_too() -> None:
    """A cloud that knows it has two spot machines left gets two claims for them, the rest elsewhere."""
    spot = replace(an_offering("zone-a", SPOT, 0.05), stock=2)
    kind = an_instance_type("four", offerings=[an_offering("zone-a", ON_DEMAND, 0.2), spot])
    plan = planned(a_problem(some_pods(3, cpu="3"), instance_types=[kind]))
    bought = sorted(c.requirements.single_value(labels.CAPACITY_TYPE) for c in plan.claims)
    assert bought == [ON_DEMAND, SPOT, SPOT]
    assert plan.cost == pytest.approx(0.3)


@pytest.mark.parametrize("strict", [True, False])
def test_in_strict_mode_pods_wait_for_reservations_that_may_come_free(strict: bool) -> None:
    """While only claims on their way hold a reservation, pods don't go on to a pool of lower weight."""
    inside = an_offer(a_nodepool("inside", weight=10), [a_type(a_reservation("r", 1), others=())])
    outside = an_offer(a_nodepool("outside"), [a_type(name="other")])
    problem = replace(a_problem(some_pods(1, cpu="3"), pools=[inside, outside]), held={"r": 1})
    plan = planned(reserving(problem, reserved_strict=strict))
    assert [c.pool.name for c in plan.claims] == ([] if strict else ["outside"])
    if strict:
        refusal = plan.unschedulable[0].refusals[0]
        assert (refusal.place, refusal.constraint) == ("nodepool/inside", "offering")
        assert "held by nodeclaims that are being launched" in refusal.message


def test_a_reservation_that_is_used_up_lets_pods_go_on() -> None:
    """When the cloud says that nothing is left, or this plan takes it all, the next pool serves the rest."""
    inside = an_offer(a_nodepool("inside", weight=10), [a_type(a_reservation("r", 1), others=())])
    outside = an_offer(a_nodepool("outside"), [a_type(name="other")])
    problem = reserving(a_problem(some_pods(2, cpu="3"), pools=[inside, outside]), reserved_strict=True)
    assert sorted(c.pool.name for c in planned(problem).claims) == ["inside", "outside"]


@pytest.mark.parametrize(("stock", "cost", "least"), [(0, 0.6, 0.45), (1, 0.4, 0.25), (3, 0.0, 0.0)])
def test_the_bound_knows_what_is_reserved(stock: int, cost: float, least: float) -> None:
    """What could have been had from reservations is not counted as unavoidable; the rest is."""
    kind = a_type(a_reservation("r", stock, price=0.0))
    plan = planned(reserving(a_problem(some_pods(3, cpu="3"), instance_types=[kind])))
    assert plan.cost == pytest.approx(cost)
    assert plan.lower_bound == pytest.approx(least)
