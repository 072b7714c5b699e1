"""Limits on money, from annotation and flag to what is bought, counted and told."""

import msgspec
import pytest

from karpenter.apis import conditions
from karpenter.apis import labels as known
from karpenter.apis.annotations import PLANNED_LOT, PLANNED_PRICE, PRICE_LIMIT, PRICE_USED
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import InsufficientCapacity
from karpenter.controllers import metrics, nodeclaim, nodepool, provisioning
from karpenter.controllers.context import Settings
from karpenter.embedded import admission
from karpenter.kube.errors import ApiError
from karpenter.kube.patch import merge
from karpenter.model.instancetype import InstanceType
from karpenter.testing.builders import a_nodepool, an_instance_type, an_offering, some_pods
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import FakeCloud

replace = msgspec.structs.replace
FOUR = an_instance_type("four", price=0.2)
ROOMS = (provisioning, nodeclaim, nodepool, metrics)


def limited(usd: str, name: str = "default", **fields: object) -> NodePool:
    """Return a pool whose machines may cost so much."""
    pool = a_nodepool(name, **fields)  # type: ignore[arg-type]
    return replace(pool, metadata=replace(pool.metadata, annotations={PRICE_LIMIT: usd}))


def usd(env: Environment) -> float:
    """Return what the cloud charges for the machines it runs, USD per hour."""
    spent = 0.0
    for instance in env.cloud.instances.values():
        own = instance.claim.metadata.labels
        place = (own[known.INSTANCE_TYPE], own[known.ZONE], own[known.CAPACITY_TYPE])
        spent += next(
            o.price
            for t in env.cloud.types
            for o in t.offerings
            if (t.name, o.zone, o.capacity_type) == place
        )
    return spent


async def running(env: Environment) -> list[str]:
    """Return the names of the pods that have a node."""
    return sorted(p.name for p in await env.client.list(Pod) if p.spec.node_name)


@pytest.mark.parametrize("limits", [("0.5", None), (None, 500_000)], ids=["pool", "cluster"])
def test_a_limit_holds_in_a_batch_and_over_batches(limits: tuple[str | None, int | None]) -> None:
    """Half a dollar buys two machines at 20 cents, however many pods wait and however often they ask."""
    own, together = limits

    async def scenario() -> None:
        settings = Settings(cluster_price_limit=together)
        async with environment(cloud=FakeCloud([FOUR]), settings=settings) as env:
            env.cloud.create_seconds = 20.0
            await env.create(limited(own) if own else a_nodepool())
            for batch in range(3):
                await env.create_all(some_pods(3, f"batch-{batch}", cpu="3"))
                await env.wait(15)
            await env.wait(60)
            assert len(await env.claims()) == len(env.cloud.created) == 2
            assert len(await running(env)) == 2
            event = await env.expect_event("PriceLimitReached")
            assert "raise" in event.message
            assert any("price limit" in e.message for e in await env.events("FailedScheduling"))

    run_virtual(scenario())


@pytest.mark.parametrize("pause", [0.0, 1.0, 1.05, 1.5, 3.0, 8.0])
def test_a_killed_operator_spends_no_more(pause: float) -> None:
    """Killed at whatever moment, it knows from the claims what is spent already, launched or not."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([FOUR])) as env:
            env.cloud.create_seconds, env.cloud.join_seconds = 4.0, 3.0
            await env.create(limited("1.10"))
            await env.create_all(some_pods(12, cpu="3"))
            for _ in range(3):
                await env.wait(pause)
                await env.restart()
                assert len(await env.claims()) <= 5
            await env.wait(60)
            assert len(env.cloud.created) == 5
            assert usd(env) == pytest.approx(1.0)

    run_virtual(scenario())


SPOT_FIRST = an_instance_type(
    "mixed",
    offerings=[
        an_offering("zone-a", known.CAPACITY_SPOT, 0.05),
        an_offering("zone-b", known.CAPACITY_SPOT, 0.05),
        an_offering("zone-c", known.CAPACITY_SPOT, 0.06),
        an_offering("zone-a", known.CAPACITY_ON_DEMAND, 0.2),
    ],
)


@pytest.mark.parametrize(
    ("limit", "pinned"), [("1.00", False), ("0.25", False), ("0.10", True)], ids=["ample", "enough", "short"]
)
def test_claims_are_pinned_to_what_can_be_paid(limit: str, pinned: bool) -> None:
    """With money for the dearest offering a claim may become any; otherwise only what costs no more."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([SPOT_FIRST])) as env:
            await env.create(limited(limit))
            await env.create_all(some_pods(1, cpu="3"))
            (claim,) = await env.expect_claims(1)
            wanted = {r.key: r.values for r in claim.spec.requirements}
            zones = ["zone-a", "zone-b"] if pinned else None
            assert wanted.get(known.ZONE) == zones
            assert wanted[known.CAPACITY_TYPE] == (["spot"] if pinned else ["on-demand", "spot"])
            assert claim.metadata.annotations[PLANNED_PRICE] == ("0.05" if pinned else "0.2")

    run_virtual(scenario())


def test_a_cloud_that_is_out_of_what_was_planned_does_not_pass_the_limit() -> None:
    """Where spot runs out between plan and launch, no on-demand machine is launched that cannot be paid."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([SPOT_FIRST])) as env:
            env.cloud.next_errors = [InsufficientCapacity("no spot")]
            await env.create(limited("0.10"))
            await env.create_all(some_pods(2, cpu="3"))
            await env.expect_claims(2)
            env.cloud.sell_out("mixed", capacity_type=known.CAPACITY_SPOT)
            await env.wait(120)
            assert usd(env) <= 0.10 + 1e-9

    run_virtual(scenario())


def test_a_claim_counts_at_its_price_once_it_is_launched() -> None:
    """Until a claim is launched the dearest it may become is set aside; then what it did become."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([SPOT_FIRST])) as env:
            await env.create(limited("0.25"))
            await env.create_all(some_pods(1, "a", cpu="3"))
            await env.expect_scheduled(await env.client.list(Pod))
            await env.create_all(some_pods(1, "b", cpu="3"))
            await env.expect_scheduled(await env.client.list(Pod))
            assert usd(env) == pytest.approx(0.10)

    run_virtual(scenario())


def test_used_and_limit_are_shown() -> None:
    """status.resources and metrics tell dollars used, the annotation and metrics the limit."""

    async def scenario() -> None:
        settings = Settings(cluster_price_limit=2_500_000)
        async with environment(cloud=FakeCloud([FOUR]), settings=settings, rooms=ROOMS) as env:
            await env.create(limited("0.5"))
            await env.create(a_nodepool("spare", taints=[]))
            await env.create_all(some_pods(2, cpu="3", node_selector={known.NODEPOOL: "default"}))
            await env.expect_scheduled(await env.client.list(Pod))
            await env.wait(30)
            pool = await env.client.get(NodePool, "default")
            assert str(pool.status.resources[PRICE_USED]) == "0.40"
            assert env.metric("karpenter_nodepools_price_usd_per_hour", nodepool="default") == 0.4
            assert env.metric("karpenter_nodepools_price_limit_usd_per_hour", nodepool="default") == 0.5
            assert env.metric("karpenter_cluster_price_usd_per_hour") == 0.4
            assert env.metric("karpenter_cluster_price_limit_usd_per_hour") == 2.5

    run_virtual(scenario())


def test_without_limits_status_is_upstreams() -> None:
    """Who limits no money finds no new key in status.resources."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([FOUR])) as env:
            await env.create(a_nodepool())
            await env.create_all(some_pods(1, cpu="3"))
            await env.expect_scheduled(await env.client.list(Pod))
            await env.wait(20)
            pool = await env.client.get(NodePool, "default")
            assert pool.status.resources
            assert PRICE_USED not in pool.status.resources

    run_virtual(scenario())


def test_the_api_server_of_the_embedded_cluster_refuses_mistakes() -> None:
    """An annotation that is no amount never gets in; the message names it and what would be right."""

    async def scenario() -> None:
        async with environment() as env:
            with pytest.raises(ApiError, match=r"price-limit-per-hour.*12\.50"):
                await env.create(limited("cheap"))
            await env.create(limited("1"))
            change = merge({"metadata": {"annotations": {PRICE_LIMIT: "-1"}}})
            with pytest.raises(ApiError, match="price-limit-per-hour"):
                await env.client.patch(NodePool, "default", change)

    run_virtual(scenario())


def test_a_pool_with_a_mistake_buys_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an API server lets a mistake in: condition and event on the pool, and other pools go on."""
    monkeypatch.setattr(admission, "validate_annotations", lambda pool: ())

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([FOUR])) as env:
            await env.create(limited("cheap", "wrong", weight=10))
            await env.create(limited("0.2", "right"))
            await env.create_all(some_pods(2, cpu="3"))
            event = await env.expect_event("NodePoolValidationFailed")
            assert "price-limit-per-hour" in event.message
            await env.wait(30)
            pool = await env.client.get(NodePool, "wrong")
            found = conditions.get(pool.status.conditions, "ValidationSucceeded")
            assert found is not None
            assert (found.status, found.reason) == ("False", "NodePoolValidationFailed")
            assert 'e.g. "12.50"' in found.message
            assert not conditions.is_true(pool.status.conditions, "Ready")
            assert [c.metadata.labels[known.NODEPOOL] for c in await env.claims()] == ["right"]

    run_virtual(scenario())


def test_raising_a_limit_lets_pods_go_on() -> None:
    """Changing the annotation is enough: no restart, and no node drifts."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([FOUR])) as env:
            await env.create(limited("0.2"))
            pods = await env.create_all(some_pods(2, cpu="3"))
            await env.wait(30)
            (first,) = await env.claims()
            change = merge({"metadata": {"annotations": {PRICE_LIMIT: "0.4"}}})
            await env.client.patch(NodePool, "default", change)
            await env.expect_scheduled(pods, within=60)
            again = await env.client.get(NodeClaim, first.name)
            assert not conditions.is_true(again.status.conditions, "Drifted")

    run_virtual(scenario())


# --- prices that change -----------------------------------------------------------------------------------


def stepped(*steps: tuple[int, float]) -> InstanceType:
    """Return a type at 20 cents whose first machines cost less."""
    offering = replace(an_offering("zone-a", price=0.2), steps=steps, commitment="plan")
    return an_instance_type("four", offerings=[offering])


def test_steps_of_a_price_that_claims_on_their_way_use_are_not_used_again() -> None:
    """A commitment for two machines pays for two, though the cloud hears of them only at their launch."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([stepped((2, 0.05))])) as env:
            env.cloud.create_seconds = 100.0
            await env.create(limited("0.55"))
            for batch in range(3):
                await env.create_all(some_pods(1, f"batch-{batch}", cpu="3"))
                await env.expect_claims(batch + 1)
            claims = sorted(await env.claims(), key=lambda c: c.metadata.annotations[PLANNED_PRICE])
            assert [c.metadata.annotations[PLANNED_PRICE] for c in claims] == ["0.05", "0.05", "0.2"]
            assert [c.metadata.annotations.get(PLANNED_LOT) for c in claims] == ["plan#0", "plan#0", None]
            await env.wait(30)
            assert env.cluster.price_commitments() == {"default": 300_000}

    run_virtual(scenario())


def test_a_machine_keeps_the_step_it_was_bought_at() -> None:
    """Launched from a commitment it counts what that costs, and what is left of it comes from the cloud."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud([stepped((1, 0.05))])) as env:
            await env.create(limited("0.3"))
            await env.create_all(some_pods(1, "a", cpu="3"))
            await env.expect_scheduled(await env.client.list(Pod))
            env.cloud.types = (stepped((0, 0.05)),)
            await env.create_all(some_pods(2, "b", cpu="3"))
            await env.wait(60)
            assert len(env.cloud.created) == 2
            assert env.cluster.price_commitments() == {"default": 250_000}

    run_virtual(scenario())
