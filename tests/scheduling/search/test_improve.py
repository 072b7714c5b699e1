"""The search for a cheaper plan, as its caller sees it."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter.scheduling.search import NodePattern, PackingProblem, improve
from karpenter.testing.packings import a_packing_problem, cheapest, faults, one_pod_per_node


def steps(number: int) -> Callable[[], bool]:
    """Return a budget of `number` steps."""
    left = iter(range(number))
    return lambda: next(left, None) is not None


def objective(problem: PackingProblem, patterns: list[NodePattern] | tuple[NodePattern, ...]) -> float:
    """Return cost and fees, USD per hour."""
    return float(sum((problem.price[p.offer] + problem.fee) * p.copies for p in patterns))


def placed(patterns: list[NodePattern] | tuple[NodePattern, ...]) -> int:
    """Return how many pods are on nodes."""
    return sum(n * p.copies for p in patterns for _, n in p.counts)


@st.composite
def problems(draw: st.DrawFn) -> PackingProblem:
    """Return problems with all kinds of rules."""
    return a_packing_problem(
        np.random.default_rng(draw(st.integers(0, 10**6))),
        asks=draw(st.integers(1, 7)),
        offers=draw(st.integers(1, 8)),
        pods=draw(st.integers(1, 60)),
        resources=draw(st.integers(1, 3)),
        limits=draw(st.integers(0, 2)),
        apart=draw(st.booleans()),
        fee=draw(st.sampled_from([0.0, 0.5])),
        concentration=draw(st.sampled_from([0.0, 0.0, 3.0])),
    )


@given(problem=problems(), budget=st.sampled_from([0, 1, 5, 40]), seed=st.integers(0, 3))
@settings(max_examples=120, deadline=None)
def test_every_answer_is_feasible_and_no_worse_than_the_start(
    problem: PackingProblem, budget: int, seed: int
) -> None:
    """Whatever the rules and whenever it is stopped, the plan is feasible and no step back from the start."""
    start = one_pod_per_node(problem)
    found = improve(problem, start, steps(budget), seed=seed)
    assert faults(problem, found.patterns) == []
    assert placed(found.patterns) + found.unplaced.sum() == problem.count.sum()
    assert placed(found.patterns) >= placed(start)
    if problem.concentration == 0 and placed(found.patterns) == placed(start):
        assert objective(problem, found.patterns) <= objective(problem, start) + 1e-9
    assert found.cost == pytest.approx(sum(problem.price[p.offer] * p.copies for p in found.patterns))
    assert found.duals.shape == problem.count.shape
    assert found.limit_duals.shape == problem.remaining.shape
    assert found.steps <= budget + 1


@given(problem=problems(), budget=st.sampled_from([7, 60]))
@settings(max_examples=30, deadline=None)
def test_the_same_steps_give_the_same_answer_to_the_byte(problem: PackingProblem, budget: int) -> None:
    """Two searches with the same problem, seed and number of steps return equal plans, bounds and duals."""
    start = one_pod_per_node(problem)
    one, two = (improve(problem, start, steps(budget), seed=5) for _ in range(2))
    assert one.patterns == two.patterns
    assert (one.cost, one.lower_bound, one.steps) == (two.cost, two.lower_bound, two.steps)
    assert one.duals.tobytes() == two.duals.tobytes()


@given(seed=st.integers(0, 10**6), apart=st.booleans(), budget=st.sampled_from([1, 30]))
@settings(max_examples=60, deadline=None)
def test_the_bound_is_below_the_cheapest_plan_there_is(seed: int, apart: bool, budget: int) -> None:
    """On problems solved by trying everything, the lower bound holds however early the search is stopped."""
    problem = a_packing_problem(np.random.default_rng(seed), asks=3, offers=4, pods=6, apart=apart)
    best = cheapest(problem)
    found = improve(problem, one_pod_per_node(problem), steps(budget))
    if best is not None:
        assert found.lower_bound <= best + 1e-9


def test_tiny_problems_are_nearly_always_solved_to_the_optimum() -> None:
    """Of 60 problems with at most six pods and four offers, at least 95 end at the cheapest plan."""
    hits, tried = 0, 0
    for seed in range(60):
        problem = a_packing_problem(np.random.default_rng(seed), asks=3, offers=4, pods=6)
        best = cheapest(problem)
        if best is not None:
            tried += 1
            found = improve(problem, one_pod_per_node(problem), steps(150))
            hits += found.cost <= best + 1e-9
    assert tried > 30
    assert hits >= 0.95 * tried


def test_a_node_that_is_too_large_is_replaced_by_the_cheapest_that_holds_its_pods() -> None:
    """The plan moves from a large node to a small one even without any step granted."""
    problem = PackingProblem(
        wanted=np.array([[2, 1]]),
        count=np.array([2]),
        most=np.array([100]),
        room=np.array([[64, 10], [4, 10]]),
        price=np.array([6.0, 0.5]),
        allowed=np.ones((1, 2), dtype=np.bool_),
        usage=np.zeros((2, 0), dtype=np.int64),
        remaining=np.zeros(0, dtype=np.int64),
    )
    found = improve(problem, [NodePattern(0, ((0, 2),), 1)], lambda: False)
    assert found.patterns == (NodePattern(1, ((0, 2),), 1),)
    assert found.cost == 0.5
    assert not found.unplaced.any()


def test_pods_that_a_limit_left_out_are_placed_when_cheaper_nodes_make_room() -> None:
    """A limit on nodes that one-pod nodes exhaust holds all pods once they share."""
    problem = a_packing_problem(np.random.default_rng(1), asks=1, offers=1, pods=6, restricted=False)
    problem = msgspec.structs.replace(
        problem,
        wanted=np.array([[1, 1]]),
        most=np.array([100]),
        usage=np.array([[1]]),
        remaining=np.array([4]),
    )
    start = one_pod_per_node(problem)
    assert placed(start) == 4
    found = improve(problem, start, steps(100))
    assert not found.unplaced.any()
    assert faults(problem, found.patterns) == []


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("count", np.array([0]), "count has 0"),
        ("price", np.array([0.0]), "price has 0"),
        ("room", np.array([[1, 1], [1, 1]]), r"room has shape \(2, 2\)"),
        ("most", np.array([1, 2]), r"most has shape \(2,\); give it shape \(1,\)"),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(field: str, value: object, message: str) -> None:
    """The error names the array, what it has and what it should have."""
    problem = a_packing_problem(np.random.default_rng(1), asks=1, offers=1, pods=1)
    with pytest.raises(ValueError, match=message):
        improve(msgspec.structs.replace(problem, **{field: value}), [], lambda: False)
