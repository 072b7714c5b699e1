"""Every plan that a test makes is checked in full: one that breaks a rule fails it, whatever it is about."""

import os
from collections.abc import Iterator
from functools import wraps
from typing import Any

import pytest
from hypothesis import settings

import karpenter.scheduling as scheduling
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling import solver
from karpenter.scheduling.check import quick_violations, violations

# Virtual time is what counts here; how busy the machine is must not fail a test. The same code has the same
# verdict, except when soaking: then there are other examples every time.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None)
settings.load_profile("soak" if os.environ.get("KARPENTER_SOAK") == "1" else "repeatable")

_MANY_PODS = 300
"""Plans for more are checked by kinds of pods and claims instead of one by one."""
_plain_solve = solver.solve
_wrong: list[str] = []
_checked = [0]


@wraps(_plain_solve)
def _checked_solve(problem: Problem, *args: Any, **fields: Any) -> Plan:
    plan = _plain_solve(problem, *args, **fields)
    judge = violations if len(problem.pods) <= _MANY_PODS else quick_violations
    _wrong.extend(judge(problem, plan))
    _checked[0] += 1
    return plan


# Tests and the operator take `solve` from here by name, after this module is loaded and before a test runs.
for _room in (scheduling, solver):
    vars(_room)["solve"] = _checked_solve


# Few pods are looked at twice: who finds no place is rescued, what quarrels is mended. That may hide what is
# wrong with first plans, which are all that many pods get; without it, tests see them as they are.
_PLAIN = os.environ.get("KARPENTER_PLAIN") == "1"
if _PLAIN:
    vars(solver).update(rescued=lambda problem, plan, **_: plan, mended=lambda problem, plan, _: plan)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, where plans are not looked at twice, the tests that are about that."""
    about = [i for i in items if i.path.stem in ("test_rescue", "test_properties") or "rescued" in i.keywords]
    if _PLAIN and about:
        config.hook.pytest_deselected(items=about)
        items[:] = [i for i in items if i not in about]


@pytest.fixture(autouse=True)
def every_plan_is_right() -> Iterator[None]:
    """Fail a test in which a plan was made that breaks a rule."""
    _wrong.clear()
    yield
    assert _wrong == [], f"a plan made in this test breaks rules: {_wrong[:5]}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report how many plans this process checked to the one that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["plans_checked"] = _checked[0]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a process of `pytest -n` has checked."""
    _checked[0] += getattr(node, "workeroutput", {}).get("plans_checked", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many plans were checked."""
    if _checked[0]:
        terminalreporter.write_line(f"{_checked[0]} plans checked in full")
