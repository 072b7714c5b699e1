"""How a pool's machines have lately done."""

import pytest

from karpenter.state.poolhealth import PoolHealth


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ("", None),
        ("+", True),
        ("-", True),
        ("--", False),
        ("+-", True),
        ("-+-", False),
        ("--++", False),
        ("--+++", True),
        ("++++-", True),
        ("++++--", False),
        ("------+++", True),
    ],
)
def test_two_failures_among_the_last_four_are_one_too_many(outcomes: str, verdict: bool | None) -> None:
    """Older outcomes are forgotten; nothing is said of a pool that has not tried."""
    health = PoolHealth()
    for outcome in outcomes:
        health.record("uid", outcome == "+")
    assert health.verdict("uid") is verdict
    assert health.verdict("other") is None


@pytest.mark.parametrize("verdict", [True, False, None])
def test_a_verdict_can_be_taken_over(verdict: bool | None) -> None:
    """Read back after a restart it is the same, and the next outcomes count from there."""
    health = PoolHealth()
    for _ in range(4):
        health.record("uid", verdict is False)
    health.set("uid", verdict)
    assert health.verdict("uid") is verdict
    health.record("uid", False)
    health.record("uid", False)
    assert health.verdict("uid") is False
