"""The small ledgers beside the rows."""

from karpenter.state.podtimes import PodLedger


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
