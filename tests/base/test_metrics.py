"""Metrics: filled when they are read."""

from karpenter.base.metrics import Metrics


def test_what_is_dear_is_filled_when_it_is_read() -> None:
    """Neither before, nor for longer than it was asked for."""
    metrics = Metrics()
    gauge, reads = metrics.gauge("things", "Things."), [0]

    def fill() -> None:
        reads[0] += 1
        gauge.set(7)

    with metrics.filled_by(fill):
        assert reads == [0]
        assert b"\nthings 7.0\n" in metrics.render()
        assert metrics.registry.get_sample_value("things") == 7.0
        assert reads == [2]
    metrics.render()
    assert reads == [2]
