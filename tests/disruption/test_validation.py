"""The second look: what of a command still holds, and what kind of change undid the rest."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.apis.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec
from karpenter.disruption.command import Command
from karpenter.disruption.drift import Drift
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.multi import MultiNode
from karpenter.disruption.rounds import Round
from karpenter.disruption.single import SingleNode
from karpenter.disruption.validation import Validity, validated
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_pod, an_instance_type, an_offering
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", price=0.1)
LARGE = an_instance_type("large", cpu="8", price=0.4)
BOTH = [SMALL, LARGE]
PDB = PodDisruptionBudget(
    metadata=ObjectMeta(name="web", namespace="default"),
    spec=PodDisruptionBudgetSpec(selector=LabelSelector()),
)


def names(found: Validity) -> list[str]:
    return [c.node.name for c in found.command.candidates] if found.command else []


def reasons(found: Validity) -> dict[str, tuple[str, ...]]:
    return {each.reason: each.nodes for each in found.invalid}


# --- empty nodes: those go that still may ------------------------------------------------------------------


def empty(name: str, *cpu: str, **more: Any) -> NodeView:
    return a_machine(name, SMALL, *cpu, **more)


NOMINATED = replace(empty("b"), nominated_until=NOW + 9)


def taking_empty() -> Command:
    (command,) = Emptiness()(a_round(empty("a"), empty("b"), empty("c"), types=BOTH)).commands
    return command


@pytest.mark.parametrize(
    ("views", "remaining", "kept", "why"),
    [
        ([empty("a"), empty("b"), empty("c")], 9, ["a", "b", "c"], {}),
        ([empty("a"), empty("b", "1"), empty("c")], 9, ["a", "c"], {"churn": ("b",)}),
        ([empty("a"), empty("c")], 9, ["a", "c"], {"churn": ("b",)}),
        (
            [empty("a"), NOMINATED, empty("c")],
            9,
            ["a", "c"],
            {"churn": ("b",)},
        ),
        ([empty("a"), empty("b", consolidatable=False), empty("c")], 9, ["a", "c"], {"churn": ("b",)}),
        ([empty("a"), empty("b"), empty("c")], 1, ["a"], {"budget": ("b", "c")}),
        ([empty("a"), empty("b"), empty("c")], 0, [], {"budget": ("a", "b", "c")}),
        ([empty("a", "1"), empty("b")], 0, [], {"churn": ("a", "c"), "budget": ("b",)}),
        ([empty("d")], 9, [], {"churn": ("a", "b", "c")}),
    ],
)
def test_of_empty_nodes_those_go_that_still_may(
    views: list[NodeView], remaining: int, kept: list[str], why: dict[str, tuple[str, ...]]
) -> None:
    """Pods came, budgets shrank, nodes went: each node by itself."""
    found = validated(taking_empty(), a_round(*views, types=BOTH, remaining=remaining))
    assert (names(found), reasons(found)) == (kept, why)
    assert found.failed == 3 - len(kept)


def test_another_machine_under_the_same_name_is_not_meant() -> None:
    """It came since, and nobody decided about it."""
    other = replace(empty("b"), provider_id="kwok://another")
    found = validated(taking_empty(), a_round(empty("a"), other, empty("c"), types=BOTH))
    assert (names(found), reasons(found)) == (["a", "c"], {"churn": ("b",)})


# --- consolidation: as a whole or not at all ---------------------------------------------------------------


def busy(name: str, *cpu: str, **more: Any) -> NodeView:
    return a_machine(name, LARGE, *(cpu or ("1",)), **more)


def replacing() -> Command:
    (command,) = SingleNode()(a_round(busy("a"), types=BOTH)).commands
    assert command.decision == "replace"
    return command


def merging() -> Command:
    (command,) = MultiNode()(a_round(busy("a"), busy("b"), types=BOTH)).commands
    assert command.decision == "replace"
    return command


def deleting() -> Command:
    (command,) = SingleNode()(a_round(busy("a"), target(), types=BOTH)).commands
    assert command.decision == "delete"
    return command


def target(*cpu: str, **more: Any) -> NodeView:
    return a_machine("z", LARGE, *(cpu or ("1",)), consolidatable=False, **more)


MAKERS: list[tuple[Callable[[], Command], list[NodeView]]] = [
    (replacing, [busy("a")]),
    (merging, [busy("a"), busy("b")]),
    (deleting, [busy("a"), target()]),
]


@pytest.mark.parametrize(("make", "views"), MAKERS)
def test_what_has_not_changed_holds(make: Callable[[], Command], views: list[NodeView]) -> None:
    """Just as it was."""
    command = make()
    found = validated(command, a_round(*views, types=BOTH))
    assert found == Validity(command=command)


def held(view: NodeView) -> NodeView:
    pod = a_pod("held", node_name=view.name, cpu="100m", annotations={labels.DO_NOT_DISRUPT: "true"})
    return view.with_pods([pod])


ROLLOUT = Verdict(node="", method=None, code="rollout", message="web is being rolled out")

CHANGES: list[tuple[str, Callable[[NodeView], NodeView], dict[str, Any]]] = [
    ("churn", lambda v: replace(v, nominated_until=NOW + 9), {}),
    ("churn", held, {}),
    ("churn", lambda v: v, {"pdbs": [PDB]}),
    ("churn", lambda v: replace(v, marked_for_deletion=True), {}),
    ("churn", lambda v: replace(v, provider_id="kwok://another"), {}),
    ("churn", lambda v: busy(v.name, consolidatable=False), {}),
    ("churn", lambda v: v, {"pools": [a_disrupting_pool(policy="WhenEmpty")]}),
    ("churn", lambda v: v, {"queued": ["kwok://a"]}),
    ("budget", lambda v: v, {"remaining": 0}),
    (
        "churn",
        lambda v: v,
        {"objection": lambda _: Verdict(node="", method=None, code="rollout", message="no")},
    ),
]


@pytest.mark.parametrize(("make", "views"), MAKERS)
@pytest.mark.parametrize(("reason", "change", "given"), CHANGES)
def test_what_undoes_a_consolidation(
    make: Callable[[], Command],
    views: list[NodeView],
    reason: str,
    change: Callable[[NodeView], NodeView],
    given: dict[str, Any],
) -> None:
    """All of it, though only its first node has changed; each of its nodes counts as failed."""
    command = make()
    found = validated(command, a_round(change(views[0]), *views[1:], **{"types": BOTH, **given}))
    assert found.command is None
    assert reasons(found) == {reason: tuple(c.node.name for c in command.candidates)}


def test_a_budget_for_fewer_nodes_undoes_all() -> None:
    """What was to be merged is not worth it in part."""
    found = validated(merging(), a_round(busy("a"), busy("b"), types=BOTH, remaining=1))
    assert reasons(found) == {"budget": ("a", "b")}


def with_price(kind: InstanceType, price: float, **more: Any) -> InstanceType:
    return replace(kind, offerings=tuple(replace(o, price=price, **more) for o in kind.offerings))


SIMULATED: list[tuple[Callable[[], Command], list[NodeView], list[InstanceType], str]] = [
    (deleting, [busy("a"), target("7500m")], BOTH, "scheduling simulation produced new results"),
    (deleting, [busy("a"), target(touched=NOW)], BOTH, "scheduling simulation produced new results"),
    (replacing, [busy("a"), target()], BOTH, "scheduling simulation produced new results"),
    (replacing, [busy("a", "3")], BOTH, "scheduling simulation produced new results"),
    (
        replacing,
        [busy("a")],
        [with_price(SMALL, 0.1, available=False), LARGE],
        "scheduling simulation produced",
    ),
    (replacing, [busy("a", "9")], BOTH, "Not all pods would schedule, default/a-0 => "),
    (
        replacing,
        [busy("a")],
        [with_price(SMALL, 0.41), LARGE],
        "prices have moved: replacements may cost",
    ),
    (
        replacing,
        [busy("a")],
        [SMALL, with_price(LARGE, 0.09)],
        "prices have moved: replacements may cost",
    ),
]


@pytest.mark.parametrize(("make", "views", "types", "message"), SIMULATED)
def test_pods_or_prices_that_moved_undo_a_consolidation(
    make: Callable[[], Command], views: list[NodeView], types: list[InstanceType], message: str
) -> None:
    """Simulated again, it comes to something else; or it does not save anything any more."""
    pools = [a_disrupting_pool(after="1h")]
    found = validated(make(), a_round(*views, types=types, pools=pools))
    (invalid,) = found.invalid
    assert (found.command, invalid.reason) == (None, "scheduling")
    assert invalid.message.startswith(message)


def test_a_pod_more_is_taken_along() -> None:
    """Where what was to be bought holds it as well: the replacement is planned for it."""
    found = validated(replacing(), a_round(busy("a", "1", "500m"), types=BOTH))
    assert found.command is not None
    (claim,) = found.command.replacements
    assert claim.pods == ("default/a-0", "default/a-1")
    assert claim.requests["cpu"] == 1500
    assert claim.instance_types == ("small",)


def test_types_that_have_gone_are_not_asked_for() -> None:
    """Others that were meant are enough; ones that were not meant are not bought though they would do."""
    tiny = an_instance_type("tiny", cpu="2", price=0.05)
    (command,) = SingleNode()(a_round(busy("a"), types=[tiny, *BOTH])).commands
    assert command.replacements[0].instance_types == ("tiny", "small")
    new = an_instance_type("new", cpu="2", price=0.01)
    found = validated(command, a_round(busy("a"), types=[new, tiny, *BOTH]))
    assert found.command is not None
    assert found.command.replacements[0].instance_types == ("tiny", "small")
    assert found.command.replacements[0].price == 0.05


def test_what_was_narrowed_to_spot_stays_so() -> None:
    """The second look does not widen the claim again."""
    both = [an_offering("zone-a", "spot", 0.04), an_offering("zone-a", "on-demand", 0.5)]
    mixed = an_instance_type("mixed", cpu="2", offerings=both)
    (command,) = SingleNode()(a_round(busy("a"), types=[mixed, LARGE])).commands
    found = validated(command, a_round(busy("a"), types=[mixed, LARGE]))
    assert found.command is not None
    (claim,) = found.command.replacements
    assert claim.requirements.get(labels.CAPACITY_TYPE).permitted() == ("spot",)
    assert found.command.sure_savings == pytest.approx(0.36)


@pytest.mark.parametrize(
    ("price", "holds", "message"),
    [
        (0.12, True, ""),
        (0.2, False, "scheduling simulation produced new results"),
        (0.5, False, "Can't replace with a cheaper node"),
    ],
)
def test_a_search_over_sets_may_come_to_another_plan(price: float, holds: bool, message: str) -> None:
    """One that saves about as much; upstream's methods launch nothing but what was decided."""
    command = replacing()
    types = [an_instance_type("new", cpu="2", price=price), LARGE]
    (plain,) = validated(command, a_round(busy("a"), types=types)).invalid
    assert plain.message == "scheduling simulation produced new results"
    found = validated(replace(command, method="sets"), a_round(busy("a"), types=types))
    if holds:
        assert found.command is not None
        assert found.command.replacements[0].instance_types == ("new",)
        assert found.command.savings == pytest.approx(0.28)
        assert found.command.method == "sets"
    else:
        assert [each.message for each in found.invalid] == [message]


# --- drift -------------------------------------------------------------------------------------------------


def a_drift(*views: NodeView, **given: Any) -> Round:
    return a_round(*views, types=BOTH, **given)


@pytest.mark.parametrize(
    ("view", "given", "why"),
    [
        (busy("a", drifted=NOW), {}, {}),
        (busy("a", drifted=NOW, consolidatable=False), {}, {}),
        (busy("a"), {}, {"churn": ("a",)}),
        (held(busy("a", drifted=NOW)), {}, {"churn": ("a",)}),
        (held(busy("a", drifted=NOW, grace="1h")), {}, {}),
        (busy("a", drifted=NOW), {"remaining": 0}, {"budget": ("a",)}),
    ],
)
def test_drifted_nodes_have_to_be_drifted_still(
    view: NodeView, given: dict[str, Any], why: dict[str, tuple[str, ...]]
) -> None:
    """And within budgets; what was planned for their pods is not looked into."""
    (command,) = Drift()(a_drift(busy("a", drifted=NOW))).commands
    assert reasons(validated(command, a_drift(view, **given))) == why
