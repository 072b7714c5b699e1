"""How long a search may go on."""

from karpenter.controllers.disruption.patience import Patience
from karpenter.controllers.disruption.underway import timeout_seconds
from karpenter.model.problem import Budget


def test_steps_are_counted() -> None:
    """Two steps are two steps; the third is refused, and that is remembered."""
    patience = Patience(Budget(steps=2), lambda: 0.0)
    assert [patience.more(), patience.more(), patience.ran_out] == [True, True, False]
    assert not patience.more()
    assert patience.ran_out


def test_seconds_run_from_the_start() -> None:
    """Until the time has passed there is always one more step."""
    now = [100.0]
    patience = Patience(Budget(seconds=5.0), lambda: now[0])
    assert patience.more()
    now[0] = 105.0
    assert not patience.more()


def test_without_a_budget_it_never_ends() -> None:
    """No limit, no end."""
    assert all(Patience(Budget(), lambda: 1e9).more() for _ in range(1000))


def test_replacements_have_ten_minutes_to_an_hour() -> None:
    """80 ms for each command underway, within these bounds."""
    assert [timeout_seconds(n) for n in (1, 7500, 10_000, 40_000, 80_000)] == [600, 600, 800, 3200, 3600]
