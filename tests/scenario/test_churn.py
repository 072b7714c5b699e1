"""The whole operator with random clusters whose workload stays as it is: they come to rest, and stay so."""

import os
import time

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.base.randomness import Random, seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.model.instancetype import InstanceType
from karpenter.testing.builders import an_instance_type
from karpenter.testing.fakeprovider import FakeCloud
from karpenter.testing.manifests import deployment, disruption_budget, node_class, pool
from karpenter.testing.movements import Movements
from karpenter.testing.world import World, world

SECONDS = float(os.environ.get("KARPENTER_SECONDS", "120"))
SOAK = os.environ.get("KARPENTER_SOAK") == "1"
FIRST = int(os.environ.get("KARPENTER_SEED", "0"))
HOUR = 3600.0
DAY = 24 * HOUR
PAYBACK = 2 * HOUR
"""Shorter than usual, so that it ends while somebody looks; restarts are as much cheaper."""
PLAIN = (
    f"--consolidation-payback={PAYBACK:.0f}s",
    f"--consolidation-restart-cost={PAYBACK / 12:.0f}s",
    "--disable-leader-election",
    "--disable-cluster-state-observability",
)
"""What a day does not need done every other second."""
SIZES = [("250m", "256Mi"), ("500m", "2Gi"), ("1", "1Gi"), ("2", "1Gi"), ("900m", "5Gi")]


async def _workload(w: World, rng: Random) -> None:
    """Fill a cluster, then take most of its pods away: from here on the workload stays as it is."""
    await w.apply([node_class(), pool(budgets=[{"nodes": rng.choice(["100%", "40%", "1"])}])])
    counts = {f"app-{number}": rng.randint(2, 16) for number in range(rng.randint(1, 5))}
    for app, count in counts.items():
        cpu, memory = rng.choice(SIZES)
        await w.apply(deployment(app, count, cpu=cpu, memory=memory))
        if rng.random() < 0.3:
            await w.apply(disruption_budget(app, maxUnavailable=1))
    await w.until_settled(within=900)
    for app, count in counts.items():
        await w.scale(app, max(1, rng.randint(count // 4, count)))


def _wobbled(kind: InstanceType, rng: Random) -> InstanceType:
    """Return the type at other prices."""
    factor = rng.uniform(0.75, 1.3)
    return replace(
        kind, offerings=tuple(replace(o, price=round(o.price * factor, 6)) for o in kind.offerings)
    )


def _cloud() -> FakeCloud:
    return FakeCloud(
        an_instance_type(f"{name}-{cores}", cpu=str(cores), memory=f"{per_core * cores}Gi", zones=["a"])
        for name, per_core in (("lean", 2), ("even", 4), ("rich", 8))
        for cores in (2, 4, 8)
    )


async def rests(seed: int, *, settling: float = 2 * PAYBACK, calm: float = DAY) -> int:
    """Live through one history of a constant workload; return how many nodes consolidation took."""
    rng = seeded(f"rest/{seed}")
    async with world(seed=seed, cloud=_cloud(), arguments=PLAIN) as w:
        seen = Movements(w.watchdog, PAYBACK)
        w.watchdog.then = seen.take
        await _workload(w, rng)
        nodes, before = len(await w.nodes()), seen.moves
        await w.wait(HOUR)
        await w.until_settled(within=HOUR)
        assert seen.moves - before <= 2 * nodes, f"{seen.moves - before} nodes were taken of {nodes}"
        await w.wait(settling)  # what was barred may be done once it has paid
        await w.until_settled(within=HOUR)
        assert seen.moves - before <= 3 * nodes, f"{seen.moves - before} nodes were taken of {nodes}"
        rested = w.clock.now()
        await w.wait(calm)
        assert seen.last_at <= rested, "claims came and went though nothing had changed"
        assert not seen.returns, seen.returns
        return seen.moves


async def wobbles(seed: int, *arguments: str) -> tuple[int, list[str]]:
    """Live through hours in which prices go up and down and operators die; return moves and returns."""
    rng = seeded(f"wobble/{seed}")
    cloud = _cloud()
    types = cloud.types
    async with world(seed=seed, cloud=cloud, arguments=(*PLAIN, *arguments)) as w:
        seen = Movements(w.watchdog, PAYBACK)
        w.watchdog.then = seen.take
        await _workload(w, rng)
        for _ in range(12):
            await w.wait(PAYBACK / 6)
            cloud.types = tuple(_wobbled(kind, rng) for kind in types)
            if rng.random() < 0.2:
                await w.restart_operator()
        await w.until_settled(within=HOUR)
        assert all(n.metadata.labels[labels.INSTANCE_TYPE] for n in await w.nodes())
        return seen.moves, seen.returns


def quiet(seed: int) -> int:
    """Live through both histories of a seed, and say how to repeat it if one fails."""
    try:
        moves = run_virtual(rests(seed))
        assert run_virtual(wobbles(seed))[1] == []
        return moves
    except BaseException:
        print(f"\nto repeat: KARPENTER_SEED={seed} .venv/bin/pytest {__file__} -k repeat -m ''")
        raise


def test_a_constant_workload_comes_to_rest() -> None:
    """A bounded number of nodes is taken; then no claim comes or goes any more."""
    run_virtual(rests(FIRST, settling=PAYBACK, calm=HOUR))


def test_prices_that_move_take_no_workload_to_and_fro() -> None:
    """Nothing is bought for a workload of a type that it left within the payback time, whoever remembers."""
    moves, returns = run_virtual(wobbles(FIRST + 4))
    assert returns == []
    assert moves


@pytest.mark.skipif("KARPENTER_SEED" not in os.environ, reason="only to repeat one seed")
def test_repeat_one_seed() -> None:
    """The histories of KARPENTER_SEED are quiet."""
    quiet(FIRST)


@pytest.mark.slow
def test_many_constant_workloads_come_to_rest() -> None:
    """As many as fit in KARPENTER_SECONDS (or 60 with KARPENTER_SOAK=1), at prices that stay or move."""
    started, seed, moves = time.monotonic(), FIRST, 0
    while (SOAK and seed < FIRST + 60) or (not SOAK and time.monotonic() - started < SECONDS):
        moves += quiet(seed)
        seed += 1
    free = "--consolidation-restart-cost=0s"
    assert run_virtual(wobbles(0, free))[1], "without the ledger they would go to and fro"
    print(f"{seed - FIRST} workloads from seed {FIRST}: {moves} nodes taken at constant prices")
    assert seed > FIRST
