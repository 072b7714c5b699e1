"""Money in a whole cluster with kwok machines: limits, commitments, interruptions, mixes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from karpenter.apis import labels as known
from karpenter.apis.annotations import CAPACITY_TYPE_MIX, INTERRUPTION_COST, PRICE_LIMIT
from karpenter.base.virtualtime import run_virtual
from karpenter.testing.manifests import Raw, deployment, node_class, pool
from karpenter.testing.overlays import raw_overlay, requirement
from karpenter.testing.world import World, world

TYPE, CAPACITY_TYPE, ZONE = known.INSTANCE_TYPE, known.CAPACITY_TYPE, known.ZONE


def an_offering(price: float, zone: str = "z1", kind: str = "on-demand", **more: Any) -> Raw:
    """Return an offering as the kwok provider's file has it."""
    places = [{"key": ZONE, "operator": "In", "values": [zone]}]
    places.append({"key": CAPACITY_TYPE, "operator": "In", "values": [kind]})
    return {"Price": price, "Requirements": places, **more}


def types_file(folder: Path, **offerings: list[Raw]) -> str:
    """Write a file of types with 4 cores each, and return its path."""
    entries = [
        {
            "name": name.replace("_", "-"),
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": "4", "memory": "16Gi"},
            "offerings": ways,
        }
        for name, ways in offerings.items()
    ]
    path = folder / "types.json"
    path.write_text(json.dumps(entries))
    return str(path)


def rich_pool(**annotations: str) -> Raw:
    """Return a pool with annotations of ours."""
    made = pool(consolidate_after="Never")
    made["metadata"]["annotations"] = annotations
    return made


async def machines(w: World) -> list[tuple[str, str, str]]:
    """Return type, zone and capacity type of every launched machine, sorted."""
    return sorted(
        (c.metadata.labels[TYPE], c.metadata.labels[ZONE], c.metadata.labels[CAPACITY_TYPE])
        for c in await w.claims()
        if c.status.provider_id
    )


@pytest.mark.parametrize("writes", range(1, 24, 2))
def test_a_limit_holds_wherever_the_operator_is_killed(tmp_path: Path, writes: int) -> None:
    """Killed after any write, between two creates of one batch too, it never passes the limit."""

    async def scenario() -> None:
        file = types_file(tmp_path, four=[an_offering(0.2), an_offering(0.3, "z2")])
        async with world(types_file=file) as w:
            await w.apply([node_class(), rich_pool(**{PRICE_LIMIT: "0.95"})])
            await w.wait(5)
            await w.apply(deployment("web", 9, cpu="3"))
            await w.wait(0.9)
            await w.kill_operator_after(writes, within=20)
            if w._task is None:
                await w.start_operator()
            await w.wait(40)
            prices = {"z1": 0.2, "z2": 0.3}
            found = await machines(w)
            assert sum(prices[zone] for _, zone, _ in found) <= 0.95
            assert len(found) == 4
            w.check()

    run_virtual(scenario())


@pytest.mark.parametrize("flag", [(), ("--cluster-price-limit=0.5",)])
def test_the_flag_holds_for_all_pools_together(tmp_path: Path, flag: tuple[str, ...]) -> None:
    """Two pools without limits of their own spend together what the flag allows."""

    async def scenario() -> None:
        async with world(types_file=types_file(tmp_path, four=[an_offering(0.2)]), arguments=flag) as w:
            await w.apply([node_class(), pool("a", labels={"team": "a"}), pool("b", labels={"team": "b"})])
            await w.wait(5)
            for team in "ab":
                await w.apply(deployment(team, 3, cpu="3", nodeSelector={"team": team}))
            await w.wait(40)
            assert len(await machines(w)) == (2 if flag else 6)

    run_virtual(scenario())


def test_overlays_change_what_counts(tmp_path: Path) -> None:
    """A limit is held against the prices that NodeOverlays make, for machines there are as for new ones."""

    async def scenario() -> None:
        file = types_file(tmp_path, four=[an_offering(0.2)])
        async with world(types_file=file, arguments=("--feature-gates=NodeOverlay=true",)) as w:
            await w.apply([node_class(), rich_pool(**{PRICE_LIMIT: "0.9"})])
            await w.apply(raw_overlay("dear", requirement(TYPE, "In", "four"), priceAdjustment="+50%"))
            await w.wait(5)
            await w.apply(deployment("web", 2, cpu="3"))
            await w.until_replicas("web", 2)
            assert w.operator.context.cluster.price_commitments() == {"default": 600_000}
            await w.apply(raw_overlay("dear", requirement(TYPE, "In", "four"), priceAdjustment="+100%"))
            await w.wait(10)
            await w.scale("web", 5)
            await w.wait(40)
            assert len(await machines(w)) == 2  # 0.8 of 0.9 are used by what was 0.6
            await w.apply(raw_overlay("dear", requirement(TYPE, "In", "four"), priceAdjustment="-50%"))
            await w.until_replicas("web", 5)
            assert w.operator.context.cluster.price_commitments() == {"default": 500_000}

    run_virtual(scenario())


def test_a_commitment_is_used_over_several_batches(tmp_path: Path) -> None:
    """The next batch knows how much of a commitment the machines there are use, over a restart too."""
    steps = [{"Count": 3, "Price": 0.05}]
    ways = [an_offering(0.2, PriceSteps=steps, Commitment="plan")]
    other = [an_offering(0.15)]

    async def scenario() -> None:
        async with world(types_file=types_file(tmp_path, committed=ways, other=other)) as w:
            await w.apply([node_class(), rich_pool()])
            await w.wait(5)
            for replicas, committed in ((2, 2), (3, 3), (5, 3)):
                if not await w.claims():
                    await w.apply(deployment("web", 0, cpu="3"))
                await w.scale("web", replicas)
                await w.until_replicas("web", replicas)
                assert Counter(name for name, _, _ in await machines(w))["committed"] == committed
                await w.restart_operator()
                await w.wait(5)

    run_virtual(scenario())


@pytest.mark.parametrize(("cost", "kind"), [("0", "spot"), ("0.4", "spot"), ("0.6", "on-demand")])
def test_what_an_interruption_costs_decides(tmp_path: Path, cost: str, kind: str) -> None:
    """Spot at half the price, interrupted every five hours, is worth it up to a certain cost."""
    ways = [an_offering(0.2), an_offering(0.1, kind="spot", InterruptionsPerHour=0.2)]

    async def scenario() -> None:
        async with world(types_file=types_file(tmp_path, four=ways)) as w:
            await w.apply([node_class(), rich_pool(**{INTERRUPTION_COST: cost})])
            await w.wait(5)
            await w.apply(deployment("web", 3, cpu="3"))
            await w.until_replicas("web", 3)
            assert {found for _, _, found in await machines(w)} == {kind}

    run_virtual(scenario())


def test_a_mix_is_approached_over_batches_and_restarts(tmp_path: Path) -> None:
    """At least 30 % on-demand: what the pool has counts, whoever bought it."""
    ways = [an_offering(0.2), an_offering(0.1, kind="spot")]

    async def scenario() -> None:
        async with world(types_file=types_file(tmp_path, four=ways)) as w:
            await w.apply([node_class(), rich_pool(**{CAPACITY_TYPE_MIX: "spot=70,on-demand=30"})])
            await w.wait(5)
            await w.apply(deployment("web", 2, cpu="3"))
            for replicas in (2, 5, 10):
                await w.scale("web", replicas)
                await w.until_replicas("web", replicas)
                await w.restart_operator()
                await w.wait(5)
            assert Counter(kind for _, _, kind in await machines(w)) == {"spot": 7, "on-demand": 3}

    run_virtual(scenario())


def test_nothing_is_bought_below_the_cut_off(tmp_path: Path) -> None:
    """Pods of low priority wait, are told why, and run when there happens to be room."""

    async def scenario() -> None:
        file, flag = types_file(tmp_path, four=[an_offering(0.2)]), "--expendable-pods-priority-cutoff=1"
        async with world(types_file=file, arguments=(flag,)) as w:
            await w.apply([node_class(), pool(consolidate_after="Never")])
            await w.apply({**_PRIORITY, "metadata": {"name": "vital"}, "value": 10})
            await w.wait(5)
            await w.apply(deployment("low", 1, cpu="500m"))
            await w.wait(20)
            assert await w.claims() == []
            told = [e.message for e in await w.events("FailedScheduling") if "priority" in e.message]
            assert told
            assert "none is bought for a priority below 1 (it is 0)" in told[0]
            assert "--expendable-pods-priority-cutoff" in told[0]
            await w.apply(deployment("high", 1, cpu="3", priorityClassName="vital"))
            await w.until_replicas("high", 1)
            await w.until_replicas("low", 1)
            assert len(await w.claims()) == 1

    run_virtual(scenario())


_PRIORITY = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
