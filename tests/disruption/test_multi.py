"""Consolidation of several nodes at a time: which of the best go together, for one replacement at most."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.karpenter import RequirementSpec
from karpenter.disruption.command import Command
from karpenter.disruption.multi import MOST, MultiNode
from karpenter.disruption.rounds import Decision, Policy
from karpenter.disruption.verdicts import Verdict
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodepool, an_instance_type
from karpenter.testing.rounds import a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", price=0.1)
MEDIUM = an_instance_type("medium", cpu="4", price=0.2)
LARGE = an_instance_type("large", cpu="8", price=0.4)
ALL = [SMALL, MEDIUM, LARGE]


def taken(decision: Decision) -> list[str]:
    return [c.node.name for command in decision.commands for c in command.candidates]


def some(number: int, *cpu: str, name: str = "n", pool: str = "default") -> list[NodeView]:
    return [a_machine(f"{name}{i:03}", LARGE, *cpu, pool=pool) for i in range(number)]


def test_three_nodes_become_one() -> None:
    """One replacement that holds all their pods and costs less."""
    decision = MultiNode()(a_round(*some(3, "1"), types=ALL))
    (command,) = decision.commands
    assert taken(decision) == ["n000", "n001", "n002"]
    assert [claim.instance_types[0] for claim in command.replacements] == ["medium"]
    assert command.replacements[0].pods == ("default/n000-0", "default/n001-0", "default/n002-0")
    assert command.savings == pytest.approx(1.0)
    assert (decision.verdicts, decision.settled) == ((), False)


def test_nodes_are_deleted_together() -> None:
    """Where all their pods fit on what stays."""
    target = a_machine("z", LARGE, "1", consolidatable=False)
    decision = MultiNode()(a_round(*some(3, "2"), target, types=ALL))
    assert (taken(decision), decision.commands[0].decision) == (["n000", "n001", "n002"], "delete")


@pytest.mark.parametrize(("count", "going"), [(4, 3), (6, 4), (7, 5), (12, 8)])
def test_the_longest_prefix_is_found_however_many_there_are(count: int, going: int) -> None:
    """Three pods fit on each node that stays, one on a cheaper replacement."""
    decision = MultiNode()(a_round(*some(count, "2500m"), types=ALL))
    assert len(taken(decision)) == going


def test_the_longest_prefix_goes() -> None:
    """Of nodes in the order of what they save per disruption; with the next, its like would be bought."""
    decision = MultiNode()(a_round(*some(5, "2500m"), types=ALL))
    assert taken(decision) == ["n000", "n001", "n002"]
    left = {v.node: (v.code, v.message) for v in decision.verdicts}
    assert left["n003"] == (
        "alone",
        "Not together with the nodes more worth it: Can't replace with a cheaper node",
    )
    assert set(left) == {"n003", "n004"}


def test_one_node_alone_is_not_for_this_method() -> None:
    """It is looked at by itself later."""
    decision = MultiNode()(a_round(*some(1, "1"), types=ALL))
    assert decision.commands == ()
    assert [(v.code, v.message) for v in decision.verdicts] == [("alone", "No other node may go with it")]
    assert decision.settled


def test_a_replacement_of_the_same_type_must_be_cheaper() -> None:
    """Two nodes, one of the type of the replacement: nothing is launched; one is deleted instead, later."""
    busy = [a_machine("a", LARGE, "1500m"), a_machine("b", SMALL, "100m")]
    (verdict, _) = MultiNode()(a_round(*busy, types=[SMALL, LARGE])).verdicts
    assert (verdict.code, verdict.message.endswith("Can't replace with a cheaper node")) == ("alone", True)
    fleeting = replace(SMALL, offerings=tuple(replace(o, price=0.05) for o in SMALL.offerings[:1]))
    other = a_machine("b", fleeting, "100m", zone="zone-b")
    decision = MultiNode()(a_round(busy[0], other, types=[fleeting, LARGE]))
    assert decision.commands == ()  # what goes costs as much as one more of it


def test_a_replacement_keeps_types_cheaper_than_any_it_is_the_like_of() -> None:
    """Those of the nodes' own type and dearer ones are left out."""
    tiny = an_instance_type("tiny", cpu="2", price=0.05)
    decision = MultiNode()(
        a_round(
            a_machine("a", LARGE, "500m"), a_machine("b", SMALL, "500m"), types=[tiny, SMALL, MEDIUM, LARGE]
        )
    )
    assert [claim.instance_types for claim in decision.commands[0].replacements] == [("tiny",)]


def test_min_values_hold_after_that() -> None:
    """Or there is no replacement; upstream once fell over here."""
    spec = RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", values=[], min_values=2)
    pool = a_disrupting_pool(pool=a_nodepool(requirements=[spec]))
    tiny = an_instance_type("tiny", cpu="2", price=0.05)
    views = [a_machine("a", LARGE, "500m"), a_machine("b", SMALL, "500m")]
    decision = MultiNode()(a_round(*views, types=[tiny, SMALL, MEDIUM, LARGE], pools=[pool]))
    assert decision.commands == ()
    assert "minValues requirement is not met" in decision.verdicts[0].message


def test_spot_needs_no_flexibility_when_several_go() -> None:
    """Fewer nodes are worth more than a choice of fifteen types; the feature has to be on."""
    types = [
        an_instance_type(name, cpu=cpu, price=price, capacity_types=("spot",))
        for name, cpu, price in [("small", "2", 0.1), ("large", "8", 0.4)]
    ]
    views = [a_machine(name, types[1], "500m", capacity_type="spot") for name in "ab"]
    for on in (False, True):
        decision = MultiNode()(a_round(*views, types=types, policy=Policy(spot_to_spot=on)))
        assert taken(decision) == (["a", "b"] if on else [])


def test_at_most_a_hundred_go_together() -> None:
    """Not one more."""
    views = [a_machine(f"n{i:03}", LARGE, "10m") for i in range(MOST + 3)]
    decision = MultiNode()(a_round(*views, types=ALL, remaining=500))
    assert len(taken(decision)) == MOST == 100
    text = "Only the 100 nodes most worth it are tried together"
    assert [v.message for v in decision.verdicts] == [text] * 3


def test_budgets_bind_pool_by_pool() -> None:
    """Nodes beyond them say so, and what is left is not settled."""
    pools = [a_disrupting_pool("p"), a_disrupting_pool("q")]
    views = [*some(3, "500m", name="p", pool="p"), *some(3, "500m", name="q", pool="q")]
    decision = MultiNode()(a_round(*views, types=ALL, pools=pools, remaining={"p": 2, "q": 1}))
    assert taken(decision) == ["p000", "p001", "q000"]
    assert [v.node for v in decision.verdicts if v.code == "budget"] == ["p002", "q001", "q002"]


def test_time_that_runs_out_leaves_the_best_so_far() -> None:
    """And nothing when there is none yet."""
    for steps, expected in [(0, 0), (1, 3)]:
        decision = MultiNode()(a_round(*some(5, "500m"), types=ALL, steps=steps))
        assert len(taken(decision)) == expected
        assert not decision.settled


def test_an_objection_shortens_the_prefix() -> None:
    """What may not go together may go in part."""

    def objection(command: Command) -> Verdict | None:
        if len(command.candidates) < 4:
            return None
        return Verdict(node="", method=None, code="rollout", message="web is rolled out")

    decision = MultiNode()(a_round(*some(5, "500m"), types=ALL, objection=objection))
    assert len(taken(decision)) == 3
    assert {v.code for v in decision.verdicts} == {"rollout"}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("pq"), st.integers(1, 30)), min_size=2, max_size=8),
    st.integers(0, 4),
    st.permutations(range(8)),
)
def test_any_command_is_worth_it(nodes: list[tuple[str, int]], budget: int, order: list[int]) -> None:
    """Within budgets, one replacement at most, cheaper at worst than what goes; the order in which nodes come
    is no matter."""
    views = [
        a_machine(f"n{i}", LARGE, f"{100 * size}m", pool=pool) for i, (pool, size) in enumerate(nodes) if size
    ]
    pools = [a_disrupting_pool("p"), a_disrupting_pool("q")]
    decision = MultiNode()(a_round(*views, types=ALL, pools=pools, remaining=budget))
    for command in decision.commands:
        assert len(command.replacements) <= 1
        assert not command.replacements or command.sure_savings > 0
        for pool in "pq":
            assert sum(c.pool.name == pool for c in command.candidates) <= budget
    assert {v.node for v in decision.verdicts} | set(taken(decision)) == {v.name for v in views}
    shuffled = [views[i] for i in order if i < len(views)]
    again = MultiNode()(a_round(*shuffled, types=ALL, pools=pools, remaining=budget))
    assert taken(again) == taken(decision)
