"""From a Problem to a Plan: existing nodes first, then what is already planned, then new nodes.

Pods are placed class by class, by count. Classes whose topology constraints count over domains (zones, racks)
are first dealt to domains (`assign`). Then, for each ask, the variants (what it asks for, with ever fewer
preferences) are tried in order, and within a variant first the nodes there are, then planned nodes with room
at no extra price, then a new node from the first pool that can buy one. New nodes are opened by worth for
money (`packing`).
"""

from collections.abc import Callable, Sequence

import msgspec

from karpenter.apis.karpenter import RequirementSpec
from karpenter.model.problem import Budget, LimitPrice, Plan, PoolOffer, Problem
from karpenter.scheduling.check import quick_violations
from karpenter.scheduling.classes import PodClass, classify
from karpenter.scheduling.compacting import compact
from karpenter.scheduling.detours import detoured, small, worth_detours
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.expendable import afterwards, merged, split
from karpenter.scheduling.improve import improved, same_as_relaxed
from karpenter.scheduling.looser import realistic
from karpenter.scheduling.mending import mended
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.rescue import rescued
from karpenter.scheduling.search import Memory
from karpenter.scheduling.topology import Topology
from karpenter.scheduling.whatif import WhatIf

_MOST_PASSES = 6
_SHOWN = 5
_FEW = 500
"""Up to how many pods other orders are tried when some find no place."""
_MOST_ORDERS = 4
_SEARCHES = 4
"""Among how many plans the budget is divided when kube-scheduler is not told where pods belong."""
_STEPS_BETWEEN = 24
"""How many steps the search may take on each of the ways in which a small batch is planned."""


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


def rehearse(problem: Problem, budget: Budget, *, monotonic: Callable[[], float] | None = None) -> Plan:
    """Return a plan to learn from, not to carry out: as `solve` would, but neither bounded nor checked.

    Raises:
        ValueError: when a quantity or a requirement in the problem cannot be read.
    """
    current = first_plan(problem)
    improved(current, spender(budget, monotonic))
    return current.plan()


def confirmed(
    problem: Problem, rehearsed: Plan, budget: Budget, *, monotonic: Callable[[], float] | None = None
) -> Plan:
    """Return the plan that `rehearse` made of `problem` if it can be carried out, else what `solve` makes.

    It can when nothing is wrong with it and nothing would be done about it: no pod is left out, expendable,
    or, as kube-scheduler is not told where pods belong, to be expected on another of several new nodes.

    Raises:
        ValueError: when a quantity or a requirement in the problem cannot be read.
    """
    unsure = not problem.options.nominated and len(rehearsed.claims) > 1
    if unsure or rehearsed.unschedulable or split(problem)[1] or quick_violations(problem, rehearsed):
        return solve(problem, budget, monotonic=monotonic)
    return rehearsed


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
    """Return a plan's working, and the plan, made cheaper for as long as `more` allows."""
    batch = _Batch(problem)
    current = batch.first_plan()
    if not more():
        batch.put_in_order(current)
        plan = current.plan()
        return current, batch.rescued(_mended(problem, plan)) if len(problem.pods) <= _FEW else plan
    proven, least, tolls = 0.0, *_bounds(current, more)
    if worth_detours(batch.classes):
        proven, detour = batch.detour(current, more)
        if detour.unplaced() != current.unplaced():
            proven, least, tolls = 0.0, *_bounds(detour, _steps(_STEPS_BETWEEN))
        current = detour
    proven = max(proven, improved(current, more, memory=memory))
    batch.put_in_order(current)
    plan = current.plan(max(proven, least), tolls)
    wrong = quick_violations(problem, plan)
    if wrong:
        plain = batch.first_plan()
        safe = _mended(problem, plain.plan(*_bounds(plain, _steps(_STEPS_BETWEEN))))
        return plain, msgspec.structs.replace(batch.rescued(safe), distrusted=tuple(wrong[:_SHOWN]))
    return current, batch.rescued(plan)


def _mended(problem: Problem, plan: Plan) -> Plan:
    def without_some(smaller: Problem) -> Plan:
        return first_plan(smaller).plan()

    return mended(problem, plan, without_some)


def _bounds(current: Pass, more: Callable[[], bool]) -> tuple[float, tuple[LimitPrice, ...]]:
    """Return what any plan for the same pods costs at least, where the search will not find that out."""
    return (0.0, ()) if same_as_relaxed(current) else current.relaxation().prove(more)


def spender(budget: Budget, monotonic: Callable[[], float] | None) -> Callable[[], bool]:
    """Return a function that tells, whenever it is asked, whether the search may go on for one more step."""
    if budget.steps is not None:
        return _steps(budget.steps)
    if budget.seconds is None or monotonic is None:
        return lambda: False
    end = monotonic() + budget.seconds
    return lambda: monotonic() < end


def first_plan(problem: Problem) -> Pass:
    """Return a complete plan by whole classes, first come first served."""
    return _Batch(problem).first_plan()


def _steps(number: int) -> Callable[[], bool]:
    left = iter(range(number))
    return lambda: next(left, None) is not None


class _Batch:
    """What is found out once about the pods of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.topology = Topology(problem)
        self.drives = Drives.of(problem)
        self.classes = classify(problem, self.topology, self.drives)

    def first_plan(self) -> Pass:
        """Return a complete plan by whole classes, first come first served."""
        classes = self.classes
        current = self.passes(classes)
        left_out = _left_out(classes, current)
        if not left_out or len(self.problem.pods) > _FEW:
            return current
        # Another order may place more: the small ones first, or whoever found no place.
        order = classes[::-1]
        for _ in range(_MOST_ORDERS):
            other = self.passes(order)
            found = _left_out(classes, other)
            if found < left_out:
                current, left_out = other, found
            unplaced = other.unplaced()
            behind = [c for c in order if not unplaced.isdisjoint(c.pods)]
            order = [*behind, *(c for c in order if unplaced.isdisjoint(c.pods))]
            if not left_out or not found:
                break
        return current

    def put_in_order(self, current: Pass) -> None:
        """Have pods bound where `current` plans them, if they are told where that is.

        Those without a place may yet find one in a plan as it was made.
        """
        if self.problem.options.nominated and not (current.refused and self._rescues):
            compact(current)

    @property
    def _rescues(self) -> bool:
        """Tell whether a place may be found for pods that a pass refuses.

        Where pods do not mind each other and nothing runs out, a pass refuses nobody without need.
        """
        topology, offers = self.topology, self.problem.pools
        limited = any(o.remaining or any(r.min_values for r in _asked(o)) for o in offers)
        return len(self.problem.pods) <= _FEW and bool(topology.rules or topology.domains.groups or limited)

    def rescued(self, plan: Plan) -> Plan:
        """Return `plan` with some of the few pods placed that it refused for no good reason."""
        return rescued(self.problem, plan, making_way=small(self.classes)) if self._rescues else plan

    def detour(self, first: Pass, more: Callable[[], bool]) -> tuple[float, Pass]:
        """Return what is known to be the least cost, and the best of several ways to place few pods."""
        proven = improved(first, _steps(_STEPS_BETWEEN))

        def again(what_if: WhatIf) -> Pass:
            other = self.passes(first.classes, what_if)
            improved(other, _steps(_STEPS_BETWEEN))
            return other

        def right(current: Pass) -> bool:
            return not quick_violations(self.problem, current.plan())

        return proven, detoured(first, again, right, more)

    def passes(self, classes: Sequence[PodClass], what_if: WhatIf | None = None) -> Pass:
        """Go over the classes until nobody was dealt or placed out of turn."""
        closed: dict[tuple[int, tuple[str, ...]], int] = {}
        by_priority = False
        for _ in range(_MOST_PASSES):
            current = Pass(
                self.problem,
                self.topology,
                classes,
                self.drives,
                closed,
                by_priority=by_priority,
                what_if=what_if,
            )
            current.run()
            if not by_priority and _someone_jumped_the_queue(classes, current.unplaced()):
                # Something ran out: now it matters who comes first.
                by_priority, closed = True, {}
            elif full := current.full_cells():
                # Domains that could not take what was dealt to them: deal again, knowing what they do take.
                closed = {**closed, **full}
            else:
                return current
        return current


def _asked(offer: PoolOffer) -> Sequence[RequirementSpec]:
    return offer.pool.spec.template.spec.requirements


def _left_out(classes: Sequence[PodClass], current: Pass) -> list[int]:
    """Return the priorities of the pods without a place, highest first; what nothing can help is left out."""
    unplaced = current.unplaced()
    able = (c for c in classes if c.refusal is None)
    return sorted((c.priority for c in able for key in c.pods if key in unplaced), reverse=True)


def _someone_jumped_the_queue(classes: Sequence[PodClass], unplaced: set[str]) -> bool:
    """Tell whether a pod was left out while one of lower priority was placed."""
    able = [c for c in classes if c.refusal is None]
    left_out = [c.priority for c in able if not unplaced.isdisjoint(c.pods)]
    placed = [c.priority for c in able if not unplaced.issuperset(c.pods)]
    return bool(left_out and placed) and max(left_out) > min(placed)
