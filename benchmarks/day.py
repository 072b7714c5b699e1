"""A day of a cluster whose services follow the sun: with moves that have to pay, and without.

    python benchmarks/day.py [--nodes 20] [--hours 24] [--cores 8] [--ledger on|off|both] [--smoke]

The whole operator on the embedded cluster under virtual time, EC2's catalogue. `off`: restarts cost nothing.
Every hour: pods and nodes at its end, USD, pods evicted by the operator, machines launched and gone, pods
created, the mean and the longest time that a pod waited for its node. `CPU s` is this process's own.
"""

import argparse
import asyncio
import itertools
import time
from collections import Counter
from typing import NamedTuple

import structlog

from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.controllers.stages import KubeletLatencies
from karpenter.providers.kwok.catalogue import ec2_instance_types
from karpenter.testing.daybook import Daybook, Hour
from karpenter.testing.diurnal import day, live, objects
from karpenter.testing.world import World, world

LATENCIES = KubeletLatencies(node_boot=10.0, pod_start=5.0, pod_ready=10.0, pod_stop=2.0)
ARGUMENTS = {"on": (), "off": ("--consolidation-restart-cost=0s",)}


class Run(NamedTuple):
    """What a day came to."""

    hours: list[Hour]
    cpu_seconds: float
    moves: Counter[str]
    """Nodes disrupted, by reason."""
    left: str
    """What was not well in the end."""


async def _live(nodes: int, hours: float, cores: int, seed: int, ledger: str) -> Run:
    began = time.process_time()
    of = day(seed, nodes=nodes, hours=hours)
    async with world(
        seed=seed, catalogue="ec2", arguments=ARGUMENTS[ledger], latencies=LATENCIES, watched=False
    ) as w:
        book = Daybook(w.clock.now, ec2_instance_types())
        w.store.journal = book.take
        await w.apply(objects(of, cores=cores))
        telling = asyncio.create_task(_tell(book, w))
        await live(w, of, seed=seed)
        book.advance()
        telling.cancel()
        told = book.hours if hours % 1 else book.hours[: int(hours)]
        left = await w.trouble()
        return Run(told, time.process_time() - began, _moves(w.operator.metrics.render().decode()), left)


def _moves(metrics: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in metrics.splitlines():
        if line.startswith("karpenter_nodeclaims_disrupted_total{"):
            labels, _, value = line.rpartition(" ")
            reason = labels.partition('reason="')[2].partition('"')[0]
            found[reason] += int(float(value))
    return found


async def _tell(book: Daybook, w: World) -> None:
    """Print each hour when it is over."""
    print("hour  pods nodes    $/h evicted launched  gone starts  wait s (mean, longest)   writes    CPU s")
    before = time.process_time()
    for number in itertools.count():
        await w.wait(3600)
        book.advance()
        hour, now = book.hours[number], time.process_time()
        print(
            f"{number:4d} {hour.pods:5d} {hour.nodes:5d} {hour.usd:6.2f} {hour.evictions:7d} "
            f"{hour.launched:8d} {hour.gone:5d} {hour.starts:6d} "
            f"{hour.waiting_seconds / max(1, hour.starts):12.1f} {hour.longest_wait:8.0f} "
            f"{hour.writes.total():8d} {now - before:8.1f}",
            flush=True,
        )
        before = now


def _totals(runs: dict[str, Run]) -> None:
    print("ledger        $ evicted launched  gone starts  waited pod-h   longest s  disrupted      CPU s")
    for ledger, run in runs.items():
        hours = run.hours
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(run.moves.items()))
        print(
            f"{ledger:6s} {sum(h.usd for h in hours):8.2f} {sum(h.evictions for h in hours):7d} "
            f"{sum(h.launched for h in hours):8d} {sum(h.gone for h in hours):5d} "
            f"{sum(h.starts for h in hours):6d} {sum(h.waiting_seconds for h in hours) / 3600:13.1f} "
            f"{max(h.longest_wait for h in hours):11.0f}  {reasons}  {run.cpu_seconds:8.1f}"
        )
    for ledger, run in runs.items():
        if run.left:
            print(f"not well in the end, ledger {ledger}: {run.left}")


def main() -> None:
    """Live the day with the ledger on, off or both, and print what it came to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=20, help="about how many at the busiest hour")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--cores", type=int, default=8, help="of the largest machine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", choices=("on", "off", "both"), default="both")
    parser.add_argument("--smoke", action="store_true", help="5 nodes for an hour")
    arguments = parser.parse_args()
    nodes, hours = (5, 1.0) if arguments.smoke else (arguments.nodes, arguments.hours)
    structlog.configure(processors=[_drop])
    runs: dict[str, Run] = {}
    for ledger in ("on", "off") if arguments.ledger == "both" else (arguments.ledger,):
        print(f"-- ledger {ledger}, {nodes} nodes, {hours:g} h")
        runs[ledger] = run_virtual(_live(nodes, hours, arguments.cores, arguments.seed, ledger))
    print()
    _totals(runs)


def _drop(*_: object) -> dict[str, object]:
    raise structlog.DropEvent


if __name__ == "__main__":
    main()
