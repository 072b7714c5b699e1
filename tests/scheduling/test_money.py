"""Limits in money, interruptions with a price, commitments, and wanted mixes of capacity types."""

from collections import Counter
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.problem import Budget, Plan, PoolOffer, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_view,
    an_instance_type,
    an_offer,
    an_offering,
    some_instance_types,
    some_pods,
)

replace = msgspec.structs.replace
ON_DEMAND, SPOT = labels.CAPACITY_ON_DEMAND, labels.CAPACITY_SPOT
FOUR = an_instance_type("four", price=0.2)


def planned(problem: Problem, steps: int = 0) -> Plan:
    """Solve, and make sure that the plan is right."""
    plan = solve(problem, Budget(steps=steps))
    assert violations(problem, plan) == []
    assert plan.distrusted == ()
    return plan


def offer_of(*types: InstanceType, name: str = "default", **fields: object) -> PoolOffer:
    """Return a pool that sells `types`, with fields of the offer as given."""
    return replace(an_offer(a_nodepool(name), types), **fields)


def with_price(problem: Problem, micro: int) -> Problem:
    """Return `problem` where all new nodes together may cost so much."""
    return replace(problem, options=replace(problem.options, price_remaining=micro))


def kinds(plan: Plan) -> Counter[str]:
    """Return how many claims are of which capacity type."""
    return Counter(claim.requirements.single_value(labels.CAPACITY_TYPE) for claim in plan.claims)


# --- dollars ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 20])
@pytest.mark.parametrize(("left", "bought"), [(0, 0), (199_999, 0), (200_000, 1), (599_999, 2), (600_000, 3)])
def test_a_pool_spends_no_more_than_it_may(left: int, bought: int, steps: int) -> None:
    """Nodes are bought while the price limit has room for them, to the micro-dollar; the rest is refused."""
    offer = offer_of(FOUR, remaining={"price": left})
    plan = planned(a_problem(some_pods(3, cpu="3"), pools=[offer]), steps)
    assert len(plan.claims) == bought
    assert len(plan.unschedulable) == 3 - bought


def test_all_pools_together_spend_no_more_than_they_may() -> None:
    """The limit of the cluster is one purse for all pools, beside what each has of its own."""
    offers = [offer_of(FOUR, name=name) for name in ("a", "b")]
    offers[0] = replace(offers[0], pool=a_nodepool("a", labels={"team": "a"}))
    offers[1] = replace(offers[1], pool=a_nodepool("b", labels={"team": "b"}))
    pods = [a_pod(f"{team}-{i}", cpu="3", node_selector={"team": team}) for team in "ab" for i in range(2)]
    plan = planned(with_price(a_problem(pods, pools=offers), 600_000))
    assert len(plan.claims) == 3


def test_when_money_is_short_higher_priority_goes_first() -> None:
    """The one node that can be paid is for the pod that matters most."""
    pods = [a_pod("low", cpu="3"), a_pod("high", cpu="3", priority=10)]
    plan = planned(a_problem(pods, pools=[offer_of(FOUR, remaining={"price": 200_000})]))
    assert plan.claims[0].pods == ("default/high",)


def test_a_pod_that_cannot_be_paid_here_goes_to_the_next_pool() -> None:
    """A pool at its price limit is as good as one at its CPU limit: the next one is asked."""
    first = replace(offer_of(FOUR, remaining={"price": 200_000}), pool=a_nodepool("first", weight=10))
    plan = planned(a_problem(some_pods(2, cpu="3"), pools=[first, offer_of(FOUR, name="second")]))
    assert sorted(c.pool.name for c in plan.claims) == ["first", "second"]


def test_claims_list_nothing_dearer_than_what_was_counted() -> None:
    """With a price limit no claim may become a machine that costs more than it was bought for."""
    plan = planned(
        a_problem(some_pods(1), pools=[offer_of(*some_instance_types(), remaining={"price": 10**7})])
    )
    prices = {t.name: min(o.price for o in t.offerings) for t in some_instance_types()}
    (claim,) = plan.claims
    assert [prices[name] for name in claim.instance_types] == [claim.price] * len(claim.instance_types)


def test_a_cheaper_type_is_found_when_the_best_is_too_dear() -> None:
    """What is left buys a small node though a large one would be the better bargain."""
    offer = offer_of(*some_instance_types(), remaining={"price": 100_000})
    plan = planned(a_problem(some_pods(6), pools=[offer]))
    assert plan.claims
    assert plan.cost <= 0.1


def test_the_refusal_names_the_limit_and_the_raise() -> None:
    """The user reads which annotation stands in the way and by how many dollars to raise it."""
    plan = planned(a_problem(some_pods(1, cpu="3"), pools=[offer_of(FOUR, remaining={"price": 150_000})]))
    (refusal,) = plan.unschedulable[0].refusals
    assert refusal.constraint == "limits"
    assert "price limit" in refusal.message
    assert refusal.remedy == "raise karpenter-py.dev/price-limit-per-hour of the NodePool by $0.05"
    plan = planned(with_price(a_problem(some_pods(1, cpu="3"), pools=[offer_of(FOUR)]), 150_000))
    (refusal,) = plan.unschedulable[0].refusals
    assert refusal.remedy == "raise --cluster-price-limit by $0.05"


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["500m", "1", "3", "7"]), min_size=1, max_size=12),
    st.integers(0, 3_000_000),
    st.integers(0, 3_000_000),
    st.sampled_from([0, 10]),
)
def test_money_limits_hold_whatever_is_asked(cpus: list[str], own: int, shared: int, steps: int) -> None:
    """Two pools with a limit on one and on both never pass either, before and after the search."""
    offers = [
        offer_of(*some_instance_types(), name="a", remaining={"price": own}),
        offer_of(*some_instance_types(), name="b"),
    ]
    pods = [a_pod(f"pod-{i}", cpu=cpu) for i, cpu in enumerate(cpus)]
    plan = planned(with_price(a_problem(pods, pools=offers), shared), steps)
    assert sum(Fraction(repr(c.price)) for c in plan.claims) * 1_000_000 <= shared


# --- interruptions ----------------------------------------------------------------------------------------


def spot_with(hazard: float) -> InstanceType:
    """Return a type whose spot machines cost half and are interrupted so often an hour."""
    spot: Offering = replace(an_offering("zone-a", SPOT, 0.1), hazard=hazard)
    return an_instance_type("four", offerings=[an_offering("zone-a", ON_DEMAND, 0.2), spot])


@pytest.mark.parametrize("steps", [0, 20])
@pytest.mark.parametrize(("cost", "bought"), [(0.0, SPOT), (0.4, SPOT), (0.6, ON_DEMAND)])
def test_interruptions_are_weighed_against_the_discount(cost: float, bought: str, steps: int) -> None:
    """Ten cents off an hour are worth an interruption every five hours of less than 50 cents."""
    problem = a_problem(some_pods(2, cpu="3"), pools=[offer_of(spot_with(0.2), interruption_cost=cost)])
    plan = planned(problem, steps)
    if cost:
        assert kinds(plan) == {bought: 2}
    assert plan.cost == pytest.approx(0.2 if bought == SPOT else 0.4)


def test_types_are_not_listed_whose_interruptions_outweigh_their_price() -> None:
    """The cloud goes by price alone: it is not offered what is cheaper but interrupted often."""
    wild = an_instance_type("wild", offerings=[replace(an_offering("zone-a", SPOT, 0.1), hazard=0.5)])
    calm = an_instance_type("calm", offerings=[replace(an_offering("zone-a", SPOT, 0.11), hazard=0.01)])
    (claim,) = planned(a_problem(some_pods(1), pools=[offer_of(wild, calm, interruption_cost=0.1)])).claims
    assert claim.instance_types == ("calm",)
    assert claim.price == 0.11


# --- commitments ------------------------------------------------------------------------------------------


def committed(name: str = "four", commitment: str = "plan") -> InstanceType:
    """Return a type of which the next two nodes cost 5 cents, one more 10 cents, and others 20."""
    steps = ((2, 0.05), (1, 0.1))
    offering = replace(an_offering("zone-a", ON_DEMAND, 0.2), steps=steps, commitment=commitment)
    return an_instance_type(name, offerings=[offering])


def test_a_commitment_is_used_up_step_by_step() -> None:
    """The first nodes cost what was committed to, later ones more, and the plan says so."""
    plan = planned(a_problem(some_pods(4, cpu="3"), instance_types=[committed()]))
    assert sorted(c.price for c in plan.claims) == [0.05, 0.05, 0.1, 0.2]


def test_types_share_a_commitment() -> None:
    """Whichever type is bought uses up the commitment for the others too, in every pool."""
    offers = [offer_of(committed("one"), name="a"), offer_of(committed("two"), name="b")]
    plan = planned(a_problem(some_pods(4, cpu="3"), pools=offers))
    assert sorted(c.price for c in plan.claims) == [0.05, 0.05, 0.1, 0.2]


# --- mixes ------------------------------------------------------------------------------------------------

BOTH = an_instance_type("four", price=0.2, capacity_types=(ON_DEMAND, SPOT))


@pytest.mark.parametrize("steps", [0, 20])
@pytest.mark.parametrize(("spot", "expected"), [(70, 7), (50, 5), (0, 0), (100, 10)])
def test_new_nodes_approach_the_mix(spot: int, expected: int, steps: int) -> None:
    """Of ten nodes as many are spot as the pool wants, whatever is cheaper."""
    mix = {SPOT: spot, ON_DEMAND: 100 - spot}
    plan = planned(a_problem(some_pods(10, cpu="3"), pools=[offer_of(BOTH, capacity_type_mix=mix)]), steps)
    assert kinds(plan)[SPOT] == expected


def test_existing_nodes_count_in_the_mix() -> None:
    """A pool that has spot nodes already buys on-demand until the shares are right."""
    nodes = [
        a_view(f"node-{i}", labels={labels.CAPACITY_TYPE: SPOT}, pods=some_pods(1, cpu="4")) for i in range(3)
    ]
    offer = offer_of(BOTH, capacity_type_mix={SPOT: 50, ON_DEMAND: 50})
    plan = planned(a_problem(some_pods(3, cpu="3"), pools=[offer], nodes=nodes))
    assert kinds(plan) == {ON_DEMAND: 3}


def test_no_pod_waits_for_the_mix() -> None:
    """Pods that want one capacity type get it, and what is sold out is made up for by the other."""
    pods = [a_pod(f"pod-{i}", cpu="3", node_selector={labels.CAPACITY_TYPE: SPOT}) for i in range(4)]
    offer = offer_of(BOTH, capacity_type_mix={SPOT: 0, ON_DEMAND: 100})
    assert kinds(planned(a_problem(pods, pools=[offer]))) == {SPOT: 4}
    spot_only = an_instance_type("four", price=0.2, capacity_types=(SPOT,))
    offer = offer_of(spot_only, capacity_type_mix={SPOT: 0, ON_DEMAND: 100})
    assert kinds(planned(a_problem(some_pods(2, cpu="3"), pools=[offer]))) == {SPOT: 2}
