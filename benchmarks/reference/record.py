"""Write down what the reference makes of each scenario of the corpus, for the tests to compare with.

    python benchmarks/reference/record.py [NAME...]

`corpus/NAME.yaml` gets `corpus/NAME.reference.json`. The reference draws lots, so it is asked several times
and the median counts.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec
from benchmarks.reference.cases import kept, write_complete
from benchmarks.reference.judge import broken_rules
from benchmarks.reference.ours import plan
from benchmarks.reference.program import schedule, version

RUNS = 9
_LISTED_RUNS = 3


class Recorded(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The reference's answer, as it is kept."""

    reference: str
    """Which release."""
    runs: int
    median_nodes: float
    median_new_nodes_cost_per_hour: float
    costs: list[float]
    """All different ones, sorted."""
    fewest_unschedulable: int
    """Pods without a place in the run that has the fewest; only runs like that count for nodes and costs."""
    most_unschedulable: int
    unschedulable: list[str]
    """Pods that had no place in any of the runs that list them, sorted."""
    broken_rules: list[str]
    """What our checker has against the first of these plans, sorted."""


def recorded_path(scenario: Path) -> Path:
    """Return where the answer to a scenario is kept."""
    return scenario.with_suffix(".reference.json")


def read_recorded(scenario: Path) -> Recorded:
    """Return the kept answer to a scenario."""
    return msgspec.json.decode(recorded_path(scenario).read_bytes(), type=Recorded)


def record(scenario: Path) -> Recorded:
    """Ask the reference."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.json"
        write_complete(scenario, path)
        several = schedule(path, repeat=RUNS)
        answers = [schedule(path, names=True) for _ in range(_LISTED_RUNS)]
        broken = broken_rules(plan(path, steps=1).problem, answers[0].raw)
    return Recorded(
        reference=f"sigs.k8s.io/karpenter {version()}",
        runs=RUNS,
        median_nodes=median(several.nodes),
        median_new_nodes_cost_per_hour=round(median(several.costs), 6),
        fewest_unschedulable=min(several.left_out_counts),
        most_unschedulable=max(several.left_out_counts),
        costs=sorted({round(cost, 6) for cost in several.costs}),
        unschedulable=sorted(set.intersection(*(set(answer.left_out) for answer in answers))),
        broken_rules=sorted(set(broken)),
    )


def main() -> None:
    """Record the scenarios that are named, or all."""
    for scenario in kept():
        if not sys.argv[1:] or scenario.stem in sys.argv[1:]:
            answer = record(scenario)
            text = msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
            recorded_path(scenario).write_text(text + "\n")
            cost, left = answer.median_new_nodes_cost_per_hour, len(answer.unschedulable)
            print(f"{scenario.stem}: {answer.median_nodes:g} nodes, ${cost}/h, {left} left out", flush=True)
            for rule in answer.broken_rules:
                print(f"  breaks a rule: {rule}")


if __name__ == "__main__":
    main()
