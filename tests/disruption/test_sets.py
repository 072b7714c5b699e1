"""Which nodes go together, what is bought for them, and why the others stay."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.disruption.command import Command
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.rounds import Decision, Policy
from karpenter.disruption.sets import SetSearch
from karpenter.disruption.verdicts import Verdict
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodepool, a_pod, an_instance_type, an_offering
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", memory="64Gi", price=0.1)
MEDIUM = an_instance_type("medium", cpu="4", memory="64Gi", price=0.19)
LARGE = an_instance_type("large", cpu="8", memory="64Gi", price=0.4)
TYPES = [SMALL, MEDIUM, LARGE]
FREE = Restarts(hours=0)


def decide(*views: NodeView, restarts: Restarts = FREE, **more: Any) -> Decision:
    """Return what is done about the nodes when, unless said otherwise, restarts cost nothing."""
    return SetSearch()(a_round(*views, **{"types": TYPES, **more})._replace(restarts=restarts))


def told(decision: Decision) -> tuple[list[str], list[str]]:
    """Return which nodes go, and what is bought."""
    commands: tuple[Command, ...] = decision.commands
    return (
        [c.name for command in commands for c in command.candidates],
        sorted(claim.instance_types[0] for command in commands for claim in command.replacements),
    )


def the_verdict(decision: Decision, node: str) -> Verdict:
    (found,) = (v for v in decision.verdicts if v.node == node)
    return found


def test_nodes_go_whose_pods_fit_elsewhere() -> None:
    """As many as possible at once, without anything bought."""
    decision = decide(*(a_machine(f"n{i}", MEDIUM, "1") for i in range(4)))
    gone, bought = told(decision)
    assert (len(gone), bought) == (3, [])
    assert [command.consolidation_type for command in decision.commands] == ["multi"]
    assert not decision.settled


def test_several_nodes_become_fewer() -> None:
    """Three half-empty ones make what their pods need, if none of them can take the others."""
    decision = decide(*(a_machine(f"n{i}", LARGE, "2500m", "2500m") for i in range(3)))
    (command,) = decision.commands
    assert command.savings == pytest.approx(1.2 - 0.8)


@pytest.mark.parametrize(
    ("pods", "bought"), [(["1900m", "1900m"], ["medium"]), (["3900m", "1900m"], ["medium", "small"])]
)
def test_one_node_becomes_what_its_pods_need(pods: list[str], bought: list[str]) -> None:
    """Even several machines, where they are cheaper together."""
    assert told(decide(a_machine("n", LARGE, *pods))) == (["n"], bought)


def test_what_is_as_cheap_as_can_be_stays() -> None:
    """And there is no need to look again before something changes."""
    decision = decide(a_machine("n", MEDIUM, "3900m"), a_machine("m", SMALL, "1900m"))
    assert decision.commands == ()
    assert decision.settled
    assert decision.eligible == 2
    assert [(v.node, v.code) for v in decision.verdicts] == [("m", "notCheaper"), ("n", "notCheaper")]
    assert the_verdict(decision, "n").message.startswith("It costs $0.1900 an hour, its pods are worth $0.18")


def test_what_pays_best_comes_first() -> None:
    """One restart for all of a machine comes before three that save less each, which are left for later."""
    cheap = replace(MEDIUM, offerings=tuple(replace(o, price=0.13) for o in MEDIUM.offerings))
    busy, idle = a_machine("busy", LARGE, "3900m", "1900m", "1900m"), a_machine("idle", MEDIUM, "100m")
    types, restarts = [LARGE, cheap], Restarts()
    assert told(decide(busy, idle, types=types, restarts=restarts)) == (["idle"], [])
    assert told(decide(busy, types=types, restarts=restarts)) == (["busy"], ["medium", "medium"])


def test_free_moves_still_have_to_be_worth_the_while() -> None:
    """Half a per cent of what the nodes cost: for less nobody is moved, even if restarts cost nothing."""
    for price, gone in ((0.3995, []), (0.39, ["n"])):
        types = [LARGE, an_instance_type("other", cpu="8", memory="64Gi", price=price)]
        assert told(decide(a_machine("n", LARGE, "7"), types=types))[0] == gone


def test_budgets_bound_the_set() -> None:
    """The nodes that save most per disruption go first, and the others wait."""
    nodes = [a_machine("a", MEDIUM, "1"), a_machine("b", LARGE, "1"), a_machine("c", LARGE, "1")]
    assert told(decide(*nodes, remaining=1))[0] == ["b"]
    decision = decide(*nodes, remaining=0)
    assert decision.commands == ()
    assert (decision.settled, decision.bound) == (False, True)  # nothing new before budgets leave more
    assert {v.code for v in decision.verdicts} == {"budget"}


def test_budgets_are_those_of_each_pool() -> None:
    """One pool's being used up keeps no other from moving."""
    pools = [a_disrupting_pool("one"), a_disrupting_pool("two")]
    nodes = [a_machine("a", LARGE, "1", pool="one"), a_machine("b", LARGE, "1", pool="two")]
    assert told(decide(*nodes, pools=pools, remaining={"one": 0, "two": 1}))[0] == ["b"]


def test_nodes_that_may_not_be_touched_still_take_pods() -> None:
    """They are no candidates, but room; unless their own consolidateAfter would begin again."""
    settled = a_machine("b", LARGE, "1", more_labels={"example.com/x": "y"})
    assert settled.node is not None
    held = replace(
        settled,
        node=replace(
            settled.node,
            metadata=replace(settled.node.metadata, annotations={labels.DO_NOT_DISRUPT: "true"}),
        ),
    )
    assert told(decide(a_machine("a", MEDIUM, "1"), held)) == (["a"], [])
    young = a_machine("b", MEDIUM, "3", consolidatable=False, touched=NOW - 60)
    pools = [a_disrupting_pool(after="1h")]
    assert told(decide(a_machine("a", SMALL, "900m"), young, pools=pools)) == ([], [])


def test_pods_without_another_place_keep_their_node() -> None:
    """And the verdict says whose they are, in the solver's words."""
    pinned = a_pod("p", cpu="1", node_name="n", node_selector={labels.KUBERNETES_HOSTNAME: "n"})
    verdict = the_verdict(decide(a_machine("n", LARGE, pinned)), "n")
    assert verdict.code == "noPlace"
    assert "default/p" in verdict.message


def test_the_clock_ends_the_search() -> None:
    """And the next round looks again."""
    decision = decide(*(a_machine(f"n{i}", MEDIUM, "1") for i in range(4)), steps=0)
    assert decision.commands == ()
    assert not decision.settled


def test_a_glance_tries_few_sets_and_says_that_there_are_more() -> None:
    """Whoever asked for no more has to look again, thoroughly, before all is as good as it can be."""
    nodes = [a_machine(f"n{i}", LARGE, _pinned(f"n{i}")) for i in range(6)]
    question = a_round(*nodes, types=TYPES)._replace(restarts=FREE)
    thorough, glance = SetSearch()(question), SetSearch()(question._replace(attempts=1))
    assert (thorough.commands, thorough.settled, thorough.bound) == ((), True, False)
    assert (glance.commands, glance.settled, glance.bound) == ((), False, False)


def _pinned(node: str) -> Pod:
    return a_pod(f"p-{node}", cpu="1", node_name=node, node_selector={labels.KUBERNETES_HOSTNAME: node})


def test_a_move_has_to_pay_for_its_restarts() -> None:
    """Three quarters of an hour of the pods' share of the machine are to be saved within twelve hours."""
    full = [a_machine("n", LARGE, "3900m", "1900m", "1900m")]
    cheap = replace(MEDIUM, offerings=tuple(replace(o, price=0.19) for o in MEDIUM.offerings))
    types = [LARGE, cheap]
    assert told(decide(*full, types=types))[1] == ["medium", "medium"]
    decision = decide(*full, types=types, restarts=Restarts())
    assert decision.commands == ()
    verdict = the_verdict(decision, "n")
    assert verdict.code == "payback"
    assert verdict.message == ("It would save $0.0200 an hour; to pay for the restarts it has to be $0.0241")
    assert told(decide(*full, types=types, restarts=Restarts(payback_hours=24)))[1] == ["medium", "medium"]


def test_spot_is_replaced_by_spot_only_where_users_allow_it() -> None:
    """Deleting spot nodes is always allowed."""
    kinds = [
        an_instance_type(
            f"t{i:02d}", cpu=str(2 + 2 * (i == 20)), offerings=[an_offering("zone-a", "spot", 0.01 * (i + 1))]
        )
        for i in range(21)
    ]
    pool = a_nodepool(requirements=[(labels.CAPACITY_TYPE, "In", ["spot"])])
    given: dict[str, Any] = {"types": kinds, "pools": [a_disrupting_pool(pool=pool)]}
    node = a_machine("n", kinds[20], "1", capacity_type="spot")
    verdict = the_verdict(decide(node, **given), "n")
    assert (verdict.code, verdict.remedy) == (
        "spotToSpot",
        "turn on the feature gate SpotToSpotConsolidation",
    )
    assert told(decide(node, **given, policy=Policy(spot_to_spot=True))) == (["n"], ["t00"])
    assert len(told(decide(node, a_machine("m", kinds[20], "1", capacity_type="spot"), **given))[0]) == 1


def test_pools_that_weigh_moves_are_asked() -> None:
    """Under the policy Balanced a move that disturbs much for little is refused."""
    pools = [a_disrupting_pool(policy="Balanced")]
    costly = [a_machine("a", LARGE, *["100m"] * 20), a_machine("b", LARGE, "7")]
    cheap = [an_instance_type("large", cpu="8", memory="64Gi", price=0.4), replace(SMALL)]
    cheap[1] = an_instance_type("small", cpu="4", memory="64Gi", price=0.39)
    decision = decide(*costly, pools=pools, types=cheap)
    assert decision.commands == ()
    assert the_verdict(decision, "a").code == "balance"
    assert {move.approved for move in decision.moves} == {False}


def test_what_was_done_before_may_speak_against_it() -> None:
    """An objection keeps the nodes, with its words."""
    objection = Verdict(node="", method="sets", code="rollout", message="web is being rolled out")
    decision = decide(a_machine("n", LARGE, "1"), objection=lambda _: objection)
    assert decision.commands == ()
    assert the_verdict(decision, "n").code == "rollout"
