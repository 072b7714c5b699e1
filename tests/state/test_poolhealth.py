"""How a pool's machines have lately done."""

import pytest

from karpenter.state.poolhealth import DOUBTED_SECONDS, PoolHealth


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
        health.record("uid", outcome == "+", now=0.0)
    assert health.verdict("uid") is verdict
    assert health.verdict("other") is None


@pytest.mark.parametrize("verdict", [True, False, None])
def test_a_verdict_can_be_taken_over(verdict: bool | None) -> None:
    """Read back after a restart it is the same, and the next outcomes count from there."""
    health = PoolHealth()
    for _ in range(4):
        health.record("uid", verdict is False, now=0.0)
    health.set("uid", verdict)
    assert health.verdict("uid") is verdict
    health.record("uid", False, now=0.0)
    health.record("uid", False, now=0.0)
    assert health.verdict("uid") is False


def test_an_unhealthy_pool_is_doubted_for_an_hour_after_each_failure() -> None:
    """Then it is tried again; a verdict that was read back counts from when it was found."""
    health = PoolHealth()
    health.record("uid", False, now=0.0)
    assert not health.is_doubted("uid", 1.0)
    health.record("uid", False, now=100.0)
    assert health.is_doubted("uid", 100.0 + DOUBTED_SECONDS - 1)
    assert not health.is_doubted("uid", 100.0 + DOUBTED_SECONDS)
    health.set("uid", False, since=500.0)
    assert health.is_doubted("uid", 500.0 + DOUBTED_SECONDS - 1)
    health.set("uid", None)
    assert not health.is_doubted("uid", 501.0)
