"""The kept scenarios: our plans beside what the original's scheduler made of them (recorded: no Go)."""

from pathlib import Path

import pytest
from benchmarks.reference.cases import CORPUS, kept
from benchmarks.reference.ours import Ours, plan
from benchmarks.reference.record import read_recorded

_STEPS = 200
_DEARER = 1.001
_plans: dict[str, Ours] = {}


def planned(scenario: Path) -> Ours:
    """Return our plans for a scenario, made once."""
    if scenario.stem not in _plans:
        _plans[scenario.stem] = plan(scenario, steps=_STEPS)
    return _plans[scenario.stem]


@pytest.mark.parametrize("scenario", kept(), ids=lambda path: path.stem)
def test_every_pod_that_the_reference_places_is_placed(scenario: Path) -> None:
    """We leave out no pod that the original has a place for by the rules, and our plan keeps them all."""
    mine, theirs = planned(scenario), read_recorded(scenario)
    assert not mine.wrong
    if not theirs.broken_rules:
        assert mine.lost(theirs.unschedulable) == 0


@pytest.mark.parametrize("scenario", kept(), ids=lambda path: path.stem)
def test_no_plan_is_dearer_than_the_reference(scenario: Path) -> None:
    """Ours costs at most 0.1 % above the original's median, if that keeps the rules and places as many."""
    mine, theirs = planned(scenario), read_recorded(scenario)
    if len(mine.left_out) >= theirs.fewest_unschedulable and not theirs.broken_rules:
        assert mine.improved.cost <= theirs.median_new_nodes_cost_per_hour * _DEARER
    assert mine.improved.cost <= mine.first.cost + 1e-9


def test_every_scenario_has_a_recorded_answer() -> None:
    """Nobody adds a scenario without asking the original, nor keeps an answer without its scenario."""
    answers = {path.name.removesuffix(".reference.json") for path in CORPUS.glob("*.reference.json")}
    assert answers == {path.stem for path in kept()}


@pytest.mark.parametrize(
    ("scenario", "left_out"),
    [
        ("spread-into-dead-zones", 0),
        ("limits-to-the-last-core", 0),
        ("limits-of-nodes", 3),
        ("daemons-with-alternatives", 0),
        ("ports-of-sidecars", 0),
        ("nodes-by-name", 0),
        ("two-reservations", 0),
    ],
)
def test_where_the_reference_fails(scenario: str, left_out: int) -> None:
    """Pods that the original leaves out, or puts where they cannot run, have a place if there is one."""
    mine, theirs = planned(CORPUS / f"{scenario}.yaml"), read_recorded(CORPUS / f"{scenario}.yaml")
    assert len(mine.left_out) == left_out
    assert theirs.broken_rules or theirs.most_unschedulable > left_out
