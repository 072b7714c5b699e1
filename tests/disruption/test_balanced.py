"""The Balanced policy: how moves score, who approves, and what is never weighed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.disruption.balanced import Balance, Score, Total, score, totals
from karpenter.disruption.command import Command
from karpenter.disruption.drift import Drift
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.multi import MultiNode
from karpenter.disruption.rounds import Round
from karpenter.disruption.single import SingleNode
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_daemon, a_pod, an_instance_type
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", price=0.1)
LARGE = an_instance_type("large", cpu="8", price=0.4)
BOTH = [SMALL, LARGE]
TEN = Total(cost=10.0, disruption=20.0)


@pytest.mark.parametrize(
    ("savings", "disruption", "value", "approved"),
    [
        (1.0, 2.0, 1.0, True),  # a tenth for a tenth
        (1.0, 4.0, 0.5, True),  # just enough
        (1.0, 4.001, 0.49988, False),
        (10.0, 20.0, 1.0, True),  # everything
        (0.0, 2.0, 0.0, False),
        (-1.0, 2.0, 0.0, False),
        (math.nan, 2.0, 0.0, False),
        (1.0, 0.0, math.inf, True),
    ],
)
def test_the_score_of_a_move(savings: float, disruption: float, value: float, approved: bool) -> None:
    """Share saved by share disturbed; half is enough."""
    found = score(TEN, savings, disruption)
    assert found.value == pytest.approx(value, abs=1e-5)
    assert found.approved() is approved


@pytest.mark.parametrize("total", [None, Total(cost=0.0, disruption=5.0), Total(cost=5.0, disruption=0.0)])
def test_without_knowing_the_whole_nothing_is_approved(total: Total | None) -> None:
    """A share of nothing is no share."""
    assert score(total, 5.0, 1.0).value == 0.0


@pytest.mark.parametrize(("k", "approved"), [(1, False), (2, True), (3, True)])
def test_k_is_how_eager_it_is(k: int, approved: bool) -> None:
    """A score of a half is enough from 2 on."""
    assert Score(savings=0.1, disruption=0.2).approved(k) is approved


@given(st.floats(0.01, 5), st.floats(0.01, 5), st.floats(0.1, 100))
def test_the_unit_of_money_does_not_matter(savings: float, disruption: float, scale: float) -> None:
    """Nor that of disruption."""
    plain = score(TEN, savings, disruption).value
    scaled = Total(cost=TEN.cost * scale, disruption=TEN.disruption * scale)
    assert score(scaled, savings * scale, disruption * scale).value == pytest.approx(plain)


def test_a_score_in_words() -> None:
    """Upstream's, for events."""
    text = "score 0.50 >= threshold 0.50 (k: 2, savings 10.0%, disruption 20.0%)"
    assert Score(savings=0.1, disruption=0.2).in_words() == text
    assert Score(savings=0.0, disruption=0.2).in_words().startswith("score 0.00 < threshold 0.50 (")


def test_the_whole_of_a_pool() -> None:
    """All of its nodes count, those that may not be touched and those going too; daemons disturb nobody."""
    views = [
        a_machine("a", LARGE, "1", "1"),
        replace(a_machine("b", SMALL, "1", a_daemon("d", node_name="b")), marked_for_deletion=True),
        replace(a_machine("c", SMALL), initialized=False),
        a_machine("d", an_instance_type("lost")),
        a_machine("e", SMALL, pool="other"),
    ]
    pools = [a_disrupting_pool(), a_disrupting_pool("other")]
    a_look = a_round(*views, types=BOTH, pools=pools)
    found = totals(a_look.snapshot, a_look.catalogues)
    assert found["default"].cost == pytest.approx(0.6)
    assert found["default"].disruption == pytest.approx(3 + 2 + 1 + 1)
    assert found["other"] == Total(cost=0.1, disruption=1.0)


def weighed(
    *views: NodeView, policies: dict[str, str], saved: float = 0.0
) -> list[tuple[str, bool, float | None]]:
    """Weigh taking all of `views` away, of two pools, for a replacement that leaves so much saved."""
    pools = [a_disrupting_pool(name, policy=policy) for name, policy in policies.items()]
    others = [a_machine(f"z-{pool.name}", LARGE, "1", pool=pool.name) for pool in pools]
    a_look = a_round(*views, *others, types=BOTH, pools=pools)
    names = {view.name for view in views}
    chosen = tuple(c for c in a_look.candidates if c.node.name in names)
    command = Command(reason="Underutilized", method="multi", candidates=chosen)
    claim = a_look.simulator.without(chosen).claims[0]
    command = replace(command, replacements=(replace(claim, price=command.price_before - saved),))
    return [(move.pool, move.approved, move.score) for move in Balance(a_look).weigh(command)]


def test_savings_count_where_they_arise() -> None:
    """A move across pools is split by what each pool's nodes cost."""
    views = [a_machine("a", LARGE, "7900m", pool="p"), a_machine("b", SMALL, "1900m", pool="q")]
    found = weighed(*views, policies={"p": "Balanced", "q": "Balanced"}, saved=0.25)
    # Of p: 4/5 of 0.25 saved of 0.8, half of the disruption; of q: 0.05 of 0.5, half of it.
    assert [value for _, _, value in found] == pytest.approx([0.2 / 0.8 / 0.5, 0.05 / 0.5 / 0.5])
    assert [approved for _, approved, _ in found] == [True, False]


def test_nodes_of_unknown_price_have_no_share() -> None:
    """Nothing is saved with them, and nothing breaks."""
    lost = an_instance_type("lost", cpu="8")
    views = [a_machine("a", lost, "7900m", pool="p")]
    assert weighed(*views, policies={"p": "Balanced"}, saved=0.0) == [("p", False, 0.0)]
    views.append(a_machine("b", lost, "1900m", pool="q"))
    both = {"p": "Balanced", "q": "WhenEmptyOrUnderutilized"}
    assert weighed(*views, policies=both, saved=0.0) == [("p", False, 0.0), ("q", True, None)]


def test_pools_of_other_policies_are_not_asked() -> None:
    """They approve without a score."""
    views = [a_machine("a", LARGE, "7900m", pool="p"), a_machine("b", SMALL, "1900m", pool="q")]
    found = weighed(*views, policies={"p": "Balanced", "q": "WhenEmptyOrUnderutilized"}, saved=0.25)
    assert [(pool, approved) for pool, approved, _ in found] == [("p", True), ("q", True)]
    assert found[1][2] is None


def a_balanced_round(*views: NodeView, policy: str = "Balanced") -> Round:
    return a_round(*views, types=BOTH, pools=[a_disrupting_pool(policy=policy)])


def crowded(name: str) -> NodeView:
    """A node that could be had much cheaper, but not without many restarts."""
    return a_machine(name, LARGE, *["10m"] * 30)


def a_calm_pool() -> list[NodeView]:
    """Nodes that cost as much and disturb hardly anybody."""
    return [a_machine(f"z{i}", LARGE, "7", consolidatable=False) for i in range(9)]


def test_a_node_is_left_alone_that_is_not_worth_it() -> None:
    """Not even if all of its price were saved; the verdict tells the arithmetic and who decides."""
    decision = SingleNode()(a_balanced_round(crowded("a"), *a_calm_pool()))
    (verdict,) = [v for v in decision.verdicts if v.node == "a"]
    assert (decision.commands, decision.moves, verdict.code) == ((), (), "balance")
    assert verdict.message.startswith("score 0.16 < threshold 0.50 (k: 2, savings 10.0%, disruption 63.3%)")
    assert verdict.remedy == "set consolidationPolicy of nodepool/default to WhenEmptyOrUnderutilized"
    plain = SingleNode()(a_balanced_round(crowded("a"), *a_calm_pool(), policy="WhenEmptyOrUnderutilized"))
    assert [c.candidates[0].node.name for c in plain.commands] == ["a"]
    assert [(m.pool, m.policy, m.approved, m.score) for m in plain.moves] == [
        ("default", "WhenEmptyOrUnderutilized", True, None)
    ]


def test_a_worthwhile_move_is_approved_with_its_score() -> None:
    """The event's text is in the decision."""
    decision = SingleNode()(a_balanced_round(a_machine("a", LARGE, "1500m"), *a_calm_pool()))
    (move,) = decision.moves
    assert (move.nodes, move.pool, move.policy, move.approved) == (("a",), "default", "Balanced", True)
    assert move.message == "score 0.75 >= threshold 0.50 (k: 2, savings 7.5%, disruption 10.0%)"


def test_what_saves_too_little_after_all_is_rejected() -> None:
    """It passed at full price, but its replacement costs most of that."""
    most = an_instance_type("most", cpu="6", price=0.39)
    pools = [a_disrupting_pool(policy="Balanced")]
    a_look = a_round(a_machine("a", LARGE, "5"), *a_calm_pool(), types=[most, LARGE], pools=pools)
    decision = SingleNode()(a_look)
    assert [(m.approved, round(m.score or 0, 3)) for m in decision.moves] == [(False, 0.025)]
    (verdict,) = [v for v in decision.verdicts if v.node == "a"]
    assert verdict.code == "balance"
    assert verdict.saving == pytest.approx(0.01)


def test_the_last_node_may_always_go() -> None:
    """All of the cost for all of the disruption scores 1."""
    pools = [a_disrupting_pool(policy="Balanced"), a_disrupting_pool("other")]
    target = a_machine("b", LARGE, "1", pool="other", consolidatable=False)
    decision = SingleNode()(a_round(crowded("a"), target, types=BOTH, pools=pools))
    assert [(m.approved, m.score) for m in decision.moves] == [(True, 1.0)]


def test_several_nodes_are_weighed_as_one_move() -> None:
    """Told once, for what is done in the end."""
    views = [a_machine(name, LARGE, "1") for name in "abc"]
    decision = MultiNode()(a_balanced_round(*views, *a_calm_pool()))
    (move,) = decision.moves
    assert (move.nodes, move.approved) == (("a", "b", "c"), True)
    rejected = MultiNode()(a_balanced_round(crowded("a"), crowded("b"), *a_calm_pool()))
    assert (rejected.commands, rejected.moves) == ((), ())
    assert {v.code for v in rejected.verdicts if v.node in "ab"} == {"balance"}


def test_empty_and_drifted_nodes_are_not_weighed() -> None:
    """There is nothing to balance."""
    pools = [a_disrupting_pool(policy="Balanced")]
    view = a_machine("a", SMALL, drifted=NOW)
    a_look = a_round(view, *a_calm_pool(), types=BOTH, pools=pools)
    for search in (Emptiness(), Drift()):
        assert len(search(a_look).commands) == 1
        assert search(a_look).moves == ()
    busy = a_machine("a", SMALL, a_pod("p", node_name="a", cpu="100m"), drifted=NOW)
    assert len(Drift()(a_round(busy, *a_calm_pool(), types=BOTH, pools=pools)).commands) == 1
