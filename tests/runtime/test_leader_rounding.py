"""Losing the Lease is noticed whatever the clock shows: rounding must not hold it up."""

import pytest

from karpenter.base.clock import LoopClock
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.bootstrap import ensure_system_objects
from karpenter.embedded.inprocess import InProcessTransport
from karpenter.embedded.store import Store
from karpenter.kube.client import Client
from karpenter.runtime.leader import LeaderElector, LeadershipLost
from karpenter.testing.faults import Faults, FaultyTransport


class _CountingClock(LoopClock):
    """Fails instead of sleeping for ever without time going on."""

    sleeps = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        assert self.sleeps < 200, f"no time passes: sleeps {seconds!r} at {self.monotonic()!r}"
        await super().sleep(seconds)


async def _lose(start: float) -> float:
    """Lead from `start`, lose the connection at once; return how long it took to give up."""
    clock = _CountingClock()
    await clock.sleep(start)
    server = ApiServer(Store(clock, seeded(1)))
    await ensure_system_objects(Client(InProcessTransport(server)))
    clock.sleeps = 0
    transport = FaultyTransport(InProcessTransport(server), Faults(), clock=clock, rng=seeded(1))
    elector = LeaderElector(
        Client(transport), clock=clock, rng=seeded(1), identity="me", name="lease", namespace="default"
    )

    async def lead() -> None:
        transport.cut()
        await LoopClock().sleep(1000)

    began = clock.monotonic()
    with pytest.raises(LeadershipLost):
        await elector.run(lead)
    return clock.monotonic() - began


def test_a_lost_connection_ends_leadership_at_the_deadline() -> None:
    """From any of many starting times, leadership is over ten seconds after the last good renewal."""
    rng = seeded(3)
    for _ in range(200):
        assert run_virtual(_lose(rng.uniform(0.0, 1000.0))) == pytest.approx(10.0, abs=0.01)
