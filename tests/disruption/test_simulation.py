"""What would happen to the pods if some nodes were gone."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.disruption import simulation
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.simulation import Simulator
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.model.snapshot import NodeView
from karpenter.scheduling import solve
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, a_view, an_instance_type

TYPES = [an_instance_type("small", cpu="2"), an_instance_type("large", cpu="8")]


def a_busy_node(name: str, *cpu: str, **more: Any) -> NodeView:
    view = a_view(name, **more)
    return view.with_pods(
        a_pod(f"{name}-{i}", cpu=each, memory="64Mi", node_name=name) for i, each in enumerate(cpu)
    )


def a_candidate(view: NodeView) -> Candidate:
    return Candidate(node=view, pool=a_nodepool(), reschedulable=view.pods, price=1.0)


def a_simulator(*views: NodeView, pending: tuple[str, ...] = ()) -> Simulator:
    pods = [a_pod(f"pending-{i}", cpu=cpu, memory="64Mi") for i, cpu in enumerate(pending)]
    return Simulator(a_problem(pods, nodes=list(views), instance_types=TYPES))


def test_a_look_that_asks_nothing_solves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where waiting pods will go is worked out when somebody wants to know, and once."""
    solved: list[Problem] = []

    def noted(problem: Problem, *_: Any, **__: Any) -> Plan:
        solved.append(problem)
        return solve(problem)

    monkeypatch.setattr(simulation, "solve", noted)
    simulator = a_simulator(a_busy_node("a", "1"), pending=("1",))
    assert solved == []
    assert list(simulator.coming) == ["a"]
    assert list(simulator.coming) == ["a"]
    assert len(solved) == 1


def test_pods_move_to_free_room_first() -> None:
    """What fits on nodes that stay is not bought anew."""
    one, other = a_busy_node("a", "1"), a_busy_node("b", "1")
    found = a_simulator(one, other).without([a_candidate(one)])
    assert found.placements == {"b": ("default/a-0",)}
    assert (found.claims, found.stranded) == ((), ())


def test_what_does_not_fit_is_bought() -> None:
    """As cheaply as the provisioner would."""
    one, other = a_busy_node("a", "1500m"), a_busy_node("b", "3")
    found = a_simulator(one, other).without([a_candidate(one)])
    assert [c.instance_types[0] for c in found.claims] == ["small"]
    assert found.price == sum(c.price for c in found.claims)


def test_pods_that_wait_anyway_come_first() -> None:
    """Room that a pending pod will take is not promised to others; what is bought for it is no matter."""
    one, other = a_busy_node("a", "3"), a_busy_node("b", "1")
    assert a_simulator(one, other).without([a_candidate(one)]).placements == {"b": ("default/a-0",)}
    assert a_simulator(one, other, pending=("2",)).without([a_candidate(one)]).placements == {}
    assert len(a_simulator(one, other, pending=("7",)).without([a_candidate(one)]).placements) == 1


def test_pods_that_wait_for_the_very_node_move_on() -> None:
    """A pending pod whose place would be gone needs another one, too."""
    one, other = a_busy_node("a", "1"), a_busy_node("b", "2")
    assert a_simulator(one, other, pending=("1",)).without([a_candidate(one)]).placements == {
        "b": ("default/a-0", "default/pending-0")
    }


def test_pods_of_nodes_that_are_going_count_where_they_will_be() -> None:
    """Not where they are now."""
    going = a_busy_node("g", "2", marked_for_deletion=True)
    one, other = a_busy_node("a", "3"), a_busy_node("b", "1")
    problem = a_problem(going.pods, nodes=[going, one, other], instance_types=TYPES)
    found = Simulator(problem).without([a_candidate(one)])
    assert found.placements == {}
    assert len(found.claims) == 1


def test_pods_of_nodes_that_are_going_may_wait_for_nodes_to_come_up() -> None:
    """Their nodes go in any case; pods that would be moved do not: they need a node that is there."""
    going = a_busy_node("g", "1", marked_for_deletion=True)
    one, young = a_busy_node("a", "1"), a_busy_node("b", "1", initialized=False)
    simulator = Simulator(a_problem(going.pods, nodes=[going, one, young], instance_types=TYPES))
    assert [pod.name for pods in simulator.coming.values() for pod in pods] == ["g-0"]
    one = a_busy_node("a", "4")
    simulator = Simulator(a_problem(going.pods, nodes=[going, one, young], instance_types=TYPES))
    assert {name: [pod.name for pod in pods] for name, pods in simulator.coming.items()} == {"b": ["g-0"]}
    assert simulator.without([a_candidate(one)]).placements == {}


def test_closed_and_uninitialized_nodes_take_nobody() -> None:
    """Such as nodes whose consolidateAfter has not elapsed, and nodes that may never come up."""
    one, other = a_busy_node("a", "1"), a_busy_node("b", "1")
    assert a_simulator(one, other).without([a_candidate(one)], closed=frozenset({"b"})).placements == {}
    young = a_busy_node("b", "1", initialized=False)
    assert a_simulator(one, young).without([a_candidate(one)]).placements == {}


def test_pods_without_any_place_are_stranded() -> None:
    """With the solver's reasons."""
    one = a_busy_node("a", "3")
    problem = a_problem([], nodes=[one], instance_types=[TYPES[0]])
    (stranded,) = Simulator(problem).without([a_candidate(one)]).stranded
    assert stranded.pod == "default/a-0"
    assert stranded.refusals


def test_what_was_rehearsed_is_done_as_it_is() -> None:
    """Nothing is searched a second time when nothing is wrong with it."""
    one, other = a_busy_node("a", "1500m", "100m"), a_busy_node("b", "3500m")
    simulator = a_simulator(one, other)
    rehearsal = simulator.rehearsed([a_candidate(one)], budget=Budget(steps=5))
    assert simulator.confirmed(rehearsal, Budget(steps=5)) == rehearsal.outcome
    assert rehearsal.outcome.placements == {"b": ("default/a-1",)}


def test_pods_go_first_where_they_are_wanted() -> None:
    """Nodes that are named come before the others, in their order; without, it goes by name."""
    views = [a_busy_node("a", "1"), *(a_busy_node(name, "1") for name in "bcd")]
    simulator, gone = a_simulator(*views), [a_candidate(views[0])]
    for first, taker in (((), "b"), (("d", "c"), "d")):
        rehearsal = simulator.rehearsed(gone, budget=Budget(), first=first)
        assert rehearsal.outcome.placements == {taker: ("default/a-0",)}


def test_a_rehearsal_with_a_mistake_is_planned_anew() -> None:
    """Here one that puts everything on a node without room for it, and one that leaves out a pod."""
    one, other = a_busy_node("a", "1500m", "100m"), a_busy_node("b", "3500m")
    simulator = a_simulator(one, other)
    right = simulator.rehearsed([a_candidate(one)], budget=Budget(steps=5))
    crowded = {"b": ("default/a-0", "default/a-1")}
    forgetful = replace(right.plan, claims=(), cost=0.0)
    for wrong in (replace(forgetful, placements=crowded), forgetful):
        found = simulator.confirmed(replace(right, plan=wrong), Budget(steps=5))
        assert found == right.outcome


def test_pods_that_go_where_they_fit_are_planned_for_as_such() -> None:
    """A rehearsal of several nodes is not relied on when kube-scheduler is not told who goes where."""
    one = a_busy_node(
        "a", "3900m", "3900m", "3900m", allocatable={"cpu": "16", "memory": "64Gi", "pods": "99"}
    )
    problem = a_problem([], nodes=[one], instance_types=TYPES)
    kept = []
    for nominated in (True, False):
        options = replace(problem.options, nominated=nominated)
        simulator = Simulator(replace(problem, options=options))
        rehearsal = simulator.rehearsed([a_candidate(one)], budget=Budget())
        assert len(rehearsal.plan.claims) > 1
        kept.append(simulator.confirmed(rehearsal, Budget()).claims is rehearsal.plan.claims)
    assert kept == [True, False]
