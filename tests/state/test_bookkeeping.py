"""The small ledgers beside the rows."""

from karpenter.state.podtimes import PodLedger
from karpenter.state.poolhealth import PoolHealth


def test_the_first_decision_counts_from_the_first_sight() -> None:
    """Later sights and decisions do not move it."""
    ledger = PodLedger()
    ledger.acknowledge("a", 10.0)
    ledger.acknowledge("a", 20.0)
    assert ledger.undecided(25.0) == {"a": 15.0}
    assert ledger.decided("a", 30.0, placed=False) == 20.0
    assert ledger.decided("a", 40.0, placed=True, healthy_pool=True) is None
    times = ledger.get("a")
    assert times is not None
    assert (times.schedulable, times.healthy_pool) == (40.0, 40.0)


def test_a_failed_decision_takes_back_the_good_one() -> None:
    """Schedulable since means: without a break."""
    ledger = PodLedger()
    ledger.decided("a", 1.0, placed=True, healthy_pool=True)
    ledger.decided("a", 2.0, placed=False)
    times = ledger.get("a")
    assert times is not None
    assert (times.schedulable, times.healthy_pool) == (None, None)
    ledger.forget(["a"])
    assert ledger.get("a") is None


def test_two_failures_of_four_make_a_pool_unhealthy() -> None:
    """One is bad luck; good outcomes push failures out of memory."""
    health = PoolHealth()
    assert health.verdict("u") is None
    health.record("u", False)
    assert health.verdict("u") is True
    health.record("u", False)
    assert health.verdict("u") is False
    for _ in range(3):
        health.record("u", True)
    assert health.verdict("u") is True
    health.set("u", False)
    assert health.verdict("u") is False
    health.set("u", None)
    assert health.verdict("u") is None
