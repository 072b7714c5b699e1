"""Plans get no worse: what they cost, leave out and wish for, beside what it was when it was written down.

After a change that makes plans better on the whole (see `make bench`), write the figures down anew:

    PYTHONPATH=src:. .venv/bin/python tests/corpus/test_first_plans.py
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from benchmarks.workloads import generic, machines
from benchmarks.workloads import problem as to_buy

from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling.solver import first_plan, solve
from karpenter.testing.dice import Dice
from karpenter.testing.figures import Figures, figures
from karpenter.testing.problems import TINY, Scale, a_random_problem

HOW_TO_GO_ON = """
Are plans better on the whole (`make bench`), if not here? Then write the figures down anew:
PYTHONPATH=src:. .venv/bin/python tests/corpus/test_first_plans.py"""
RECORDED = Path(__file__).with_name("first_plans.json")
SCALES = {
    "calm": (40, Scale(company=False)),
    "free": (60, Scale()),
    "limited": (60, Scale(limited=True)),
    "tiny": (24, TINY),
    "large": (12, Scale(workloads=12, replicas=12, pods=120, types=12, nodes=8, limited=True)),
}
"""How many random problems of which kind."""


def the_problems(kind: str) -> list[tuple[str, Problem]]:
    """Return the problems of a kind, each with its name: random ones, or real requests for real machines."""
    if kind == "catalogue":
        small, large = to_buy(generic(40), machines(cores=32)), to_buy(generic(150), machines("c"))
        return [("generic-40", small), ("generic-150", large)]
    count, scale = SCALES[kind]
    names = [f"{kind}/figures-{i}" for i in range(count)]
    return [(name, a_random_problem(Dice.of_seed(name), scale)) for name in names]


def first(problem: Problem) -> Plan:
    """Return the first complete plan."""
    return first_plan(problem).plan()


def bargained(problem: Problem) -> Plan:
    """Return the first complete plan where machines cost next to nothing: the fee is most of it."""
    options = msgspec.structs.replace(problem.options, node_fee=1.0)
    return first(msgspec.structs.replace(problem, options=options))


def searched(problem: Problem) -> Plan:
    """Return the plan after a short search."""
    return solve(problem, Budget(steps=40))


PLANNERS: dict[str, Callable[[Problem], Plan]] = {
    "first": first,
    "bargained": bargained,
    "rescued": solve,
    "searched": searched,
}
KINDS = [
    *(("first", kind) for kind in ("calm", "free", "limited", "large", "catalogue")),
    ("bargained", "large"),
    ("bargained", "catalogue"),
    ("rescued", "free"),
    ("rescued", "limited"),
    ("searched", "tiny"),
]


def measured(planner: str, kind: str) -> dict[str, Figures]:
    """Return the figures of all plans of a kind, by problem."""
    return {name: figures(problem, PLANNERS[planner](problem)) for name, problem in the_problems(kind)}


def recorded() -> dict[str, dict[str, Figures]]:
    """Return what is written down, by kind and problem."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=dict[str, dict[str, Figures]])


@pytest.mark.parametrize(("planner", "kind"), KINDS)
def test_plans_are_no_worse_than_they_were(planner: str, kind: str) -> None:
    """No more pods are left out, no more is paid, no preference given up, no type passed over than before."""
    before, now = recorded()[f"{planner}, {kind}"], measured(planner, kind)
    assert before.keys() == now.keys()
    worse = {name: (now[name].worse_than(before[name]), before[name], now[name]) for name in now}
    assert {name: found for name, found in worse.items() if found[0]} == {}, HOW_TO_GO_ON


if __name__ == "__main__":
    found = {f"{planner}, {kind}": measured(planner, kind) for planner, kind in KINDS}
    RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
