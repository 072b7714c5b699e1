"""From a Problem to a Plan: existing nodes first, then what is already planned, then new nodes.

Pods are placed class by class, by count. Classes whose topology constraints count over domains (zones, racks)
are first dealt to domains (`assign`). Then, for each ask, the variants (what it asks for, with ever fewer
preferences) are tried in order, and within a variant first the nodes there are, then planned nodes with room
at no extra price, then a new node from the first pool that can buy one. New nodes are opened by worth for
money (`packing`).
"""

from collections.abc import Callable, Sequence

import msgspec

from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling.check import quick_violations
from karpenter.scheduling.classes import PodClass, classify
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.expendable import afterwards, merged, split
from karpenter.scheduling.improve import improved, same_as_relaxed
from karpenter.scheduling.looser import realistic
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.search import Memory
from karpenter.scheduling.topology import Topology

_MOST_PASSES = 6
_SHOWN = 5
_FEW = 500
"""Up to how many pods other orders are tried when some find no place."""
_MOST_ORDERS = 4
_SEARCHES = 4
"""Among how many plans the budget is divided when kube-scheduler is not told where pods belong."""


def solve(
    problem: Problem,
    budget: Budget | None = None,
    *,
    monotonic: Callable[[], float] | None = None,
    memory: Memory | None = None,
) -> Plan:
    """Return which pods go where, and which machines to create for them.

    The same problem, its pods in whatever order, always has the same plan, as long as the `budget` is counted
    in steps. It bounds what is spent on making the first complete plan cheaper; seconds count from the call
    on and need `monotonic`, a clock. `memory` lets a search start from what the one before it learned.

    Raises:
        ValueError: when a quantity or a requirement in the problem cannot be read.
    """
    budget = budget or Budget()
    more = spender(budget, monotonic)
    cutoff = problem.options.expendable_below
    problem, expendable = split(problem)
    if problem.options.nominated:
        _, plan = _searched(problem, more, memory)
    else:
        plan = _loose(problem, budget, monotonic, memory)
    if cutoff is None or not expendable:
        return plan
    return merged(plan, first_plan(afterwards(problem, plan, expendable)).plan(), expendable, cutoff)


def _loose(
    problem: Problem, budget: Budget, monotonic: Callable[[], float] | None, memory: Memory | None
) -> Plan:
    """Return the best of several plans, each with its part of the budget, for pods that go where they fit."""
    part = Budget(
        steps=None if budget.steps is None else budget.steps // _SEARCHES,
        seconds=None if budget.seconds is None else budget.seconds / _SEARCHES,
    )
    current, tight = _searched(problem, spender(part, monotonic), memory)

    def solving(asked: Problem) -> Plan:
        return _searched(asked, spender(part, monotonic), None)[1]

    return realistic(problem, tight, current.classes, solving)


def _searched(problem: Problem, more: Callable[[], bool], memory: Memory | None) -> tuple[Pass, Plan]:
    """Return a first plan's working, and the plan, made cheaper for as long as `more` allows."""
    current = first_plan(problem)
    if not more():
        return current, current.plan()
    least, tolls = (0.0, ()) if same_as_relaxed(current) else current.relaxation().prove(more)
    proven = improved(current, more, memory=memory)
    plan = current.plan(max(proven, least), tolls)
    wrong = quick_violations(problem, plan)
    if wrong:
        plain = first_plan(problem)
        safe = plain.plan(max(proven, least), tolls)
        return plain, msgspec.structs.replace(safe, distrusted=tuple(wrong[:_SHOWN]))
    return current, plan


def spender(budget: Budget, monotonic: Callable[[], float] | None) -> Callable[[], bool]:
    """Return a function that tells, whenever it is asked, whether the search may go on for one more step."""
    if budget.steps is not None:
        steps = iter(range(budget.steps))
        return lambda: next(steps, None) is not None
    if budget.seconds is None or monotonic is None:
        return lambda: False
    end = monotonic() + budget.seconds
    return lambda: monotonic() < end


def first_plan(problem: Problem) -> Pass:
    """Return a complete plan by whole classes, first come first served."""
    topology = Topology(problem)
    drives = Drives.of(problem)
    classes = classify(problem, topology, drives)
    current = _passes(problem, topology, drives, classes)
    left_out = _left_out(classes, current)
    if not left_out or len(problem.pods) > _FEW:
        return current
    # Another order may place more: the small ones first, or whoever found no place.
    order = classes[::-1]
    for _ in range(_MOST_ORDERS):
        other = _passes(problem, topology, drives, order)
        found = _left_out(classes, other)
        if found < left_out:
            current, left_out = other, found
        unplaced = other.unplaced()
        behind = [c for c in order if not unplaced.isdisjoint(c.pods)]
        order = [*behind, *(c for c in order if unplaced.isdisjoint(c.pods))]
        if not left_out or not found:
            break
    return current


def _left_out(classes: Sequence[PodClass], current: Pass) -> list[int]:
    """Return the priorities of the pods without a place, highest first; what nothing can help is left out."""
    unplaced = current.unplaced()
    able = (c for c in classes if c.refusal is None)
    return sorted((c.priority for c in able for key in c.pods if key in unplaced), reverse=True)


def _passes(problem: Problem, topology: Topology, drives: Drives, classes: Sequence[PodClass]) -> Pass:
    """Go over the classes until nobody was dealt or placed out of turn."""
    closed: dict[tuple[int, tuple[str, ...]], int] = {}
    by_priority = False
    for _ in range(_MOST_PASSES):
        current = Pass(problem, topology, classes, drives, closed, by_priority=by_priority)
        current.run()
        if not by_priority and _someone_jumped_the_queue(classes, current.unplaced()):
            # Something ran out: now it matters who comes first.
            by_priority = True
            closed = {}
            continue
        full = current.full_cells()
        if not full:
            break
        # Domains that could not take what was dealt to them: deal again, knowing what they do take.
        closed = {**closed, **full}
    return current


def _someone_jumped_the_queue(classes: Sequence[PodClass], unplaced: set[str]) -> bool:
    """Tell whether a pod was left out while one of lower priority was placed."""
    able = [c for c in classes if c.refusal is None]
    left_out = [c.priority for c in able if not unplaced.isdisjoint(c.pods)]
    placed = [c.priority for c in able if not unplaced.issuperset(c.pods)]
    return bool(left_out and placed) and max(left_out) > min(placed)
