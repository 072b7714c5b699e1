"""Scenario files say the same as the problems they are made of."""

import io
import json
from pathlib import Path

import pytest

from karpenter.base.clock import ManualClock
from karpenter.cli.plan import PlanOptions, question_of
from karpenter.scheduling import solve
from karpenter.testing.dice import Dice
from karpenter.testing.problems import Scale, a_random_problem
from karpenter.testing.scenarios import scenario_of


@pytest.mark.parametrize("seed", range(10))
def test_a_problem_has_the_same_plan_as_its_scenario(tmp_path: Path, seed: int) -> None:
    """What is written as a scenario and read back costs as much, and leaves out the same pods."""
    scale = Scale(nodes=0, limited=True)
    problem = a_random_problem(Dice.of_seed(f"scenario/{seed}"), scale)
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario_of(problem)))
    told = io.StringIO()
    options = PlanOptions(files=(str(path),), deterministic=True)
    read = question_of(options, stdin=io.BytesIO(), err=told, clock=ManualClock(0.0))
    assert "error" not in told.getvalue()
    before, after = solve(problem), solve(read.problem)
    assert after.cost == pytest.approx(before.cost)
    assert {u.pod for u in after.unschedulable} == {u.pod for u in before.unschedulable}
