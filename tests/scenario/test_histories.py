"""Random histories of the whole operator: workloads change, it is killed, requests fail; all ends well.

A watchdog looks at every write (`karpenter.testing.watchdog`). After the trouble comes calm, and then all is
to be as if there had been none. A seed that fails prints the command to repeat it.
"""

import os
import time
from collections import Counter

import pytest

from karpenter.base.randomness import Random, seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import InsufficientCapacity
from karpenter.model.pods import requests
from karpenter.testing.fakeprovider import FakeCloud
from karpenter.testing.faults import Faults
from karpenter.testing.manifests import daemon_set, deployment, disruption_budget, node_class, pool
from karpenter.testing.world import World, world

SECONDS = float(os.environ.get("KARPENTER_SECONDS", "120"))
SOAK = os.environ.get("KARPENTER_SOAK") == "1"
FIRST = int(os.environ.get("KARPENTER_SEED", "0"))
CALM_SECONDS = 1800.0
"""Longer than a machine may take to register: one whose Node is deleted before that is given up only then."""
SIZES = [("250m", "256Mi"), ("500m", "2Gi"), ("1", "1Gi"), ("2", "1Gi"), ("3500m", "6Gi")]
ON_DEMAND = {"karpenter.sh/capacity-type": "on-demand"}
APPS = ("web", "db", "job", "api")


async def _change(w: World, rng: Random) -> None:
    """Change the workload as some user might."""
    app, count = rng.choice(APPS), rng.choice([0, 1, 3, 8, 20])
    cpu, memory = rng.choice(SIZES)
    where = rng.choice(
        [{}, {}, {"karpenter.sh/nodepool": "spare"}, {"karpenter.sh/capacity-type": "on-demand"}]
    )
    grace = rng.choice([0, 0, 5])
    await w.apply(
        deployment(
            app, count, cpu=cpu, memory=memory, nodeSelector=where, terminationGracePeriodSeconds=grace
        )
    )


async def _trouble(w: World, rng: Random) -> None:
    """Do something that nobody likes."""
    chance = rng.choice(["kill", "kill", "stop", "claim", "node", "faults", "faults", "none"])
    if chance in ("kill", "stop"):
        await w.kill_operator(graceful=chance == "stop")
        await w.wait(rng.choice([0.0, 1.0, 20.0]))
        await w.start_operator()
    elif chance == "faults":
        w.faults.set(Faults.all(rng.choice([0.0, 0.01, 0.1, 0.3])))
    elif chance in ("claim", "node"):
        found = await (w.claims() if chance == "claim" else w.nodes())
        if found:
            victim = rng.choice(found)
            await w.client.delete(type(victim), victim.name)


async def history(seed: int, *, fake: bool) -> Counter[str]:
    """Live through one history; return what happened."""
    rng = seeded(f"history/{seed}")
    cloud = FakeCloud() if fake else None
    if cloud is not None:
        cloud.create_seconds = rng.choice([0.0, 0.0, 3.0])
        cloud.join_seconds = rng.choice([0.5, 2.0, 30.0])
        cloud.delete_seconds = rng.choice([0.0, 4.0])
        cloud.next_errors = [InsufficientCapacity("sold out")] * rng.choice([0, 0, 3])
    async with world(seed=seed, cloud=cloud) as w:
        limits = rng.choice([{}, {"cpu": "200", "nodes": 40}])
        await w.apply([node_class(), pool(limits=limits, weight=10), pool("spare")])
        if rng.random() < 0.5:
            await w.apply(daemon_set(cpu="100m", memory="64Mi", priorityClassName="system-node-critical"))
        if rng.random() < 0.5:
            await w.apply(disruption_budget("web", maxUnavailable=1))
        for _ in range(rng.randint(3, 12)):
            await _change(w, rng)
            await w.wait(rng.uniform(0.0, 6.0))
            await _trouble(w, rng)
            await w.wait(rng.choice([0.0, 0.3, 2.0, 10.0, 40.0]))
            w.check()
        w.faults.set(Faults())
        await w.until_settled(within=CALM_SECONDS)
        await _well(w)
        return Counter(
            seconds=round(w.clock.monotonic()),
            claims=w.watchdog.claims_created,
            operators=w.runs,
            writes=w.watchdog.writes.total(),
        )


async def _well(w: World) -> None:
    """Check that what is left is what is needed, and not much more."""
    claims, nodes = await w.claims(), await w.nodes()
    if w.cloud is not None:
        assert sorted(w.cloud.instances) == sorted(c.status.provider_id for c in claims)
    assert len(claims) == len(nodes)
    wanted = sum(requests(p).get("cpu", 0) for p in await w.pods())
    bought = sum(float(n.status.capacity.get("cpu", 0)) * 1000 for n in nodes)
    # Every node carries a pod, and nodes that were filled and then thinned out may stay: so only a bound that
    # buying everything twice would break when machines are small.
    assert len(nodes) <= len(await w.pods()), f"{len(nodes)} nodes for {len(await w.pods())} pods"
    assert bought >= wanted


def run(seed: int) -> Counter[str]:
    """Run one history, and say how to repeat it if it fails."""
    try:
        return run_virtual(history(seed, fake=seed % 2 == 1))
    except BaseException:
        print(f"\nto repeat: KARPENTER_SEED={seed} .venv/bin/pytest {__file__} -k repeat -m ''")
        raise


# In 23 a claim is deleted that was never told of its node's registration; in 63 and 65 nodes are seen before
# the launch of their claims is; in 303 one goes before its claim is told its name.
@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + 6), 23, 63, 65, 303])
def test_short_histories_end_well(seed: int) -> None:
    """Whatever happened, in the end all pods run on just the machines they need."""
    run(seed)


@pytest.mark.skipif("KARPENTER_SEED" not in os.environ, reason="only to repeat one seed")
def test_repeat_one_seed() -> None:
    """The history of KARPENTER_SEED ends well."""
    run(FIRST)


@pytest.mark.slow
def test_many_histories_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    """As many histories as fit in KARPENTER_SECONDS (or 5000 with KARPENTER_SOAK=1) end well."""
    started, total, seed = time.monotonic(), Counter[str](), FIRST
    while (SOAK and seed < FIRST + 5000) or (not SOAK and time.monotonic() - started < SECONDS):
        total += run(seed)
        seed += 1
    with capsys.disabled():
        print(f"\n{seed - FIRST} histories from seed {FIRST}: {dict(total)}")
    assert seed > FIRST
