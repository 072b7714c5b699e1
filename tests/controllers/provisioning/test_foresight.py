"""Plans are made while the batch is still open, and used only if nothing has changed when it closes."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.provisioning import provisioner
from karpenter.controllers.provisioning.foresight import Foresight
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, some_pods
from karpenter.testing.environment import environment


class Solver:
    """Takes a second; notes what it was asked, and for what it was wanted to the end."""

    def __init__(self) -> None:
        self.asked: list[Problem] = []
        self.finished: list[Problem] = []

    async def __call__(self, problem: Problem, wanted: Callable[[], bool]) -> Plan:
        self.asked.append(problem)
        await asyncio.sleep(1.0)
        if wanted():
            self.finished.append(problem)
        return solve(problem, Budget(steps=0))


def test_what_was_begun_is_there_when_it_is_asked_for() -> None:
    """Only what is left of its time has to be waited for, though the clock has moved on."""

    async def scenario() -> None:
        solver = Solver()
        foresight = Foresight(solver)
        problem = a_problem([a_pod()])
        foresight.begin(problem)
        await asyncio.sleep(0.75)
        later = replace(problem.snapshot, taken_at=problem.snapshot.taken_at + 0.75)
        began = asyncio.get_running_loop().time()
        plan = await foresight.plan(replace(problem, snapshot=later))
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.25)
        assert len(plan.claims) == 1
        assert len(solver.asked) == 1

    run_virtual(scenario())


@pytest.mark.parametrize("change", ["pod", "pool", "held", "options"])
def test_another_question_is_planned_for_anew(change: str) -> None:
    """What was begun is dropped, and not searched to its end."""

    async def scenario() -> None:
        solver = Solver()
        foresight = Foresight(solver)
        problem = a_problem([a_pod()])
        other = {
            "pod": a_problem([a_pod(), a_pod("more")]),
            "pool": a_problem([a_pod()], pools=[a_nodepool(limits={"cpu": "100"})]),
            "held": replace(problem, held={"r-1": 1}),
            "options": replace(problem, options=replace(problem.options, price_remaining=5)),
        }[change]
        foresight.begin(problem)
        await asyncio.sleep(0.1)
        await foresight.plan(other)
        assert solver.asked == [problem, other]
        assert solver.finished == [other]

    run_virtual(scenario())


@pytest.mark.parametrize(("gap", "solves"), [(None, 1), (0.3, 1), (0.7, 2)])
def test_a_batch_is_planned_for_once_unless_more_comes_late(
    gap: float | None, solves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods that come while planning is underway cost a second plan; what is bought is the same."""
    seen: list[int] = []

    def counted(problem: Problem, *arguments: object, **options: object) -> Plan:
        seen.append(len(problem.pods))
        return solve(problem, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(provisioner, "solve", counted)

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.wait(20)
            pods = await env.create_all(some_pods(3, cpu="300m"))
            if gap is not None:
                await env.wait(gap)
                pods += await env.create_all([a_pod("late", cpu="300m")])
            await env.expect_scheduled(pods)
            assert len(env.cloud.created) == 1

    run_virtual(scenario())
    assert len(seen) == solves
