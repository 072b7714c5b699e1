"""Whatever is wrong with a plan: the quick verifier and the slow one agree that something is."""

from collections import Counter

import pytest

from karpenter.scheduling import solve
from karpenter.scheduling.check import quick_violations, violations
from karpenter.testing.dice import Dice
from karpenter.testing.problems import Scale, a_random_problem
from karpenter.testing.spoiling import spoilt

SCALES = {"free": Scale(), "limited": Scale(limited=True), "large": Scale(workloads=8, replicas=8, pods=50)}


COMPANY = ("can never be bound", "keeps", "depends on")


def on_company(texts: list[str]) -> set[str]:
    """Return what is said of spread, affinity and anti-affinity: this both say of every pod."""
    return {text for text in texts if any(part in text for part in COMPANY)}


@pytest.mark.parametrize("scale", SCALES)
def test_quick_and_slow_agree_on_spoilt_plans(scale: str) -> None:
    """Pods moved and exchanged: both find faults, or neither; some such plans are right all the same."""
    verdicts: Counter[bool] = Counter()
    company: Counter[str] = Counter()
    for seed in range(30):
        dice = Dice.of_seed(f"spoilt {scale}/{seed}")
        problem = a_random_problem(dice, SCALES[scale])
        plan = solve(problem)
        for _ in range(3):
            worse = spoilt(dice, problem, plan)
            slow, quick = violations(problem, worse), quick_violations(problem, worse)
            assert bool(slow) == bool(quick), (seed, slow, quick)
            assert on_company(slow) == on_company(quick), seed
            verdicts[not slow] += 1
            company += Counter(part for part in COMPANY if any(part in text for text in slow))
    assert min(verdicts[True], verdicts[False]) >= 20
    assert min(company[part] for part in COMPANY) >= 5, company
