"""Random histories of disruption: pools of every policy and budget, workloads of every kind, and trouble.

An auditor that knows nothing of how the operator decides (`karpenter.testing.auditor`) judges every
disruption, eviction and deletion at its moment. After the trouble comes calm: all pods run, and then nothing
moves any more.
"""

import os
import time
from collections import Counter

import pytest

from karpenter.base.virtualtime import run_virtual
from karpenter.testing.dice import Dice
from karpenter.testing.disruptionhistory import history

SECONDS = float(os.environ.get("KARPENTER_SECONDS", "120"))
SOAK = os.environ.get("KARPENTER_SOAK") == "1"
FIRST = int(os.environ.get("KARPENTER_SEED", "0"))


def run(seed: int) -> Counter[str]:
    """Run one history, and say how to repeat it if it fails."""
    try:
        return run_virtual(history(seed, Dice.of_seed(f"disruption/{seed}")))
    except BaseException:
        print(f"\nto repeat: KARPENTER_SEED={seed} .venv/bin/pytest {__file__} -k repeat -m ''")
        raise


@pytest.mark.parametrize("seed", [8, 28, 34, 40] if FIRST == 0 else range(FIRST, FIRST + 4))  # quick ones
def test_short_histories_of_disruption(seed: int) -> None:
    """Budgets of pools and pods, do-not-disrupt and limits hold; all pods run again; then all rests."""
    run(seed)


@pytest.mark.skipif("KARPENTER_SEED" not in os.environ, reason="only to repeat one seed")
def test_repeat_one_seed() -> None:
    """The history of KARPENTER_SEED holds."""
    print(dict(run(FIRST)))


@pytest.mark.slow
def test_many_histories_of_disruption(capsys: pytest.CaptureFixture[str]) -> None:
    """As many histories as fit in KARPENTER_SECONDS (or 2000 with KARPENTER_SOAK=1) hold."""
    started, total, seed = time.monotonic(), Counter[str](), FIRST
    while (SOAK and seed < FIRST + 2000) or (not SOAK and time.monotonic() - started < SECONDS):
        total += run(seed)
        seed += 1
    with capsys.disabled():
        print(f"\n{seed - FIRST} histories from seed {FIRST}: {dict(total)}")
    assert seed > FIRST
