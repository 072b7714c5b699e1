"""How near to the cheapest possible machines whole plans come, within a second of search.

    python benchmarks/gap.py [--smoke] [--only NAME] [--group NAME] [--seconds 1] [--fees 0 0.02] [--check]

Each row is one call of the planner on real pods, on demand prices of EC2's us-east-1 unless it says spot
(those are modelled), with the fee per node given. It shows the proven lower bound; the first complete plan:
cost, gap and CPU seconds; the best plan when the search had the given CPU seconds besides: cost, gap, nodes,
CPU seconds altogether (the checker's included); how many pods stayed unschedulable; the fee. The gap
includes the slack of the bound. `--check` has every plan checked in full, `--memory` prints how far memory
rose above the inputs.
"""

import argparse
import resource
import statistics
from collections.abc import Callable
from time import process_time

import msgspec
from benchmarks.exact import exact_bound
from benchmarks.workloads import deployments, distinct, diverse, generic, machines, openb, problem

from karpenter.apis.core import Pod
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.scheduling.search import Memory
from karpenter.scheduling.solver import first_plan

Making = Callable[[], Problem]


def scenarios(smoke: bool) -> dict[str, tuple[str, Making]]:
    """Return problems by name, each with the group whose gaps it is counted with; made when called."""
    if smoke:
        return {
            "generic 300": ("generic", lambda: problem(generic(300), machines(cores=32))),
            "20 in company": (
                "company",
                lambda: problem(
                    deployments(20, 300, company=("zone", "host", "anti")), machines(cores=32, zones=3)
                ),
            ),
        }

    def everything(pods: list[Pod]) -> Problem:
        return problem(pods, machines(spot=True, arm=True, zones=3))

    def zonal(pods: list[Pod]) -> Problem:
        return problem(pods, machines(zones=3))

    return {
        "generic 1k": ("generic", lambda: problem(generic(1_000), machines())),
        "generic 5k": ("generic", lambda: problem(generic(5_000), machines())),
        "generic 20k": ("generic", lambda: problem(generic(20_000), machines())),
        "generic 50k": ("generic", lambda: problem(generic(50_000), machines())),
        "generic 10k, <= 32 cores": ("generic", lambda: problem(generic(10_000), machines(cores=32))),
        "generic 10k, <= 8 cores": ("generic", lambda: problem(generic(10_000), machines(cores=8))),
        "100 x 500": ("deployments", lambda: problem(deployments(100, 50_000), machines())),
        "100 x 500, <= 32 cores": (
            "deployments",
            lambda: problem(deployments(100, 50_000), machines(cores=32)),
        ),
        "openb GPU": ("gpu", lambda: problem(openb(), machines("cmrgp"))),
        "openb GPU models": ("gpu", lambda: problem(openb(models=True), machines("cmrgp"))),
        "400 zipf, picky, spot": (
            "many",
            lambda: everything(deployments(400, 16_000, zipf=True, picky=True)),
        ),
        "400 x 50, picky, spot": ("many", lambda: everything(deployments(400, 20_000, picky=True))),
        "100 x 50, zone spread": ("company", lambda: zonal(deployments(100, 5_000, company=("zone",)))),
        "100 x 50, host spread": ("company", lambda: zonal(deployments(100, 5_000, company=("host",)))),
        "100 x 50, both spreads": ("company", lambda: zonal(deployments(100, 5_000, company=("both",)))),
        "100 x 50, apart": ("company", lambda: zonal(deployments(100, 5_000, company=("anti",)))),
        "100 x 50, one of each": (
            "company",
            lambda: zonal(deployments(100, 5_000, company=("zone", "host", "anti", "both"))),
        ),
        "diverse 1k": ("company", lambda: zonal(diverse(1_000))),
        "diverse 5k": ("company", lambda: zonal(diverse(5_000))),
        "5k distinct": ("distinct", lambda: problem(distinct(5_000), machines())),
    }


def timed(asked: Problem, seconds: float | None) -> tuple[Plan, float]:
    """Return the plan and the CPU seconds it took; None: without a search."""
    begun = process_time()
    if seconds is None:
        plan = solve(asked)
    else:
        plan = solve(asked, Budget(seconds=seconds), monotonic=process_time, memory=Memory())
    return plan, process_time() - begun


def measure(name: str, asked: Problem, seconds: float, given: argparse.Namespace) -> float:
    """Plan without and with a search, print a row, return the gap in per cent."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timed(asked, None)  # the catalogue is compiled once and for all
    first, spent = timed(asked, None)
    plan, took = timed(asked, seconds + spent)
    rose = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    bound = max(plan.lower_bound or 0.0, first.lower_bound or 0.0)
    gap, gap_before = (100 * (p.cost / bound - 1) if bound else float("nan") for p in (plan, first))
    row = f"{name:26s} {len(asked.pods):6d} {bound:10.3f} | {first.cost:10.3f} {gap_before:+6.2f}%"
    row += f" {spent:5.2f}s | {plan.cost:10.3f} {gap:+6.2f}% {len(plan.claims):5d} {took:5.2f}s"
    row += f" {len(plan.unschedulable):5d}" + (f" +{rose / 1024:.0f} MiB" if given.memory else "")
    print(f"{row} {asked.options.node_fee:g}", flush=True)
    for wrong in (*(violations(asked, plan)[:3] if given.check else ()), *plan.distrusted):
        print("   !", wrong)
    if given.exact and bound:
        slack(asked, plan.cost, bound, given.exact)
    return gap


def slack(asked: Problem, cost: float, bound: float, seconds: float) -> None:
    """Print by how much the bound can be raised, and what that leaves of the gap."""
    exact = max(bound, exact_bound(first_plan(asked).relaxation().problem(), seconds))
    raised, left = 100 * (exact / bound - 1), 100 * (cost / exact - 1)
    print(
        f"   exact pricing: bound {exact:.3f} ({raised:+.2f} %), the gap is at most {left:.2f} %", flush=True
    )


def main() -> None:
    """Parse arguments, print the table and the median gap of each group."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="two tiny scenarios")
    parser.add_argument("--only", default="", help="run scenarios whose name contains this")
    parser.add_argument("--group", default="", help="run scenarios of this group")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--fees", type=float, nargs="+", default=[0.0, 0.02], help="USD per hour")
    parser.add_argument("--exact", type=float, default=0.0, help="CPU seconds for a bound by exact pricing")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--memory", action="store_true", help="for one scenario at a time")
    given = parser.parse_args()
    gaps: dict[tuple[str, float], list[float]] = {}
    print(
        f"{'scenario':26s} {'pods':>6s} {'bound $/h':>10s} | {'first':>24s}  | {given.seconds:g} s of search"
    )
    for name, (group, make) in scenarios(given.smoke).items():
        if given.only in name and given.group in ("", group):
            made = make()
            for fee in given.fees:
                options = msgspec.structs.replace(made.options, node_fee=fee)
                asked = msgspec.structs.replace(made, options=options)
                gap = measure(name, asked, given.seconds, given)
                gaps.setdefault((group, fee), []).append(gap)
    for (group, fee), found in sorted(gaps.items()):
        print(f"{group}, fee {fee:g}: median {statistics.median(found):.2f} %, worst {max(found):.2f} %")


if __name__ == "__main__":
    main()
