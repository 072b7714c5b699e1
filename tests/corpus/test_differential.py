"""Random problems for the original's scheduler and for ours (needs Go; `make soak` takes longer over it)."""

import contextlib
import io
import json
import os
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest
from benchmarks.reference.judge import broken_rules
from benchmarks.reference.ours import plan
from benchmarks.reference.program import PROGRAM, schedule

from karpenter.testing.dice import Dice
from karpenter.testing.gobinary import BuildFailed
from karpenter.testing.problems import Scale, a_random_problem
from karpenter.testing.scenarios import scenario_of

_SECONDS = 600.0 if os.environ.get("KARPENTER_SOAK") else float(os.environ.get("KARPENTER_SECONDS", "60")) / 2
_STEPS = 40
_LOST_AT_MOST = 0.04
_WRONG_AT_MOST = 0.01
_KINDS = {
    "calm": Scale(company=False, limited=True),
    "hard": Scale(preferences=False),
    "limited": Scale(limited=True),
}


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    try:
        PROGRAM.binary()
    except BuildFailed as error:
        pytest.skip(f"the reference cannot be built: {error}")


def judged(scale: Scale, seed: str, folder: Path) -> str:
    """Return how our plan for one random problem compares: `equal`, `better`, `lost`, `wrong` or `unruly`.

    `unruly`: the reference's plan breaks rules by our checker, so that nothing can be said.
    """
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario_of(a_random_problem(Dice.of_seed(seed), scale), seed)))
    with contextlib.redirect_stderr(io.StringIO()):
        mine = plan(path, steps=_STEPS)
    if mine.wrong:
        print(f"{seed}: {mine.wrong}")
        return "wrong"
    theirs = schedule(path, names=True)
    if broken_rules(mine.problem, theirs.raw):
        return "unruly"
    if mine.lost(theirs.left_out) and len(mine.left_out) >= len(theirs.left_out):
        return "lost"
    return "better" if len(mine.left_out) < len(theirs.left_out) else "equal"


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_random_problems(tmp_path: Path, kind: str) -> None:
    """Hardly any pod that the original places by the rules is left out.

    What remains are pods whose place depends on who is bound first: ours promises only what holds whoever is.
    That no rule is broken is the business of tests/property; here it must not hide.
    """
    counts: Counter[str] = Counter()
    lost = []
    end = monotonic() + _SECONDS / len(_KINDS)
    seed = 0
    while monotonic() < end:
        seed += 1
        found = judged(_KINDS[kind], f"differential/{kind}/{seed}", tmp_path)
        counts[found] += 1
        if found == "lost":
            lost.append(seed)
    print(f"{kind}: {dict(sorted(counts.items()))}; lost by seed: {lost[:20]}")
    assert counts["wrong"] <= _WRONG_AT_MOST * counts.total() + 1
    assert counts["lost"] <= _LOST_AT_MOST * counts.total() + 2
    assert counts["better"] + counts["equal"] > counts.total() / 2
