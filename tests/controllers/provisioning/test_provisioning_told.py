"""What a pass leaves behind for those who watch: metrics, events, nominations, and its cause."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Node, Pod, PVCSource, Volume
from karpenter.base.clock import ManualClock
from karpenter.base.metrics import Metrics
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.provisioning.meters import Meters
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_nodepool, a_pod, a_term, node_affinity, some_pods
from karpenter.testing.environment import Environment, environment

SCHEDULER = "karpenter_scheduler_"
NOT_OURS = node_affinity([a_term((labels.NODEPOOL, "DoesNotExist", ()))])
DATA = Volume(name="data", persistent_volume_claim=PVCSource(claim_name="absent"))


def stuck(name: str = "stuck") -> Pod:
    """Return a pod whose volume claim does not exist."""
    return a_pod(name, spec={"volumes": [DATA]})


def counts(env: Environment) -> dict[str, float]:
    """Return how many pods were set aside, and how many found no place, at the last pass."""
    return {
        "ignored": env.metric(f"{SCHEDULER}ignored_pods_count"),
        "unschedulable": env.metric(f"{SCHEDULER}unschedulable_pods_count", controller="provisioner"),
    }


def test_pods_that_are_set_aside_or_find_no_place_are_counted() -> None:
    """One of each kind; when both have gone the counts go back to nothing."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            good = await env.create(a_pod("good"))
            pods = await env.create_all([stuck(), a_pod("huge", cpu="1000"), a_pod("huger", cpu="2000")])
            await env.expect_scheduled([good])
            await env.wait(15)
            assert counts(env) == {"ignored": 1, "unschedulable": 2}
            for pod in pods:
                await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await env.wait(5)
            assert counts(env) == {"ignored": 0, "unschedulable": 0}

    run_virtual(scenario())


def test_solves_are_timed() -> None:
    """Every pass that has something to decide counts once, whatever becomes of its pods."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.wait(30)
            name = f"{SCHEDULER}scheduling_duration_seconds_count"
            assert env.metric(name, controller="provisioner") == 0
            await env.expect_scheduled(await env.create_all(some_pods(3)))
            assert env.metric(name, controller="provisioner") == 1

    run_virtual(scenario())


def test_a_solve_that_goes_on_shows_its_pods_and_its_age() -> None:
    """While it lasts, under a number of its own; afterwards the series are gone, also after an error."""
    metrics, clock = Metrics(), ManualClock()
    meters = Meters(metrics, cast("Any", SimpleNamespace(synced=lambda: True)), clock)

    def sample(name: str, **own: str) -> float | None:
        labels = {"controller": "provisioner", **own}
        return metrics.registry.get_sample_value(f"{SCHEDULER}{name}", labels)

    def broken(number: str) -> None:
        with meters.solving(clock, 7):
            clock.advance(3.0)
            assert sample("queue_depth", scheduling_id=number) == 7
            assert sample("unfinished_work_seconds", scheduling_id=number) == 3
            raise ValueError("broken")

    for number in ("1", "2"):
        with pytest.raises(ValueError, match="broken"):
            broken(number)
        assert sample("queue_depth", scheduling_id=number) is None
        assert sample("unfinished_work_seconds", scheduling_id=number) is None
    assert sample("scheduling_duration_seconds_count") == 2
    assert sample("scheduling_duration_seconds_sum") == 6


def test_a_pod_hears_which_claim_and_later_which_node_is_meant_for_it() -> None:
    """New claims are named as such; a pod that fits beside others hears of the claim and of its node."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            env.cloud.join_seconds = 60.0
            await env.create(a_pod("first", cpu="500m"))
            await env.wait(5)
            claim = (await env.claims())[0]
            (told,) = await env.events("Nominated")
            assert (told.involved_object.name, told.message) == (
                "first",
                f"Pod should schedule on: nodeclaim/{claim.name}",
            )
            await env.create(a_pod("second", cpu="100m"))
            await env.wait(5)
            _, told = await env.events("Nominated")
            assert told.message == f"Pod should schedule on: nodeclaim/{claim.name}"

    run_virtual(scenario())


def test_a_machine_is_nominated_for_two_batches_or_ten_seconds() -> None:
    """So long is it left alone, since pods are on their way to it; every new plan for it starts anew."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            env.cloud.join_seconds = 120.0
            await env.create(a_pod("first", cpu="500m"))
            await env.expect_claims(1)
            (row,) = env.cluster.snapshot().nodes
            began = env.cluster.snapshot().taken_at
            assert row.nominated_until == pytest.approx(began + 20.0, abs=2.0)
            await env.wait(15)
            await env.create(a_pod("second", cpu="100m"))
            await env.wait(5)
            (row,) = env.cluster.snapshot().nodes
            assert row.nominated_until > began + 30.0

    run_virtual(scenario())


def test_pods_that_are_not_ours_to_serve_hear_nothing() -> None:
    """A pod that must not run on Karpenter's nodes is counted as ignored, without an event."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.create(a_pod(affinity=NOT_OURS))
            await env.wait(30)
            assert counts(env)["ignored"] == 1
            assert not await env.events("FailedScheduling")
            assert not await env.claims()

    run_virtual(scenario())


@pytest.mark.parametrize("tainted", [True, False])
def test_a_node_that_is_being_disrupted_gets_its_pods_new_machines(tainted: bool) -> None:
    """Its taint is news: room for its pods is bought before they are evicted, although none waits."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.expect_scheduled(await env.create_all(some_pods(2)))
            await env.wait(60)
            claims = await env.claims()
            node = (await env.nodes())[0]
            env.cluster.mark_for_deletion([node.spec.provider_id])
            if tainted:
                taint = {"key": labels.DISRUPTED_TAINT, "effect": "NoSchedule"}
                await env.client.patch(Node, node.name, merge({"spec": {"taints": [taint]}}))
            await env.wait(20)
            assert len(await env.claims()) == len(claims) + tainted

    run_virtual(scenario())
