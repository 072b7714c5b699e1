"""Tiny problems, solved by trying everything: the solver places as many pods, and hardly ever pays more."""

import os
import time
from collections import Counter

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.model.problem import Budget, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, a_view, an_instance_type, some_pods
from karpenter.testing.company import apart, app_pods, spread
from karpenter.testing.dice import Dice
from karpenter.testing.exhaustive import TooLarge, best_plan
from karpenter.testing.problems import TINY, a_random_problem

SECONDS = float(os.environ.get("KARPENTER_SECONDS", "60"))
SOAK = os.environ.get("KARPENTER_SOAK") == "1"
FIRST = int(os.environ.get("KARPENTER_SEED", "0"))
SCALES = {"alone": msgspec.structs.replace(TINY, company=False), "company": TINY}
SEARCH = Budget(steps=100)
OPTIMAL_SHARE = 0.95
FEWER_SHARE = 0.02
CENT = 1e-6


def compared(problem: Problem) -> str:
    """Solve both ways; return `optimal`, `dearer`, `fewer` pods placed, or `too large` to try everything.

    Both plans must be right, and the lower bound must be below the best plan.
    """
    plan = solve(problem, SEARCH)
    assert plan.distrusted == ()
    assert violations(problem, plan) == []
    try:
        best = best_plan(problem)
    except TooLarge:
        return "too large"
    assert violations(problem, best) == []
    assert len(plan.unschedulable) >= len(best.unschedulable), f"not the best plan after all: {best}"
    if len(plan.unschedulable) > len(best.unschedulable):
        return "fewer"
    if {u.pod for u in plan.unschedulable} == {u.pod for u in best.unschedulable}:
        # The bound is one for the pods that are placed.
        assert plan.lower_bound is None or plan.lower_bound <= best.cost + CENT
        assert plan.cost >= best.cost - CENT, f"not the best plan after all: {best}"
    return "dearer" if plan.cost > best.cost + CENT else "optimal"


def test_the_best_plan_of_a_few_pods() -> None:
    """Three pods of one core: together on one node where they fit, else on as few as possible."""
    types = [an_instance_type("small", cpu="2", price=2.0), an_instance_type("large", cpu="8", price=5.0)]
    problem = a_problem(some_pods(3, cpu="1", memory="64Mi"), instance_types=types)
    assert best_plan(problem).cost == 4.0
    assert best_plan(a_problem(some_pods(5, cpu="1", memory="64Mi"), instance_types=types)).cost == 5.0


def test_the_best_plan_uses_what_is_there() -> None:
    """An existing node costs nothing; a pod that fits nowhere is refused."""
    problem = a_problem([a_pod(cpu="3"), a_pod("huge", cpu="99")], nodes=[a_view()])
    best = best_plan(problem)
    assert (best.cost, len(best.unschedulable), best.placements) == (0, 1, {"node": ("default/pod",)})


def test_the_best_plan_minds_company() -> None:
    """Spread pods get a zone each when a node stands in either; pods that avoid each other get as many."""
    zones = [a_view(z, labels={labels.ZONE: z}, allocatable={"pods": "0"}) for z in ("zone-a", "zone-b")]
    for spec, claims in ((spread(), 2), (apart("web"), 2), (None, 1)):
        problem = a_problem(app_pods("web1", "web2", spec=spec), nodes=zones)
        assert len(best_plan(problem).claims) == claims


def test_what_is_too_large_or_limited_is_refused() -> None:
    """It says so rather than running for hours or ignoring limits."""
    pods = [a_pod(f"pod-{i}", cpu=f"{i + 1}00m", labels={"app": "web"}, spec=spread()) for i in range(6)]
    with pytest.raises(TooLarge):
        best_plan(a_problem(pods), most_tries=0)
    with pytest.raises(ValueError, match="limits"):
        best_plan(a_problem(pods, pools=[a_nodepool(limits={"cpu": "1"})]))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 40))
def test_pods_that_mind_nobody_are_placed_whenever_they_can_be(seed: int) -> None:
    """The solver places as many as can be placed, for no less than that costs at best."""
    assert compared(a_random_problem(Dice.of_seed(f"alone/{seed}"), SCALES["alone"])) != "fewer"


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_plans_are_as_good_as_trying_everything(scale: str) -> None:
    """As many as fit in KARPENTER_SECONDS (or 5,000 with KARPENTER_SOAK=1): nearly all are optimal.

    Of pods that mind others, a few may be left out whom only one order of binding would let in: the solver
    puts nobody where that depends on who is bound first.
    """
    started, seed, seen = time.monotonic(), FIRST, Counter[str]()
    while (SOAK and seed < FIRST + 5_000) or (not SOAK and time.monotonic() - started < SECONDS):
        try:
            seen[compared(a_random_problem(Dice.of_seed(f"{scale}/{seed}"), SCALES[scale]))] += 1
        except BaseException:
            print(f"\n{scale} problem {seed}: to begin with it, set KARPENTER_SEED={seed}")
            raise
        seed += 1
    print(f"{scale}: {dict(seen)} from seed {FIRST}")
    assert seen["fewer"] <= (FEWER_SHARE if SCALES[scale].company else 0) * seen.total()
    assert seen["optimal"] >= OPTIMAL_SHARE * (seen["optimal"] + seen["dearer"] + seen["fewer"])
