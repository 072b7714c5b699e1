"""A day of a small cluster whose services follow the sun: what must hold in the end, and what moves cost."""

import pytest

from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.controllers.stages import KubeletLatencies
from karpenter.providers.kwok.catalogue import ec2_instance_types
from karpenter.testing.daybook import Daybook, Hour
from karpenter.testing.diurnal import day, live, objects
from karpenter.testing.world import world

LATENCIES = KubeletLatencies(node_boot=10.0, pod_start=5.0, pod_ready=10.0, pod_stop=2.0)


async def _day(*arguments: str, nodes: int, hours: float) -> list[Hour]:
    """Live through a day, check that all is well after it, and return it hour by hour."""
    of = day(1, nodes=nodes, hours=hours)
    async with world(catalogue="ec2", arguments=arguments, latencies=LATENCIES) as w:
        book = Daybook(w.clock.now, ec2_instance_types())
        w.watchdog.then = book.take
        await w.apply(objects(of, cores=8))
        await live(w, of, seed=1)
        told = list(book.hours)
        await w.until_settled(within=1800)
        claims = await w.claims()
        assert sorted(book.rates) == sorted(claim.metadata.uid for claim in claims)
        wanted = sum(team.wanted(of.hours, 0.0) for team in of.services)
        assert len(await w.pods()) == pytest.approx(wanted, rel=0.3)
        return told


def test_an_hour_of_the_night_ends_well() -> None:
    """Services shrink, jobs come and go: all pods run, on machines of which each has a Node and a pod."""
    first, *_ = run_virtual(_day(nodes=3, hours=1.0))
    assert first.usd > 0
    assert first.launched - first.gone == first.nodes > 0


@pytest.mark.slow
def test_a_day_costs_fewer_evictions_with_the_ledger() -> None:
    """Moves that have to pay for their restarts are fewer, and save nearly as much."""
    paid = run_virtual(_day(nodes=6, hours=24.0))
    free = run_virtual(_day("--consolidation-restart-cost=0s", nodes=6, hours=24.0))
    evicted = sum(h.evictions for h in paid), sum(h.evictions for h in free)
    usd = sum(h.usd for h in paid), sum(h.usd for h in free)
    print(f"evictions {evicted}, USD {usd}, longest wait {max(h.longest_wait for h in paid):.0f} s")
    assert evicted[0] <= evicted[1]
    assert usd[0] <= 1.1 * usd[1]
    assert max(hour.longest_wait for hour in paid) < 300
