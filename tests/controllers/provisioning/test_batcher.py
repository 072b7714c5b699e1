"""When a batch is full."""

import asyncio

import pytest

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.provisioning.batcher import Batcher


@pytest.mark.parametrize(
    ("triggers", "closes_at"),
    [
        ([(0.0, "a")], 1.0),
        ([(5.0, "a")], 6.0),
        ([(0.0, "a"), (0.9, "b")], 1.9),
        ([(0.0, "a"), (0.9, "a")], 1.0),
        ([(0.5 * i, f"p{i}") for i in range(40)], 10.0),
    ],
    ids=["alone", "later", "a second prolongs", "the same does not", "never longer than the maximum"],
)
def test_a_window_closes(triggers: list[tuple[float, str]], closes_at: float) -> None:
    """One idle second after the last news, ten seconds after the first at the latest."""

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        batcher = Batcher(idle_seconds=1.0, max_seconds=10.0)
        for when, element in triggers:
            loop.call_later(when, batcher.trigger, element)
        await batcher.wait()
        return loop.time()

    assert run_virtual(scenario()) == pytest.approx(closes_at)


def test_what_comes_after_a_window_opens_the_next() -> None:
    """The same element counts again."""

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        batcher = Batcher(idle_seconds=1.0, max_seconds=10.0)
        batcher.trigger("a")
        await batcher.wait()
        batcher.trigger("a")
        await batcher.wait()
        return loop.time()

    assert run_virtual(scenario()) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("triggers", "lulls"),
    [
        ([0.0], [0.5]),
        ([0.0, 0.4], [0.9]),
        ([0.0, 0.7], [0.5, 1.2]),
        ([0.4 * i for i in range(40)], []),
    ],
    ids=["alone", "soon after", "late", "without a pause"],
)
def test_a_lull_is_told_halfway_through_the_idle_time(triggers: list[float], lulls: list[float]) -> None:
    """Whenever nothing has come for half a second; a window that fills all the time has none."""

    async def scenario() -> list[float]:
        loop = asyncio.get_running_loop()
        batcher = Batcher(idle_seconds=1.0, max_seconds=10.0)
        told: list[float] = []
        for number, when in enumerate(triggers):
            loop.call_later(when, batcher.trigger, f"p{number}")
        await batcher.wait(lambda: told.append(loop.time()))
        return told

    assert run_virtual(scenario()) == pytest.approx(lulls)
