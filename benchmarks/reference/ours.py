"""What this project makes of a scenario file, timed."""

import io
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from time import process_time

import msgspec

from karpenter.apis.core import Pod
from karpenter.base.clock import SystemClock
from karpenter.base.collector import uncollected
from karpenter.cli.plan import PlanOptions, question_of
from karpenter.model.pods import pod_key
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.catalogue import compiled
from karpenter.scheduling.check import quick_violations, violations

_CHECKED_PAIRWISE = 2_000


class Ours(msgspec.Struct, frozen=True):
    """Two plans for one scenario."""

    problem: Problem
    pods: int
    """Those that cannot be planned for at all included."""
    first_seconds: float
    """CPU time of the first complete plan, the catalogue being compiled already."""
    first: Plan
    seconds: float
    """CPU time of the plan that was improved, first plan included."""
    improved: Plan
    left_out: tuple[str, ...]
    """Pods without a place in the improved plan, sorted."""
    wrong: tuple[str, ...]
    """Rules that either plan breaks, by the independent checker."""
    shapes: dict[str, int]
    """By pod: pods with the same number differ in name only."""

    def lost(self, left_out: Iterable[str]) -> int:
        """Return how many pods have no place here beyond those of a plan with these `left_out`.

        Which of several equal pods has a place is nobody's concern.
        """
        mine = Counter(self.shapes[pod] for pod in self.left_out)
        return sum((mine - Counter(self.shapes[pod] for pod in left_out)).values())


def plan(path: Path, *, seconds: float | None = None, steps: int | None = None) -> Ours:
    """Plan a scenario twice: just completely, and as cheaply as the budget (CPU seconds, or steps) allows."""
    options = PlanOptions(files=(str(path),), deterministic=True)
    question = question_of(options, stdin=io.BytesIO(), err=sys.stderr, clock=SystemClock())
    problem = question.problem
    for offer in problem.pools:
        compiled(offer.instance_types)
    with uncollected():  # as the operator does it
        started = process_time()
        first = solve(problem)
        between = process_time()
    with uncollected():
        improved = solve(problem, Budget(seconds=seconds, steps=steps), monotonic=process_time)
        ended = process_time()
    invalid = [pod_key(pod) for pod, _ in question.demand.invalid]
    check = violations if len(problem.pods) <= _CHECKED_PAIRWISE else quick_violations
    return Ours(
        problem=problem,
        pods=len(problem.pods) + len(invalid),
        first_seconds=between - started,
        first=first,
        seconds=ended - between,
        improved=improved,
        left_out=tuple(sorted([*(u.pod for u in improved.unschedulable), *invalid])),
        shapes=_shapes([*problem.pods, *(pod for pod, _ in question.demand.invalid)]),
        wrong=(*check(problem, first), *check(problem, improved)),
    )


def _shapes(pods: Iterable[Pod]) -> dict[str, int]:
    known: dict[bytes, int] = {}
    found = {}
    for pod in pods:
        meta = pod.metadata
        text = msgspec.json.encode((meta.namespace, sorted(meta.labels.items()), pod.spec))
        found[pod_key(pod)] = known.setdefault(text, len(known))
    return found
