"""Consolidation carried out on paper, command by command, until nothing is left to do."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.annotations import MOVED_FROM
from karpenter.apis.karpenter import Budget, NodePool
from karpenter.disruption.aftermath import Aftermath, Broken, after_command, after_plan
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate, find_candidates
from karpenter.disruption.command import Command
from karpenter.disruption.converging import Converger, Rules, types_of
from karpenter.disruption.launching import launch_of, node_of
from karpenter.disruption.rounds import Decision, Round, Search
from karpenter.disruption.verdicts import Method
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling import solve
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, an_instance_type, an_offering

PRICES = {"small": 0.1, "large": 0.4}
TYPES = [
    an_instance_type(name, cpu=cpu, price=PRICES[name], overhead={"cpu": "100m"})
    for name, cpu in (("small", "2"), ("large", "8"))
]
BY_NAME = {kind.name: kind for kind in TYPES}


class OneByOne:
    """A method as plain as can be: the first node by name that something cheaper can stand in for."""

    method: Method = "single"
    reason: Reason = "Underutilized"

    def __call__(self, a_round: Round) -> Decision:
        for candidate in a_round.candidates:
            if a_round.remaining[self.reason][candidate.pool.name] <= 0:
                return Decision(settled=False)
            outcome = a_round.simulator.without([candidate])
            command = Command(
                reason=self.reason,
                method=self.method,
                candidates=(candidate,),
                replacements=outcome.claims,
                placements=outcome.placements,
            )
            if not outcome.stranded and command.savings > 0:
                return Decision(commands=(command,))
        return Decision()


def a_node(name: str, kind: str, *cpu: str) -> NodeView:
    """Return a node of a type, with a pod for each of `cpu`."""
    pods = [a_pod(f"{name}-{i}", cpu=amount, memory="64Mi") for i, amount in enumerate(cpu)]
    filler = pods or [a_pod("filler", cpu="1", memory="64Mi")]
    (claim,) = solve(a_problem(filler, instance_types=[BY_NAME[kind]])).claims
    return node_of(claim, launch_of(claim, BY_NAME), name, pods)


def a_state(*nodes: NodeView, pool: NodePool) -> Aftermath:
    snapshot = a_problem([], nodes=nodes, pools=[pool]).snapshot
    return Aftermath(
        snapshot=snapshot, prices={n.name: PRICES[n.labels[labels.INSTANCE_TYPE]] for n in nodes}
    )


def a_converger(
    *nodes: NodeView, searches: Sequence[Search] = (OneByOne(),), budget: str = "100%", **rules: Any
) -> Converger:
    pool = a_nodepool()
    disruption = replace(pool.spec.disruption, budgets=[Budget(nodes=budget)])
    pool = replace(pool, spec=replace(pool.spec, disruption=disruption))

    def ask(snapshot: Snapshot) -> Problem:
        return a_problem([], nodes=snapshot.nodes, instance_types=TYPES, pools=[pool])

    return Converger(a_state(*nodes, pool=pool), ask, {pool.name: TYPES}, searches, Rules(**rules))


def candidates(*nodes: NodeView) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            node=node,
            pool=a_nodepool(),
            reschedulable=node.pods,
            price=PRICES[node.labels[labels.INSTANCE_TYPE]],
        )
        for node in nodes
    )


def places(state: Aftermath) -> dict[str, list[str]]:
    return {node.name: [pod.name for pod in node.pods] for node in state.snapshot.nodes}


def test_moves_are_remembered_unless_told_otherwise() -> None:
    """What it comes to in the end is asked without."""
    for remembered in (True, False):
        found = a_converger(a_node("a", "large", "1"), remembered=remembered)
        assert len(list(found.steps())) == 1
        (node,) = found.state.snapshot.nodes
        assert node.claim is not None
        assert (MOVED_FROM in node.claim.metadata.annotations) is remembered


def test_commands_follow_each_other_until_nothing_is_found() -> None:
    """Each begins with what the one before has left."""
    found = a_converger(a_node("a", "large", "1"), a_node("b", "large", "1"), a_node("c", "large", "1"))
    steps = list(found.steps())
    assert found.converged
    assert found.commands == len(steps)
    assert steps[0].cost_before == pytest.approx(1.2)
    assert [s.cost_before for s in steps[1:]] == pytest.approx([s.cost_after for s in steps[:-1]])
    assert [s.nodes_before for s in steps[1:]] == [s.nodes_after for s in steps[:-1]]
    assert found.state.cost == pytest.approx(0.3)
    assert sorted(p for pods in places(found.state).values() for p in pods) == ["a-0", "b-0", "c-0"]


def test_replacements_are_nodes_like_any_other() -> None:
    """They have their type's size and labels, belong to the pool, and may be consolidated at once."""
    found = a_converger(a_node("a", "large", "1"))
    (step,) = found.steps()
    (new,) = step.launched
    assert found.state.snapshot.nodes == (new,)
    assert new.labels[labels.INSTANCE_TYPE] == "small"
    assert new.labels[labels.NODEPOOL] == new.nodepool == "default"
    assert new.labels[labels.KUBERNETES_HOSTNAME] == new.name
    assert new.allocatable["cpu"] == 2000 - 100
    assert [(p.name, p.spec.node_name) for p in new.pods] == [("a-0", new.name)]
    assert found.state.prices == {new.name: 0.1}
    again = a_converger(new, searches=(OneByOne(),))
    assert list(again.steps()) == []
    found_again = find_candidates(again.state.snapshot, queued=frozenset(), catalogues={"default": TYPES})
    assert [candidate.name for candidate in found_again.candidates] == [new.name]


def test_it_stops_after_as_many_commands_as_are_allowed() -> None:
    """And does not say then that nothing more was to be found."""
    nodes = [a_node(name, "large", "1") for name in "abc"]
    found = a_converger(*nodes, most_commands=1)
    assert len(list(found.steps())) == 1
    assert not found.converged


def test_budgets_bind_each_round_unless_moves_are_free() -> None:
    """A budget of none stops everything; where moves are free it does not count."""
    nodes = [a_node(name, "large", "1") for name in "ab"]
    bound = a_converger(*nodes, budget="0")
    assert list(bound.steps()) == []
    assert bound.converged
    assert not bound.settled
    assert len(list(a_converger(*nodes, budget="0", free_moves=True).steps())) == 2


@pytest.mark.parametrize(
    ("placements", "gone", "wrong"),
    [
        ({}, ("a",), "default/a-0 has no place"),
        ({"b": ("default/a-0",), "c": ("default/a-0",)}, ("a",), "placed twice"),
        ({"d": ("default/a-0",)}, ("a",), "node d, which is not there"),
        ({"a": ("default/a-0",)}, ("a",), "node a, which is not there"),
        ({"c": ("default/a-0",)}, ("a",), "node c is overcommitted: cpu"),
        ({"b": ("default/a-0",)}, ("a", "e"), "node e is not there"),
    ],
)
def test_commands_that_lose_pods_or_overcommit_nodes_are_an_error(
    placements: dict[str, tuple[str, ...]], gone: tuple[str, ...], wrong: str
) -> None:
    """A mistake in a search never goes unnoticed."""
    nodes = {n: a_node(n, "large", cpu) for n, cpu in (("a", "1"), ("b", "1"), ("c", "7"), ("e", "1"))}
    state = a_state(*(nodes[n] for n in "abc"), pool=a_nodepool())
    command = Command(
        reason="Underutilized", candidates=candidates(*(nodes[n] for n in gone)), placements=placements
    )
    with pytest.raises(Broken, match=wrong):
        after_command(state, command, {})


def test_commands_that_announce_too_much_are_an_error() -> None:
    """The cluster has to cost what they say it will."""
    node = a_node("a", "large", "1")
    other = a_node("b", "large", "1")
    (candidate,) = candidates(node)
    command = Command(
        reason="Underutilized",
        candidates=(replace(candidate, price=1.0),),
        placements={"b": ("default/a-0",)},
    )
    with pytest.raises(Broken, match="instead of"):
        after_command(a_state(node, other, pool=a_nodepool()), command, {})


def test_pods_that_wait_get_their_nodes() -> None:
    """A plan carried out leaves only those pending that have no place; what it bought runs."""
    pods = [a_pod("fits", cpu="1"), a_pod("huge", cpu="100")]
    problem = a_problem(pods, instance_types=TYPES)
    state = Aftermath(snapshot=problem.snapshot, prices={})
    after = after_plan(state, solve(problem), problem.pods, types_of(problem))
    assert [pod.name for pod in after.snapshot.pending] == ["huge"]
    assert list(places(after).values()) == [["fits"]]
    assert after.cost == pytest.approx(0.1)


def test_scarce_machines_that_were_launched_are_counted() -> None:
    """What there is only so much of is not sold twice, and comes back when its node goes."""
    reserved = an_instance_type(
        "small", cpu="2", offerings=[replace(an_offering("zone-a", "on-demand", 0.05), stock=1)]
    )
    problem = a_problem([a_pod("a"), a_pod("b")], instance_types=[reserved])
    plan = solve(problem)
    state = after_plan(Aftermath(snapshot=problem.snapshot, prices={}), plan, problem.pods, types_of(problem))
    assert list(state.held().values()) == [1]
    (node,) = state.snapshot.nodes
    (candidate,) = candidates(node)
    kept = a_node("kept", "large")
    state = replace(state, snapshot=replace(state.snapshot, nodes=(kept, node)))
    command = Command(
        reason="Underutilized",
        candidates=(replace(candidate, price=0.05),),
        placements={"kept": tuple(f"default/{pod.name}" for pod in node.pods)},
    )
    assert after_command(state, command, {}).held() == {}
