"""Replacing drifted nodes: which first, by what, and what keeps the others."""

import pytest

from karpenter.apis import labels
from karpenter.disruption.command import Command
from karpenter.disruption.drift import Drift
from karpenter.disruption.rounds import Decision
from karpenter.disruption.verdicts import Verdict
from karpenter.testing.builders import a_nodepool, a_pod, an_instance_type
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", price=0.1)
LARGE = an_instance_type("large", cpu="8", price=0.4)
BOTH = [SMALL, LARGE]


def taken(decision: Decision) -> list[str]:
    return [c.node.name for command in decision.commands for c in command.candidates]


def codes(decision: Decision) -> dict[str, str]:
    return {v.node: v.code for v in decision.verdicts}


def test_a_drifted_node_is_replaced() -> None:
    """Whatever it costs, and although pods came a moment ago; what is not drifted stays."""
    views = [
        a_machine("a", SMALL, "1900m"),
        a_machine("b", SMALL, "1900m", drifted=NOW, consolidatable=False, touched=NOW),
    ]
    pools = [a_disrupting_pool(policy="WhenEmpty", after="Never")]
    decision = Drift()(a_round(*views, types=[SMALL], pools=pools))
    (command,) = decision.commands
    assert (taken(decision), command.reason, command.consolidation_type) == (["b"], "Drifted", "")
    assert [claim.instance_types for claim in command.replacements] == [("small",)]
    assert (codes(decision), decision.eligible) == ({"a": "notDrifted"}, 1)


def test_by_as_many_nodes_as_its_pods_need() -> None:
    """Several, where no single one can hold them."""
    decision = Drift()(a_round(a_machine("a", LARGE, "1500m", "1500m", "1500m", drifted=NOW), types=[SMALL]))
    assert len(decision.commands[0].replacements) == 3


def test_without_replacement_where_pods_fit_elsewhere() -> None:
    """They move to free room first, even of nodes whose consolidateAfter has not elapsed."""
    views = [
        a_machine("a", LARGE, "1", drifted=NOW),
        a_machine("b", LARGE, "1", touched=NOW, consolidatable=False),
    ]
    decision = Drift()(a_round(*views, types=BOTH, pools=[a_disrupting_pool(after="1h")]))
    assert decision.commands[0].decision == "delete"
    assert decision.commands[0].placements == {"b": ("default/a-0",)}


def test_the_longest_drifted_goes_first() -> None:
    """One at a time: the pods of the next are planned when this one is on its way. Ties by name."""
    views = [
        a_machine("a", SMALL, "1900m", drifted=NOW - 10),
        a_machine("b", SMALL, "1900m", drifted=NOW - 30),
        a_machine("c", SMALL, "1900m", drifted=NOW - 30),
    ]
    assert taken(Drift()(a_round(*views, types=BOTH))) == ["b"]


def test_empty_ones_go_before_all_others() -> None:
    """All that budgets allow at once, each by a command of its own: nothing has to be planned for them."""
    views = [
        a_machine("a", SMALL, "1900m", drifted=NOW - 99),
        a_machine("b", SMALL, drifted=NOW - 10),
        a_machine("c", SMALL, drifted=NOW - 30),
    ]
    decision = Drift()(a_round(*views, types=BOTH))
    assert [[c.node.name for c in command.candidates] for command in decision.commands] == [["c"], ["b"]]
    assert taken(Drift()(a_round(*views, types=BOTH, remaining=1))) == ["c"]


def test_budgets_bind() -> None:
    """Pool by pool."""
    views = [
        a_machine("a", SMALL, "1900m", drifted=NOW - 30, pool="p"),
        a_machine("b", SMALL, "1900m", drifted=NOW, pool="q"),
    ]
    pools = [a_disrupting_pool("p"), a_disrupting_pool("q")]
    decision = Drift()(a_round(*views, types=BOTH, pools=pools, remaining={"p": 0, "q": 1}))
    assert (taken(decision), codes(decision)) == (["b"], {"a": "budget"})
    none = Drift()(a_round(*views, types=BOTH, pools=pools, remaining=0))
    assert (none.commands, none.settled) == ((), False)


def test_a_node_whose_pods_have_no_place_does_not_hold_up_the_next() -> None:
    """It says so, in upstream's words."""
    views = [a_machine("a", LARGE, "6", drifted=NOW - 30), a_machine("b", SMALL, "1", drifted=NOW)]
    decision = Drift()(a_round(*views, types=[SMALL]))
    assert (taken(decision), codes(decision)) == (["b"], {"a": "noPlace"})
    assert decision.verdicts[0].message.startswith("Not all pods would schedule, default/a-0 => ")


def test_a_node_that_keeps_failing_does_not_hold_up_the_next() -> None:
    """Whoever counts failures objects to it for a while."""

    def objection(command: Command) -> Verdict | None:
        if command.candidates[0].node.name == "b":
            return None
        return Verdict(node="", method=None, code="halted", message="three replacements failed")

    views = [a_machine("a", SMALL, "1900m", drifted=NOW - 30), a_machine("b", SMALL, "1900m", drifted=NOW)]
    decision = Drift()(a_round(*views, types=BOTH, objection=objection))
    assert (taken(decision), codes(decision)) == (["b"], {"a": "halted"})
    assert decision.verdicts[0].method == "drift"


@pytest.mark.parametrize("grace", [None, "1h"])
def test_pods_that_nothing_moves_get_no_replacement(grace: str | None) -> None:
    """With a terminationGracePeriod the node starts to drain for all that can leave it; without it stays."""
    held = a_pod("held", cpu="1", node_name="a", annotations={labels.DO_NOT_DISRUPT: "true"})
    view = a_machine("a", LARGE, held, "500m", drifted=NOW, grace=grace)
    decision = Drift()(a_round(view, types=[SMALL]))
    if grace is None:
        assert (decision.commands, decision.eligible) == ((), 0)
        return
    (claim,) = decision.commands[0].replacements
    assert claim.pods == ("default/a-1",)


def test_static_pools_have_a_method_of_their_own() -> None:
    """Their nodes are replaced one for one."""
    pool = a_disrupting_pool(pool=a_nodepool(replicas=1))
    decision = Drift()(a_round(a_machine("a", SMALL, drifted=NOW), types=BOTH, pools=[pool]))
    assert (decision.commands, codes(decision)) == ((), {"a": "static"})
