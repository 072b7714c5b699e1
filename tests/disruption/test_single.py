"""Consolidation of one node at a time: delete it, replace it, or say why not."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Affinity, PodAffinity, PodAffinityTerm
from karpenter.apis.karpenter import RequirementSpec
from karpenter.apis.meta import LabelSelector
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Decision, Policy
from karpenter.disruption.single import SingleNode
from karpenter.disruption.verdicts import Verdict
from karpenter.testing.builders import a_nodepool, a_pod, an_instance_type, an_offering
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", price=0.1)
LARGE = an_instance_type("large", cpu="8", price=0.4)
BOTH = [SMALL, LARGE]


def taken(decision: Decision) -> list[str]:
    return [c.node.name for command in decision.commands for c in command.candidates]


def the_verdict(decision: Decision, node: str = "a") -> Verdict:
    (found,) = (v for v in decision.verdicts if v.node == node)
    return found


def test_a_node_whose_pods_fit_elsewhere_is_deleted() -> None:
    """Whatever it costs: no price is asked for."""
    free = an_instance_type("free", cpu="8", price=0.0)
    decision = SingleNode()(
        a_round(
            a_machine("a", free, "1"), a_machine("b", LARGE, "6", consolidatable=False), types=[free, LARGE]
        )
    )
    (command,) = decision.commands
    assert (command.decision, taken(decision)) == ("delete", ["a"])
    assert command.placements == {"b": ("default/a-0",)}


def test_a_node_too_large_is_replaced_by_a_cheaper_one() -> None:
    """With only those types that cost less, by what they may cost at worst."""
    decision = SingleNode()(a_round(a_machine("a", LARGE, "1"), types=BOTH))
    (command,) = decision.commands
    assert command.decision == "replace"
    assert [claim.instance_types for claim in command.replacements] == [("small",)]
    assert command.of_node("a") == "replace: [a] -> [1 replacement(s)]"
    assert command.replacements[0].requirements.get(labels.INSTANCE_TYPE).permitted() == ("small",)
    assert [command.savings, command.sure_savings] == pytest.approx([0.3, 0.3])
    assert not decision.settled


def test_nothing_cheaper() -> None:
    """A node of the cheapest type stays; the verdict says what it would have to cost."""
    decision = SingleNode()(a_round(a_machine("a", SMALL, "1"), types=BOTH))
    verdict = the_verdict(decision)
    assert (verdict.code, verdict.message) == ("notCheaper", "Can't replace with a cheaper node")
    assert verdict.saving == pytest.approx(0.0)
    assert verdict.remedy == (
        "let nodepool/default buy a type with 1 cores and 0.0625 GiB for less than $0.1000 an hour"
    )
    assert decision.settled


def test_the_worst_price_counts() -> None:
    """A type that may turn out dearer than what goes, in another zone, is not launched for saving money."""
    risky = an_instance_type(
        "risky", cpu="2", offerings=[an_offering("zone-a", price=0.1), an_offering("zone-b", price=0.5)]
    )
    decision = SingleNode()(a_round(a_machine("a", LARGE, "1"), types=[risky, LARGE]))
    assert the_verdict(decision).code == "notCheaper"
    assert the_verdict(decision).saving == pytest.approx(0.3)


def test_several_replacements_are_too_many() -> None:
    """Upstream's rule: one node for those that go."""
    decision = SingleNode()(a_round(a_machine("a", LARGE, "2", "2"), types=[SMALL]))
    assert the_verdict(decision).code == "unknownType"
    huge = an_instance_type("huge", cpu="8", price=9.0)
    gone = replace(huge, offerings=tuple(replace(o, available=False) for o in huge.offerings))
    verdict = the_verdict(SingleNode()(a_round(a_machine("a", huge, "1900m", "1900m"), types=[SMALL, gone])))
    assert (verdict.code, verdict.message) == ("tooMany", "Can't remove without creating 2 candidates")
    assert verdict.saving == pytest.approx(8.8)
    assert verdict.remedy == "search with --consolidation-search=sets: it may buy several nodes for one"


def test_pods_without_a_place_keep_their_node() -> None:
    """In upstream's words, with the solver's way out."""
    gone = replace(LARGE, offerings=tuple(replace(o, available=False) for o in LARGE.offerings))
    verdict = the_verdict(SingleNode()(a_round(a_machine("a", gone, "6"), types=[SMALL, gone])))
    assert verdict.code == "noPlace"
    assert verdict.message.startswith("Not all pods would schedule, default/a-0 => ")
    assert verdict.saving is None


def test_at_most_five_pods_without_a_place_are_named() -> None:
    """The others are counted."""
    gone = replace(LARGE, offerings=tuple(replace(o, available=False) for o in LARGE.offerings))
    for number, ending in [(5, ""), (7, " and 2 other(s)")]:
        view = a_machine("a", gone, *["1"] * number)
        message = the_verdict(SingleNode()(a_round(view, types=[gone]))).message
        assert message.count(" => ") == 5
        assert message.endswith(ending) is True
        assert ("other(s)" in message) is bool(ending)


MIXED = an_instance_type("mixed", cpu="2", price=0.1, capacity_types=("on-demand", "spot"))


def test_replacing_on_demand_may_turn_to_spot_only() -> None:
    """Were spot to run out at launch, a dearer on-demand node would come: the claim admits spot only."""
    decision = SingleNode()(a_round(a_machine("a", LARGE, "1"), types=[MIXED, LARGE]))
    (claim,) = decision.commands[0].replacements
    assert claim.requirements.get(labels.CAPACITY_TYPE).permitted() == ("spot",)
    assert claim.price == pytest.approx(0.04)
    assert claim.instance_types == ("mixed",)


def test_spot_that_is_dearer_gives_way_to_on_demand() -> None:
    """Where on-demand is what saves, the claim admits on-demand only."""
    odd = an_instance_type(
        "odd",
        cpu="2",
        offerings=[an_offering("zone-a", "spot", 0.5), an_offering("zone-a", "on-demand", 0.1)],
    )
    (claim,) = SingleNode()(a_round(a_machine("a", LARGE, "1"), types=[odd, LARGE])).commands[0].replacements
    assert claim.requirements.get(labels.CAPACITY_TYPE).permitted() == ("on-demand",)


def some_spot_types(number: int) -> list:  # type: ignore[type-arg]
    return [
        an_instance_type(f"spot-{i:02}", cpu="2", price=0.1 + i / 100, capacity_types=("spot",))
        for i in range(number)
    ]


@pytest.mark.parametrize(
    ("on", "cheaper", "code", "message"),
    [
        (
            False,
            20,
            "spotToSpot",
            "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
        ),
        (
            True,
            14,
            "spotToSpot",
            "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to "
            "consolidate, got 14",
        ),
        (True, 0, "notCheaper", "Can't replace with a cheaper node"),
    ],
)
def test_spot_is_not_lightly_replaced_by_spot(on: bool, cheaper: int, code: str, message: str) -> None:
    """Only with the feature on, and fifteen cheaper types: or it would end at the one most interrupted."""
    types = [*some_spot_types(cheaper), LARGE_SPOT]
    view = a_machine("a", LARGE_SPOT, "1", capacity_type="spot")
    verdict = the_verdict(SingleNode()(a_round(view, types=types, policy=Policy(spot_to_spot=on))))
    assert (verdict.code, verdict.message) == (code, message)
    assert verdict.remedy


LARGE_SPOT = an_instance_type("large", cpu="8", price=2.0, capacity_types=("spot",))


def test_spot_is_replaced_by_the_fifteen_cheapest() -> None:
    """More would bring it back to the dearer ones, fewer to where it is interrupted most."""
    view = a_machine("a", LARGE_SPOT, "1", capacity_type="spot")
    a_look = a_round(view, types=[*some_spot_types(20), LARGE_SPOT], policy=Policy(spot_to_spot=True))
    (claim,) = SingleNode()(a_look).commands[0].replacements
    assert claim.instance_types == tuple(f"spot-{i:02}" for i in range(15))
    assert claim.requirements.get(labels.CAPACITY_TYPE).permitted() == ("spot",)


@pytest.mark.parametrize(("wanted", "listed"), [(3, 15), (18, 18)])
def test_spot_keeps_as_many_types_as_min_values_want(wanted: int, listed: int) -> None:
    """Even more than fifteen."""
    spec = RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", values=[], min_values=wanted)
    pool = a_disrupting_pool(pool=a_nodepool(requirements=[spec]))
    view = a_machine("a", LARGE_SPOT, "1", capacity_type="spot")
    types = [*some_spot_types(20), LARGE_SPOT]
    a_look = a_round(view, types=types, pools=[pool], policy=Policy(spot_to_spot=True))
    (claim,) = SingleNode()(a_look).commands[0].replacements
    assert len(claim.instance_types) == listed


def test_min_values_are_not_relaxed_for_saving_money() -> None:
    """Fewer cheaper types than the pool wants: no replacement."""
    spec = RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", values=[], min_values=2)
    pool = a_disrupting_pool(pool=a_nodepool(requirements=[spec]))
    verdict = the_verdict(SingleNode()(a_round(a_machine("a", LARGE, "1"), types=BOTH, pools=[pool])))
    assert verdict.message == (
        "Filtering by price: minValues requirement is not met for label(s) "
        "node.kubernetes.io/instance-type (1 of 2)"
    )
    assert verdict.remedy == "lower minValues of nodepool/default"


def test_reserved_is_replaced_by_cheaper_reserved() -> None:
    """By the prices of the very reservations."""
    rid = "cloud/reservation-id"
    big = an_instance_type(
        "big", cpu="8", offerings=[an_offering("zone-a", "reserved", 0.02, labels={rid: "r1"})]
    )
    little = an_instance_type(
        "little", cpu="2", offerings=[an_offering("zone-a", "reserved", 0.01, labels={rid: "r2"})]
    )
    view = a_machine("a", big, "1", capacity_type="reserved", more_labels={rid: "r1"})
    decision = SingleNode()(a_round(view, types=[big, little], reservation_label=rid))
    assert decision.commands[0].savings == pytest.approx(0.01)


FILTER = [
    (
        "static",
        a_machine("a", LARGE, "1"),
        {"pool": a_nodepool(replicas=1)},
        'NodePool "default" keeps a fixed',
    ),
    (
        "unknownType",
        a_machine("a", an_instance_type("lost", cpu="8"), "1"),
        {},
        'Instance Type "lost" not found',
    ),
    (
        "never",
        a_machine("a", LARGE, "1"),
        {"after": "Never"},
        'NodePool "default" has consolidation disabled',
    ),
    ("empty", a_machine("a", LARGE), {}, "Node is empty: it is taken for that"),
    (
        "policy",
        a_machine("a", LARGE, "1"),
        {"policy": "WhenEmpty"},
        'NodePool "default" has consolidation policy WhenEmpty, but node is not empty',
    ),
    (
        "tooFresh",
        a_machine("a", LARGE, "1", consolidatable=False),
        {"after": "30s"},
        "Pods came or went less than consolidateAfter (30s) ago",
    ),
]


@pytest.mark.parametrize(("code", "view", "pool", "message"), FILTER)
def test_whom_consolidation_is_not_for(code: str, view, pool: dict, message: str) -> None:  # type: ignore[no-untyped-def, type-arg]
    """In upstream's order and words; each by itself keeps a node that would be replaced otherwise."""
    decision = SingleNode()(a_round(view, types=BOTH, pools=[a_disrupting_pool(**pool)]))
    verdict = the_verdict(decision)
    assert (verdict.code, decision.commands, decision.eligible) == (code, (), 0)
    assert verdict.message.startswith(message)


@pytest.mark.parametrize("key", [labels.CAPACITY_TYPE, labels.ZONE])
def test_a_node_without_its_place_is_not_consolidated(key: str) -> None:
    """Nobody knows what it costs."""
    view = a_machine("a", LARGE, "1")
    view = replace(view, labels={k: v for k, v in view.labels.items() if k != key})
    verdict = the_verdict(SingleNode()(a_round(view, types=BOTH)))
    assert (verdict.code, verdict.message) == ("unknownPlace", f'Node does not have label "{key}"')


def test_nodes_to_be_left_alone_take_no_pods() -> None:
    """Their consolidateAfter would begin again; where it is Never, or over, they do."""
    for after, touched, expected in [
        ("1h", NOW - 60, "replace"),
        ("1h", NOW - 3601, "delete"),
        ("Never", NOW - 60, "delete"),
        ("0s", NOW, "delete"),
    ]:
        own, other = a_disrupting_pool(), a_disrupting_pool("other", after=after)
        target = a_machine("b", LARGE, "1", pool="other", touched=touched, consolidatable=False)
        decision = SingleNode()(a_round(a_machine("a", LARGE, "1"), target, types=BOTH, pools=[own, other]))
        assert [c.decision for c in decision.commands] == [expected], after


def test_nodes_that_are_not_up_take_no_pods() -> None:
    """They may never come."""
    young = replace(a_machine("b", LARGE, "1"), initialized=False)
    decision = SingleNode()(a_round(a_machine("a", LARGE, "1"), young, types=BOTH))
    assert decision.commands[0].decision == "replace"


def test_pods_that_keep_apart_are_not_put_together() -> None:
    """Anti-affinity and spread hold where pods go; a node of their own is bought, if that is cheaper."""
    apart = Affinity(
        pod_anti_affinity=PodAffinity(
            required=[
                PodAffinityTerm(
                    label_selector=LabelSelector(match_labels={"app": "web"}),
                    topology_key=labels.KUBERNETES_HOSTNAME,
                )
            ]
        )
    )
    for affinity, decision in [(None, "delete"), (apart, "replace")]:
        views = [
            a_machine(
                name, LARGE, a_pod(f"p-{name}", node_name=name, labels={"app": "web"}, affinity=affinity)
            )
            for name in "ab"
        ]
        (command,) = SingleNode()(a_round(*views, types=BOTH)).commands
        assert command.decision == decision


def test_room_for_headroom_is_not_given_away() -> None:
    """Virtual pods of buffers wait for a place like others: what they need is not free."""
    views = [a_machine("a", LARGE, "1"), a_machine("b", LARGE, "1", consolidatable=False)]
    (plain,) = SingleNode()(a_round(*views, types=BOTH)).commands
    assert plain.decision == "delete"
    (kept,) = SingleNode()(a_round(*views, types=BOTH, pending=[a_pod("room", cpu="6500m")])).commands
    assert kept.decision == "replace"


def test_pods_that_wait_for_ever_do_not_matter() -> None:
    """A pod that fits nowhere keeps no other node."""
    decision = SingleNode()(a_round(a_machine("a", LARGE, "1"), types=BOTH, pending=[a_pod("p", cpu="99")]))
    assert [c.decision for c in decision.commands] == ["replace"]


# --- in turn ---------------------------------------------------------------------------------------------


def asked(decision_of: SingleNode, *views, steps=None, pools=None, remaining=100):  # type: ignore[no-untyped-def]
    """Return the nodes asked about, in order, when every command meets an objection, and the decision."""
    order: list[str] = []

    def objection(command: Command) -> Verdict:
        order.append(command.candidates[0].node.name)
        return Verdict(node="", method=None, code="payback", message="not worth it")

    a_look = a_round(
        *views,
        types=BOTH,
        pools=pools or [a_disrupting_pool("p"), a_disrupting_pool("q"), a_disrupting_pool("r")],
        objection=objection,
        steps=steps,
        remaining=remaining,
    )
    return order, decision_of(a_look)


def machines(**pools: int):  # type: ignore[no-untyped-def]
    """So many replaceable nodes of each pool, the first most worth it."""
    return [
        a_machine(f"{pool}{i}", LARGE, *["100m"] * (i + 1), pool=pool)
        for pool, number in pools.items()
        for i in range(number)
    ]


def test_pools_take_turns() -> None:
    """And within a pool the node comes first that saves most for its disruption."""
    order, decision = asked(SingleNode(), *machines(p=3, q=1, r=2))
    assert order == ["p0", "q0", "r0", "p1", "r1", "p2"]
    assert {v.code for v in decision.verdicts} == {"payback"}
    assert (decision.commands, decision.settled) == ((), True)


def test_a_failure_is_not_the_end_of_the_round() -> None:
    """The next node is tried."""
    refused = []

    def objection(command: Command) -> Verdict | None:
        refused.append(command)
        return Verdict(node="", method=None, code="changed", message="no") if len(refused) < 3 else None

    decision = SingleNode()(
        a_round(*machines(p=4), types=BOTH, pools=[a_disrupting_pool("p")], objection=objection)
    )
    assert taken(decision) == ["p2"]
    assert [v.node for v in decision.verdicts] == ["p0", "p1"]


def test_no_node_waits_for_ever_when_time_runs_out() -> None:
    """Pools of which none was seen come first in the next round, then nodes not seen of the others; after one
    time round it begins anew."""
    search, views = SingleNode(), machines(p=3, q=1, r=1)
    first, decision = asked(search, *views, steps=2)
    assert (first, decision.settled) == (["p0", "q0"], False)
    assert {v.node: v.code for v in decision.verdicts}["p1"] == "timeout"
    assert asked(search, *views, steps=2)[0] == ["r0", "p1"]
    assert asked(search, *views, steps=2)[0] == ["q0", "p2"]
    assert asked(search, *views, steps=2)[0] == ["r0", "p0"]


def test_a_round_to_the_end_forgets() -> None:
    """Then the order is the plain one again."""
    search, views = SingleNode(), machines(p=2, q=1)
    assert asked(search, *views, steps=1)[0] == ["p0"]
    assert asked(search, *views)[0] == ["q0", "p1", "p0"]
    assert asked(search, *views)[0] == ["p0", "q0", "p1"]


def test_a_pool_without_budget_is_passed_over() -> None:
    """Its nodes say so, others are tried, and the round is not settled."""
    order, decision = asked(SingleNode(), *machines(p=2, q=1), remaining={"p": 0, "q": 1})
    assert order == ["q0"]
    assert [(v.node, v.code) for v in decision.verdicts] == [
        ("p0", "budget"),
        ("p1", "budget"),
        ("q0", "payback"),
    ]
    assert not decision.settled
