"""Random clusters whose workload stays as it is: consolidation comes to rest, and nothing goes to and fro."""

import os
import time

import pytest

from karpenter.disruption.restarts import Restarts
from karpenter.testing.churn import Town, restart_cost
from karpenter.testing.dice import Dice

SECONDS = float(os.environ.get("KARPENTER_SECONDS", "60"))
SOAK = os.environ.get("KARPENTER_SOAK") == "1"
FIRST = int(os.environ.get("KARPENTER_SEED", "0"))
LEDGER = Restarts()
WOBBLE = 25
_ROUNDING = 1e-6


def rests(seed: int) -> int:
    """Consolidate one cluster at prices that stay; return the number of commands."""
    town = Town(Dice.of_seed(f"churn/{seed}"), LEDGER)
    commands = _paying(town)
    town.pass_time(1)
    assert not town.settle(), "something was done though nothing had changed"
    for _ in range(2):
        town.pass_time(LEDGER.payback_hours)  # what was barred until now may be done, if it pays
        commands += _paying(town)
    town.pass_time(LEDGER.payback_hours)
    assert not town.settle(), "it goes on and on"
    assert not town.returns, town.returns
    return commands


def _paying(town: Town) -> int:
    """Consolidate until nothing is left; restarts may cost what is saved within the payback time."""
    before = town.state.cost
    steps = town.settle()
    saved = before - town.state.cost
    assert restart_cost(steps, LEDGER) <= LEDGER.payback_hours * saved + _ROUNDING
    return len(steps)


def wobbles(seed: int, restarts: Restarts, hours: int = 8) -> list[str]:
    """Consolidate one cluster at prices that move every hour; return what went to and fro."""
    town = Town(Dice.of_seed(f"wobble/{seed}"), restarts)
    town.settle()
    for _ in range(hours):
        town.pass_time(1, wobble=WOBBLE)
        town.settle()
    return town.returns


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 8))
def test_a_constant_workload_comes_to_rest(seed: int) -> None:
    """All restarts together cost no more than what they save in twelve hours; then nothing moves any more."""
    rests(seed)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 4))
def test_prices_that_move_take_no_pods_to_and_fro(seed: int) -> None:
    """Nothing is bought for a pod of a type that it left less than twelve hours ago."""
    assert wobbles(seed, LEDGER) == []


def test_without_the_ledger_they_would() -> None:
    """So that the test above means something."""
    assert any(wobbles(seed, Restarts(hours=0.0, payback_hours=12.0)) for seed in (1, 2))


@pytest.mark.slow
def test_many_clusters_come_to_rest() -> None:
    """As many as fit in KARPENTER_SECONDS (or 2000 with KARPENTER_SOAK=1), at prices that stay or move."""
    started, seed, commands = time.monotonic(), FIRST, 0
    while (SOAK and seed < FIRST + 2000) or (not SOAK and time.monotonic() - started < SECONDS):
        try:
            commands += rests(seed)
            assert wobbles(seed, LEDGER) == []
        except BaseException:
            print(f"\nto repeat: KARPENTER_SEED={seed} .venv/bin/pytest {__file__}")
            raise
        seed += 1
    print(f"{seed - FIRST} clusters from seed {FIRST}: {commands} commands at constant prices")
    assert seed > FIRST
