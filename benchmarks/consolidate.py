"""Consolidation to a fixed point, beside the original's on the same clusters.

    python benchmarks/consolidate.py [--smoke] [--only NAME]... [--ask] [--record] [--large] [--methods LIST]

Clusters were provisioned by the original and then lost half of their pods (`reference/clusters.py`). They
are kept in `clusters/`, with what its consolidation made of them, so that Go is not needed; `--ask` asks
it anew, in the same run, and `--record` keeps what it then says. Each is consolidated twice: with moves
free (all nodes of a pool at once, restarts cost nothing) and within the default budget (a tenth of them a
round). Rows: nodes and USD per hour before, the lower bound of what the pods need, then of both sides:
nodes and cost in the end, commands, pods evicted, evictions per USD per hour saved (of ours also `match`:
until it was as cheap as the original is in the end), CPU seconds of all rounds, and of ours the last
round, which found nothing.

`gap` is how far ours ends above the bound; `!` marks what misses a target: a cost over 0.5 % above the
original's, more evictions per dollar, less than 10 times its speed. Exit code 1 for a cost above, or a search
that does not end. `--large`: 2,000 nodes and 40,000 pods, made up here.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
from benchmarks.reference.clusters import (
    BUDGETS,
    CLUSTERS,
    Budgets,
    Cluster,
    Recorded,
    ask,
    record,
    recorded,
    write,
)
from benchmarks.reference.consolidated import Ours, asked, bound, consolidate
from benchmarks.reference.large import large
from benchmarks.reference.program import Converged

_DEARER = 0.005
_FASTER = 10.0
_GAP_FREE = 0.03
_GAP_PROVISIONED = 0.05
_SMOKE = ("small-generic-1",)
_ASK_SECONDS = 240


class Row(msgspec.Struct, frozen=True):
    """One cluster, consolidated by both."""

    cluster: Cluster
    budgets: Budgets
    mine: Ours
    theirs: Converged | None
    bound: float
    """USD per hour."""

    @property
    def gap(self) -> float:
        """How far ours is above the bound, as a share of it."""
        return self.mine.cost_after / self.bound - 1

    @property
    def saved(self) -> float | None:
        """Which share of the original's cost ours does without."""
        return 1 - self.mine.cost_after / self.theirs.cost_after if self.theirs else None

    @property
    def dearer(self) -> bool:
        """Whether ours ends dearer than it may."""
        return self.saved is not None and self.saved < -_DEARER

    @property
    def to_match(self) -> float | None:
        """Pods evicted per dollar until ours was as cheap as the original in the end."""
        if self.theirs is None or not self.theirs.evicted:
            return None
        evicted, dollars = self.mine.until(self.theirs.cost_after * (1 + _DEARER))
        return evicted / max(dollars, 1e-9)

    @property
    def restless(self) -> bool:
        """Whether it takes more evictions per dollar to be as cheap, where restarts count."""
        if self.budgets == "free" or self.to_match is None or self.theirs is None:
            return False
        return self.to_match > per_dollar(self.theirs)

    @property
    def faster(self) -> float | None:
        """How many times the original's time ours goes into."""
        return self.theirs.user_seconds / max(self.mine.seconds, 1e-9) if self.theirs else None

    @property
    def bad(self) -> bool:
        """Whether something is wrong that no load of the machine excuses."""
        return self.dearer or not self.mine.converged


def per_dollar(found: Ours | Converged) -> float:
    """Return pods evicted per USD per hour saved; 0 when nothing moved."""
    return found.evicted / max(found.cost_before - found.cost_after, 1e-9) if found.evicted else 0.0


HEAD = (
    f"{'':34} {'before':^13} {'bound':>8} | {'original':^45} | {'ours':^61} |\n"
    f"{'cluster':34} {'nodes':>5} {'$/h':>7} {'$/h':>8} | "
    f"{'nodes':>5} {'$/h':>8} {'cmds':>4} {'evicted':>7} {'per $':>7} {'cpu s':>8} | "
    f"{'nodes':>5} {'$/h':>8}  {'cmds':>4} {'evicted':>7} {'per $':>7} {'match':>6}  {'cpu s':>7} {'last':>6}"
    f" | {'saved':>7} {'gap':>6} {'faster':>8}"
)


def line(row: Row) -> str:
    """Return a row of the table."""
    mine, theirs = row.mine, row.theirs
    original = " " * 44
    if theirs is not None:
        original = (
            f"{theirs.nodes_after:5} {theirs.cost_after:8.3f} {theirs.commands:4} {theirs.evicted:7} "
            f"{per_dollar(theirs):7.1f} {theirs.user_seconds:7.2f}{' ' if theirs.converged else '+'}"
        )
    saved = "" if row.saved is None else f"{100 * row.saved:+.2f} %"
    match = "" if row.to_match is None else f"{row.to_match:.1f}"
    faster = "" if row.faster is None else f"{row.faster:.1f} x{'!' if row.faster < _FASTER else ' '}"
    return (
        f"{row.cluster.name + ', ' + row.budgets:34} {mine.nodes_before:5} {mine.cost_before:7.2f} "
        f"{row.bound:8.3f} | {original:45} | "
        f"{mine.nodes_after:5} {mine.cost_after:8.3f}{'!' if row.dearer else ' '} {mine.commands:4} "
        f"{mine.evicted:7} {per_dollar(mine):7.1f} {match:>6}{'!' if row.restless else ' '} "
        f"{mine.seconds:7.2f} {mine.idle_seconds:6.2f} | {saved:>7} {100 * row.gap:4.1f} % {faster:>8}"
    )


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield all clusters that are wanted, by both budgets."""
    methods = tuple(name for name in arguments.methods.split(",") if name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        for cluster in CLUSTERS:
            if not _wanted(cluster, arguments):
                continue
            answer = _answer(cluster, arguments)
            for budgets in BUDGETS:
                if arguments.smoke and budgets != "free":
                    continue
                write(cluster, path, budgets)
                question = asked(path)
                mine = consolidate(question, free=budgets == "free", methods=methods)
                theirs = answer.within(budgets) if answer is not None else None
                yield Row(cluster, budgets, mine, theirs, bound(question))


def _answer(cluster: Cluster, arguments: argparse.Namespace) -> Recorded | None:
    if arguments.record:
        return record(cluster, seconds=_ASK_SECONDS)
    return ask(cluster, seconds=_ASK_SECONDS) if arguments.ask else recorded(cluster)


def _wanted(cluster: Cluster, arguments: argparse.Namespace) -> bool:
    if arguments.smoke:
        return cluster.name in _SMOKE
    return not arguments.only or any(part in cluster.name for part in arguments.only)


def told(found: list[Row]) -> None:
    """Print the medians that targets are about."""
    compared = [row for row in found if row.saved is not None and not row.cluster.provisioned_only]
    if compared:
        saved = median(row.saved for row in compared if row.saved is not None)
        print(f"median saving against the original: {100 * saved:+.2f} % (wanted: more than 0)")
        quicker = median(row.faster for row in compared if row.faster is not None)
        print(f"median speed: {quicker:.1f} x (wanted: {_FASTER:.0f} x)")
        held = [row for row in compared if row.budgets != "free"]
        calm = sum(not row.restless for row in held)
        print(f"as cheap with no more evictions per dollar, within budgets: {calm} of {len(held)}")
        whole = sum(r.theirs is not None and per_dollar(r.mine) <= per_dollar(r.theirs) for r in held)
        print(f"no more evictions per dollar in the end, within budgets: {whole} of {len(held)}")
    provisioned = [row.gap for row in found if row.cluster.provisioned_only]
    for name, limit, gaps in (
        ("moves free", _GAP_FREE, [r.gap for r in compared if r.budgets == "free"]),
        ("provisioned on all of EC2", _GAP_PROVISIONED, provisioned),
    ):
        if gaps:
            print(f"median gap, {name}: {100 * median(gaps):.1f} % (wanted: {100 * limit:.0f} %)")


def main() -> int:
    """Parse arguments, print the table, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="clusters with this in their name")
    parser.add_argument("--ask", action="store_true", help="ask the original in this run (takes Go)")
    parser.add_argument("--record", action="store_true", help="and keep what it says")
    parser.add_argument("--methods", default="", help="of ours, by commas; the usual ones unless given")
    parser.add_argument("--large", action="store_true", help="2,000 nodes and 40,000 pods, nothing else")
    parser.add_argument("--smoke", action="store_true", help="the smallest cluster")
    arguments = parser.parse_args()
    if arguments.large:
        return large(tuple(name for name in arguments.methods.split(",") if name))
    print(HEAD, flush=True)
    found = []
    for row in rows(arguments):
        print(line(row), flush=True)
        found.append(row)
    told(found)
    bad = sum(row.bad for row in found)
    if bad:
        print(f"{bad} clusters end too dear, or not at all", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
