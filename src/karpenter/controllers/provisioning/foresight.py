"""Planning before the batch closes: what is likely to be asked is worked out while nothing more comes.

A window stays open for a while in case more pods come; mostly none do. So planning begins halfway, and when
the window closes and the cluster is as it was, the plan is there. Otherwise it is dropped, and what is left
of its search is cut short: nobody has seen it, nothing was written.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from karpenter.model.problem import Plan, Problem

Solve = Callable[[Problem, Callable[[], bool]], Awaitable[Plan]]
"""Plans; may stop searching as soon as the question is no longer wanted."""


class Foresight:
    """At most one plan in the making that nobody has asked for yet."""

    def __init__(self, solve: Solve) -> None:
        self._solve = solve
        self._begun: _Begun | None = None

    def begin(self, problem: Problem) -> None:
        """Plan for `problem`, in place of what was begun before."""
        self.drop()
        self._begun = _Begun(self._solve, problem)

    async def plan(self, problem: Problem) -> Plan:
        """Return the plan for `problem`: the one begun if nothing has changed since."""
        begun, self._begun = self._begun, None
        if begun is not None and begun.is_for(problem):
            return await begun.task
        if begun is not None:
            begun.drop()
        return await self._solve(problem, lambda: True)

    def drop(self) -> None:
        """Forget what was begun."""
        if self._begun is not None:
            self._begun.drop()
            self._begun = None


class _Begun:
    def __init__(self, solve: Solve, problem: Problem) -> None:
        self._wanted = True
        self._problem = problem
        self.task = asyncio.ensure_future(solve(problem, lambda: self._wanted))

    def is_for(self, problem: Problem) -> bool:
        """Tell whether the question is the same, whatever the time; what has not changed is identical."""
        moment = problem.snapshot.taken_at
        old = replace(self._problem, snapshot=replace(self._problem.snapshot, taken_at=moment))
        return old == problem

    def drop(self) -> None:
        """Let it end soon; what it comes to, or fails by, matters to nobody."""
        self._wanted = False
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())
