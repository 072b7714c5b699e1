"""The original's scheduler and this project, side by side: time, nodes, cost, who is left out.

    python benchmarks/against_reference.py [--full] [--only NAME]... [--budget SECONDS] [--runs N] [--smoke]

Times are CPU seconds of deciding alone, the catalogue being ready: the reference's user time with one
goroutine (its default in production and its fastest), ours of the first complete plan and of the one improved
within `--budget`. `faster` compares the first plan. `saved` is what the improved plan costs less than the
median of the reference's runs, which are not deterministic; those that leave out the fewest pods count. `!`
marks what misses a target; `out` are pods without a place, `lost` those of them for which, or for whose
equals, the reference has one; `wrong` counts rules that our plans break, by the independent checker. Exit
code 1 when a pod is lost, a rule broken, or a plan over 0.1 % dearer on the corpus; where the reference's own
plan breaks rules (it says `unruly`), neither pods nor costs are compared.

Building the reference takes Go and, the first time, minutes; `--smoke` uses it only when it is there already.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import msgspec
from benchmarks.reference.cases import CASES, MIXES, Case, kept, write_complete
from benchmarks.reference.judge import broken_rules
from benchmarks.reference.ours import Ours, plan
from benchmarks.reference.program import PROGRAM, Answer, Failed, schedule, version

from karpenter.testing.gobinary import BuildFailed

_TIMEOUT_SECONDS = 300
_CORPUS_RUNS = 5
_DEARER = 0.001
_SMOKE = ("zone-spread", "volumes-taints-reserved", "existing-nodes")


class Row(msgspec.Struct, frozen=True):
    """One scenario, decided by both."""

    name: str
    mine: Ours
    theirs: Answer | None
    failed: str = ""
    """Why there is no answer of the reference."""
    faster_wanted: float = 0.0
    cost_matters: bool = False
    unruly: bool = False
    """The reference's plan breaks rules, by our checker."""

    @property
    def faster(self) -> float | None:
        """How many times the reference's time ours goes into."""
        return self.theirs.user_seconds / self.mine.first_seconds if self.theirs else None

    @property
    def saved(self) -> float | None:
        """Which share of the reference's cost is not spent; None when either costs nothing."""
        cost = median(self.theirs.costs) if self.theirs else 0.0
        return 1 - self.mine.improved.cost / cost if cost else None

    @property
    def lost(self) -> int:
        """Pods that we leave out although the reference does not."""
        return self.mine.lost(self.theirs.left_out) if self.theirs and not self.unruly else 0

    @property
    def dearer(self) -> bool:
        """Whether our plan costs too much, pods that only we have placed aside."""
        if not self.cost_matters or self.unruly or self.saved is None or self.theirs is None:
            return False
        more_placed = len(self.mine.left_out) < min(self.theirs.left_out_counts)
        return self.saved < -_DEARER and not more_placed

    @property
    def bad(self) -> bool:
        """Whether something is wrong that no load of the machine excuses."""
        return bool(self.lost or self.dearer or self.mine.wrong)


HEAD = (
    f"{'':32} {'':>6} | {'reference':^32} | {'ours, first plan':^25} | {'ours, improved':^25} |\n"
    f"{'scenario':32} {'pods':>6} | {'cpu s':>8} {'nodes':>5} {'$/h':>10} {'out':>5}  | "
    f"{'cpu s':>8} {'nodes':>5} {'$/h':>10} | {'cpu s':>8} {'nodes':>5} {'$/h':>10} | "
    f"{'faster':>9} {'saved':>8} {'out':>5} {'lost':>4} {'wrong':>5}"
)


def line(row: Row) -> str:
    """Return a row of the table."""
    mine, theirs = row.mine, row.theirs
    if theirs is None:
        reference = row.failed[:32].ljust(32)
    else:
        stopped = "+" if theirs.timed_out else " "
        reference = (
            f"{theirs.user_seconds:8.2f} {median(theirs.nodes):5.0f} {median(theirs.costs):10.3f} "
            f"{median(theirs.left_out_counts):5.0f}{stopped} "
        )
    faster = ""
    if row.faster is not None:
        mark = "!" if row.faster < row.faster_wanted else " "
        faster = f"{row.faster:.{0 if row.faster >= 10 else 1}f} x{mark}"
    saved = "" if row.saved is None else f"{100 * row.saved:+.1f} %{'!' if row.dearer else ' '}"
    return (
        f"{row.name:32} {mine.pods:6} | {reference} | "
        f"{mine.first_seconds:8.4f} {len(mine.first.claims):5} {mine.first.cost:10.3f} | "
        f"{mine.seconds:8.4f} {len(mine.improved.claims):5} {mine.improved.cost:10.3f} | "
        f"{faster:>9} {saved:>8} {len(mine.left_out):5} {row.lost:4} {len(mine.wrong):5}"
        f"{'  unruly' if row.unruly else ''}"
    )


def decided(name: str, path: Path, seconds: float, runs: int, *, reference: bool) -> Row:
    """Have both decide one scenario, ours first."""
    mine = plan(path, seconds=seconds)
    if not reference:
        return Row(name, mine, None, "not asked")
    try:
        return Row(name, mine, schedule(path, repeat=runs, timeout_seconds=_TIMEOUT_SECONDS, names=True))
    except Failed as error:
        return Row(name, mine, None, str(error))


def corpus_rows(folder: Path, arguments: argparse.Namespace, reference: bool) -> Iterator[Row]:
    """Yield the kept scenarios, on EC2's catalogue where they bring none."""
    for scenario in kept():
        if _wanted(scenario.stem, arguments.only) and (scenario.stem in _SMOKE or not arguments.smoke):
            path = folder / f"{scenario.stem}.json"
            write_complete(scenario, path)
            row = decided(scenario.stem, path, arguments.budget, arguments.runs, reference=reference)
            unruly = row.theirs is not None and bool(broken_rules(row.mine.problem, row.theirs.raw))
            yield msgspec.structs.replace(row, cost_matters=True, unruly=unruly)


def generated_rows(cases: Iterable[Case], folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield workloads that the reference program makes up."""
    for case in cases:
        if _wanted(case.name, arguments.only) and (case.quick or arguments.full or arguments.only):
            path = folder / "generated.json"
            case.write(path)
            row = decided(case.name, path, arguments.budget, case.runs, reference=True)
            yield msgspec.structs.replace(row, faster_wanted=case.faster)


def mixes(folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield and print workloads that nothing constrains; print the median saving of each catalogue."""
    for mix in MIXES:
        rows = []
        for row in generated_rows(mix.cases(), folder, arguments):
            print(line(row), flush=True)
            rows.append(row)
        savings = [row.saved for row in rows if row.saved is not None]
        if savings:
            mark = "" if median(savings) >= mix.saving else "  MISSED"
            got, wanted = 100 * median(savings), 100 * mix.saving
            print(f"  {mix.name}: median saving {got:.1f} % (wanted {wanted:.0f} %){mark}")
        yield from rows


def _wanted(name: str, only: list[str]) -> bool:
    return not only or any(part in name for part in only)


def _reference_ready(smoke: bool) -> bool:
    """Return whether the reference can be asked, building it unless this is a smoke run; say why not."""
    try:
        if smoke and not PROGRAM.built():
            print("reference: not built here (make bench-reference does); ours alone, held to the checker")
            return False
        PROGRAM.binary()
    except BuildFailed as error:
        print(f"reference: cannot be built; ours alone, held to the checker\n{error}")
        return False
    print(f"reference: sigs.k8s.io/karpenter {version()}; + means it was stopped after {_TIMEOUT_SECONDS} s")
    return True


def main() -> int:
    """Parse arguments, print the table, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="the large workloads too (about twenty minutes)")
    parser.add_argument("--only", action="append", default=[], help="scenarios with this in their name")
    parser.add_argument("--budget", type=float, default=1.0, help="CPU seconds to improve a plan")
    parser.add_argument("--runs", type=int, default=_CORPUS_RUNS, help="of the reference on the corpus")
    parser.add_argument("--smoke", action="store_true", help="a few kept scenarios")
    arguments = parser.parse_args()
    reference = _reference_ready(arguments.smoke)
    plan(kept()[0], steps=1)  # imports and first calls are nobody's time
    print(HEAD, flush=True)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for row in corpus_rows(folder, arguments, reference):
            print(line(row), flush=True)
            bad += row.bad
        if reference and not arguments.smoke:
            for row in generated_rows(CASES, folder, arguments):
                print(line(row), flush=True)
                bad += row.bad
            bad += sum(row.bad for row in mixes(folder, arguments))
    if bad:
        print(f"{bad} scenarios with a lost pod, a broken rule or too dear a plan", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
