"""Random drains of the whole operator: whatever goes when, budgets hold; who asked for it never goes down.

Deployments of every kind of budget, strategy and opt-in; NodeClaims and Nodes are deleted, the operator is
killed. At every write somebody counts the pods that serve.
"""

import os
import time
from collections import Counter
from typing import Any

import msgspec
import pytest

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.randomness import Random, seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.testing.manifests import deployment, disruption_budget, node_class, pool
from karpenter.testing.serving import ServingWatch
from karpenter.testing.world import World, world

SECONDS = float(os.environ.get("KARPENTER_SECONDS", "60"))
SOAK = os.environ.get("KARPENTER_SOAK") == "1"
FIRST = int(os.environ.get("KARPENTER_SEED", "0"))
READY = "pod-ready.stage.kwok.x-k8s.io/delay"
STRATEGIES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    {"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}},
    {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    {"type": "Recreate"},
)


class App(msgspec.Struct, frozen=True, kw_only=True):
    """One Deployment, and what must hold of it."""

    name: str
    replicas: int
    budget: dict[str, Any]
    strategy: dict[str, Any] | None
    surges: bool
    delay: int

    @property
    def kept(self) -> int:
        """How many pods its budget keeps; 0 without one."""
        if "minAvailable" in self.budget:
            return min(self.replicas, int(self.budget["minAvailable"]))
        if "maxUnavailable" in self.budget:
            return max(0, self.replicas - int(self.budget["maxUnavailable"]))
        return 0

    @property
    def can_surge(self) -> bool:
        """Whether a rollout makes the new pods first and misses none."""
        if self.strategy is None:
            return self.replicas <= 3
        rolling = self.strategy.get("rollingUpdate", {})
        return bool(rolling.get("maxSurge")) and not rolling.get("maxUnavailable")

    @property
    def held(self) -> bool:
        """Whether its budget never lets a pod go, nor a stand-in come."""
        return self.kept >= self.replicas and not (self.surges and self.can_surge)

    @property
    def least(self) -> int:
        """How many pods must serve at any moment."""
        return max(self.kept, 1 if self.surges and self.can_surge else 0)

    def manifests(self) -> list[dict[str, Any]]:
        annotations = {READY: f"{self.delay}s", **({labels.SURGE: "true"} if self.surges else {})}
        made = deployment(self.name, self.replicas, annotations=annotations, cpu="1500m")
        if self.strategy is not None:
            made["spec"]["strategy"] = self.strategy
        budgets = [disruption_budget(self.name, **self.budget)] if self.budget else []
        return [made, *budgets]


def an_app(rng: Random, name: str) -> App:
    replicas = rng.choice([1, 1, 2, 3, 5])
    budget: dict[str, Any] = rng.choice(
        [{}, {}, {"minAvailable": 1}, {"maxUnavailable": 1}, {"maxUnavailable": 0}]
    )
    return App(
        name=name,
        replicas=replicas,
        budget=budget,
        strategy=rng.choice(STRATEGIES),
        surges=rng.random() < 0.6,
        delay=rng.choice([1, 5, 20]),
    )


async def _delete_some(w: World, rng: Random) -> None:
    found: list[NodeClaim | Node] = []
    found.extend(await (w.nodes() if rng.random() < 0.3 else w.claims()))
    there = [obj for obj in found if not obj.deleting]
    for victim in rng.sample(there, min(len(there), rng.choice([1, 1, 2]))):
        await w.client.delete(type(victim), victim.name)


async def history(seed: int) -> Counter[str]:
    """Live through one history; return what happened."""
    rng = seeded(f"drains/{seed}")
    apps = [an_app(rng, name) for name in ("a", "b", "c", "d")[: rng.randint(1, 4)]]
    async with world(seed=seed) as w:
        watch = ServingWatch(w.watchdog)
        await w.apply([node_class(), pool(consolidate_after="Never")])
        await w.apply([obj for app in apps for obj in app.manifests()])
        for app in apps:
            await w.until_replicas(app.name, app.replicas)
        await w.wait(15)
        watch.begin()
        for _ in range(rng.randint(1, 4)):
            await _delete_some(w, rng)
            await w.wait(rng.choice([0.0, 0.3, 2.0, 15.0, 60.0]))
            if rng.random() < 0.3:
                await w.restart_operator()
        await w.wait(600)
        for app in apps:
            assert watch.least[app.name] >= app.least, f"{app} once served with {watch.least[app.name]}"
        stuck = await _left(w, apps)
        for app in apps:
            assert watch.now()[app.name] == app.replicas, f"{app} serves with {watch.now()[app.name]}"
        return Counter(histories=1, nodes=w.watchdog.claims_created, stuck=stuck)


async def _left(w: World, apps: list[App]) -> int:
    """Check that nodes still drain only for budgets that never allow it, and say so; return how many."""
    held = {app.name for app in apps if app.held}
    left = [claim for claim in await w.claims() if claim.deleting]
    pods = await w.pods()
    for claim in left:
        here = {p.metadata.labels["app"] for p in pods if p.spec.node_name == claim.status.node_name}
        drained = conditions.get(claim.status.conditions, "Drained")
        words = drained.message if drained else ""
        assert here & held, f"{claim.name} is left with {here}: {words}"
        assert "can never allow an eviction" in words
    return len(left)


def run(seed: int) -> Counter[str]:
    """Run one history, and say how to repeat it if it fails."""
    try:
        return run_virtual(history(seed))
    except BaseException:
        print(f"\nto repeat: KARPENTER_SEED={seed} .venv/bin/pytest {__file__} -k short -m ''")
        raise


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 10))
def test_short_histories_of_drains(seed: int) -> None:
    """Budgets hold, stand-ins come first, and only nodes stay that a budget never lets go, which is said."""
    run(seed)


@pytest.mark.slow
def test_many_histories_of_drains(capsys: pytest.CaptureFixture[str]) -> None:
    """As many histories as fit in KARPENTER_SECONDS (or 2000 with KARPENTER_SOAK=1)."""
    started, total, seed = time.monotonic(), Counter[str](), FIRST
    while (SOAK and seed < FIRST + 2000) or (not SOAK and time.monotonic() - started < SECONDS):
        total += run(seed)
        seed += 1
    with capsys.disabled():
        print(f"\nfrom seed {FIRST}: {dict(total)}")
    assert total["histories"] > 0
