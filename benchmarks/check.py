"""How long the verifier takes that the operator runs on every plan a search has improved.

    PYTHONPATH=src:. python benchmarks/check.py [--smoke] [--only NAME]

Each row: pods, planned nodes and the CPU seconds of the better of two runs of `quick_violations` on the
first complete plan. A plan in which anything is wrong is an error.
"""

import argparse
import sys
from collections.abc import Callable
from time import process_time

from benchmarks.workloads import deployments, diverse, generic, machines, problem

from karpenter.model.problem import Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import quick_violations


def scenarios(smoke: bool) -> dict[str, Callable[[], Problem]]:
    """Return problems by name, made when called."""
    zonal = machines(zones=3)

    def of_diverse(pods: int) -> Callable[[], Problem]:
        return lambda: problem(diverse(pods), zonal)

    if smoke:
        return {"diverse 300": of_diverse(300), "generic 300": lambda: problem(generic(300), zonal)}
    return {
        "generic 50k": lambda: problem(generic(50_000), zonal),
        "100 x 500": lambda: problem(deployments(100, 50_000), zonal),
        "100 x 50, one of each": lambda: problem(
            deployments(100, 5_000, company=("zone", "host", "anti", "both")), zonal
        ),
        "diverse 1k": of_diverse(1_000),
        "diverse 5k": of_diverse(5_000),
        "diverse 20k": of_diverse(20_000),
        "diverse 50k": of_diverse(50_000),
    }


def measure(asked: Problem, plan: Plan) -> tuple[float, list[str]]:
    """Return the CPU seconds of the better of two runs, and what is wrong."""
    took = []
    for _ in range(2):
        begun = process_time()
        wrong = quick_violations(asked, plan)
        took.append(process_time() - begun)
    return min(took), wrong


def main() -> int:
    """Parse arguments and print the table; 1 when a plan is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="two tiny scenarios")
    parser.add_argument("--only", default="", help="run scenarios whose name contains this")
    given = parser.parse_args()
    failed = False
    print(f"{'scenario':24s} {'pods':>6s} {'nodes':>6s} {'CPU':>8s}")
    for name, making in scenarios(given.smoke).items():
        if given.only in name:
            asked = making()
            plan = solve(asked)
            seconds, wrong = measure(asked, plan)
            failed = failed or bool(wrong)
            print(f"{name:24s} {len(asked.pods):6d} {len(plan.claims):6d} {seconds:7.3f}s", flush=True)
            for text in wrong[:3]:
                print("   !", text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
