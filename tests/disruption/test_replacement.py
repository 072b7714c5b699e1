"""What may replace nodes: one by upstream's rules, or several that together are cheaper in any case."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.disruption.command import Command
from karpenter.disruption.market import Market
from karpenter.disruption.replacement import replacement_of
from karpenter.disruption.rounds import Policy
from karpenter.disruption.simulation import Outcome
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.testing.builders import an_instance_type, an_offering
from karpenter.testing.rounds import a_machine, a_round

SMALL = an_instance_type("small", cpu="2", price=0.1)
LARGE = an_instance_type("large", cpu="8", price=0.4)


def replacing(
    *kinds: InstanceType,
    cpu: list[list[str]],
    price: float = 0.4,
    most: int = 9,
    spot: bool = False,
    policy: Policy | None = None,
) -> tuple[Command | Verdict, Market, Outcome]:
    """Take nodes of so many pods each away, which cost `price` each, with `kinds` on offer."""
    ct = "spot" if spot else "on-demand"
    offerings = [an_offering("zone-a", ct, price, available=False)]
    gone = an_instance_type("gone", cpu="16", offerings=offerings)
    views = [a_machine(f"n{i}", gone, *pods, capacity_type=ct) for i, pods in enumerate(cpu)]
    a_look = a_round(*views, types=[*kinds, gone])
    outcome = a_look.simulator.without(a_look.candidates)
    market = Market.of(a_look.simulator.problem)
    found = replacement_of(a_look.candidates, outcome, market, policy or Policy(), method="sets", most=most)
    return found, market, outcome


def test_several_replace_one_where_allowed() -> None:
    """A node too large is split; upstream cannot."""
    found, _, _ = replacing(SMALL, cpu=[["1500m", "1500m"]])
    assert isinstance(found, Command)
    assert [claim.instance_types for claim in found.replacements] == [("small",), ("small",)]
    assert found.savings == pytest.approx(0.2)
    refused, _, _ = replacing(SMALL, cpu=[["1500m", "1500m"]], most=1)
    assert isinstance(refused, Verdict)
    assert refused.code == "tooMany"
    assert refused.saving == pytest.approx(0.2)


def test_together_they_must_cost_less() -> None:
    """Not each by itself: two at 0.1 are no bargain for 0.2."""
    found, _, _ = replacing(SMALL, cpu=[["1500m", "1500m"]], price=0.2)
    assert isinstance(found, Verdict)
    assert found.code == "notCheaper"
    assert found.saving == pytest.approx(0.0)


def test_each_keeps_the_types_that_its_part_of_the_saving_allows() -> None:
    """What is saved is shared out; a type that might take more than its share is left out."""
    other = an_instance_type("other", cpu="2", price=0.19)
    dear = an_instance_type("dear", cpu="2", price=0.21)
    found, _, _ = replacing(SMALL, other, dear, cpu=[["1500m", "1500m"]])
    assert isinstance(found, Command)
    assert [claim.instance_types for claim in found.replacements] == [("small", "other")] * 2
    assert found.worst_price == pytest.approx(0.38)
    assert found.sure_savings == pytest.approx(0.02)


def test_spot_is_split_into_spot_only_where_users_allow_it() -> None:
    """And with fifteen types to choose from for each, when one node goes."""
    kinds = [
        an_instance_type(f"s{i:02}", cpu="2", price=0.05 + i / 1000, capacity_types=("spot",))
        for i in range(15)
    ]
    for on, number, expected in [(False, 15, "spotToSpot"), (True, 14, "spotToSpot"), (True, 15, "")]:
        found, _, _ = replacing(
            *kinds[:number], cpu=[["1500m", "1500m"]], spot=True, policy=Policy(spot_to_spot=on)
        )
        assert (found.code if isinstance(found, Verdict) else "") == expected
    several, _, _ = replacing(
        kinds[0], cpu=[["1500m"], ["1500m"]], spot=True, policy=Policy(spot_to_spot=True)
    )
    assert isinstance(several, Command)


PRICES = st.sampled_from([0.05, 0.1, 0.2, 0.3])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(PRICES, PRICES, PRICES), min_size=1, max_size=4),
    st.lists(st.lists(st.sampled_from(["500m", "1500m"]), min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from([0.1, 0.3, 0.5]),
)
def test_whatever_is_launched_is_cheaper(
    prices: list[tuple[float, float, float]], cpu: list[list[str]], price: float
) -> None:
    """Any type of each claim, in any offering of the capacity type that is tried first, together."""
    kinds = [
        an_instance_type(
            f"k{i}",
            cpu="2",
            offerings=[
                an_offering("zone-a", "spot", spot),
                an_offering("zone-b", "spot", worse),
                an_offering("zone-a", "on-demand", firm),
            ],
        )
        for i, (spot, worse, firm) in enumerate(prices)
    ]
    found, market, outcome = replacing(*kinds, cpu=cpu, price=price)
    assume(isinstance(found, Command))
    assert isinstance(found, Command)
    assert len(found.replacements) == len(outcome.claims)
    before = price * len(cpu)
    worst = 0.0
    for claim in found.replacements:
        kind_of = {kind.name: kind for kind in kinds}
        (ct,) = claim.requirements.get(labels.CAPACITY_TYPE).permitted()
        own = [
            offering.price
            for name in claim.instance_types
            for offering in kind_of[name].offerings
            if offering.capacity_type == ct
        ]
        worst += max(own)
        assert claim.price == min(own)
        assert claim.requirements.get(labels.INSTANCE_TYPE).permitted() == tuple(sorted(claim.instance_types))
        assert [q.name for q in market.of_claim(claim)] == list(claim.instance_types)
    assert worst < before
    assert found.worst_price == pytest.approx(worst)
