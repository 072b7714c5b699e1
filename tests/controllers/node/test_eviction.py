"""The eviction queue by itself: who is evicted, who is deleted, who is left, and what is counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.apis.workloads import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.node.eviction import EvictionQueue
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.testing.builders import EPOCH, a_node, a_nodeclaim, a_pod
from karpenter.testing.environment import Environment, environment

HELD = {labels.DO_NOT_DISRUPT: "true"}


@asynccontextmanager
async def a_queue() -> AsyncIterator[tuple[Environment, EvictionQueue]]:
    """Run a queue over a cluster with one node that no kubelet serves: its pods end when their time is up."""
    async with environment(rooms=()) as env:
        await env.create(a_node())
        await env.client.patch(
            Node,
            "node",
            merge({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up"}]}}),
            subresource="status",
        )
        queue = EvictionQueue(env.operator.context)
        running = asyncio.create_task(queue.controller.run())
        try:
            yield env, queue
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _bound(env: Environment, name: str = "web", **fields: object) -> Pod:
    pod = await env.create(a_pod(name, node_name="node", labels={"app": name}, **fields))  # type: ignore[arg-type]
    await env.client.patch(
        Pod, name, merge({"status": {"phase": "Running"}}), namespace="default", subresource="status"
    )
    await env.wait(0.1)
    return pod


async def _going(env: Environment, name: str = "web") -> int | None:
    """Return the grace a pod was given; None while it is not going; -1 when it has gone."""
    try:
        pod = await env.client.get(Pod, name, namespace="default")
    except NotFound:
        return -1
    return pod.metadata.deletion_grace_period_seconds if pod.deleting else None


def refusals(env: Environment, code: str) -> float:
    return env.metric("karpenter_pods_eviction_requests_total", code=code)


def test_a_pod_is_evicted_with_its_own_grace() -> None:
    """Once, told as an event, and counted."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env, spec={"termination_grace_period_seconds": 17})
            queue.add(pod, None)
            queue.add(pod, None)
            await env.wait(1)
            assert await _going(env) == 17
            event = await env.expect_event("Evicted")
            assert event.message == "Evicted pod: Forceful Termination"
            assert refusals(env, "200") == 1
            assert env.metric("karpenter_pods_drained_total", reason="Forceful Termination") == 1

    run_virtual(scenario())


def test_the_reason_is_why_the_node_goes() -> None:
    """What disruption wrote on the claim is in the event and in the count."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            claim = await env.create(a_nodeclaim(requirements=[("a", "Exists", ())]))
            why = {"type": "DisruptionReason", "status": "True", "reason": "Underutilized", "message": ""}
            status = {"providerID": "kwok://node", "conditions": [{**why, "lastTransitionTime": EPOCH}]}
            await env.client.patch(NodeClaim, claim.name, merge({"status": status}), subresource="status")
            queue.add(await _bound(env), None)
            await env.wait(1)
            assert (await env.expect_event("Evicted")).message == "Evicted pod: Underutilized"
            assert env.metric("karpenter_pods_drained_total", reason="Underutilized") == 1

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("budgets", "code", "why"),
    [
        (["one"], "429", "default/one: minAvailable 100% of 1 pod can never allow an eviction"),
        (["one", "two"], "500", "PodDisruptionBudgets default/one, default/two cover it"),
    ],
)
def test_a_refusal_is_told_with_the_pod_and_the_sum(budgets: list[str], code: str, why: str) -> None:
    """Also before the drain itself has looked at the pod; it is not an error, and tried again."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env)
            selector = LabelSelector(match_labels={"app": "web"})
            for name in budgets:
                spec = PodDisruptionBudgetSpec(min_available="100%", selector=selector)
                meta = ObjectMeta(name=name, namespace="default")
                await env.create(PodDisruptionBudget(metadata=meta, spec=spec))
            await env.wait(2)
            queue.add(pod, None)
            event = await env.expect_event("FailedDraining")
            assert event.involved_object.name == "node"
            assert event.message.startswith("Failed to drain node: pod default/web: PodDisruptionBudget")
            assert why in event.message
            await env.wait(5)
            assert refusals(env, code) > 1
            errors = env.metric("controller_runtime_reconcile_errors_total", controller="eviction-queue")
            assert errors == 0

    run_virtual(scenario())


def test_a_namesake_is_not_evicted() -> None:
    """The wish was for another pod of that name: its successor is left alone."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env)
            queue.add(replace(pod, metadata=replace(pod.metadata, uid="another")), None)
            await env.wait(30)
            assert await _going(env) is None
            assert refusals(env, "200") + refusals(env, "409") + refusals(env, "404") == 0

    run_virtual(scenario())


def test_the_server_is_asked_for_this_very_pod() -> None:
    """A pod replaced while our cache was behind is saved by the UID precondition."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env)
            stale = replace(pod, metadata=replace(pod.metadata, uid="11111111-old"))
            queue._pods.get = lambda *_: stale  # type: ignore[method-assign]
            queue.add(stale, None)
            await env.wait(5)
            assert await _going(env) is None
            assert refusals(env, "409") == 1
            assert refusals(env, "200") == 0

    run_virtual(scenario())


def test_a_pod_that_has_gone_is_dropped() -> None:
    """Also when it goes while it waits behind a refusal; nothing is asked for it any more."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env, annotations=HELD)
            queue.add(pod, None)
            await env.wait(5)
            assert await _going(env) is None
            await env.client.delete(Pod, "web", namespace="default", grace_period_seconds=0)
            await env.wait(30)
            assert queue._wanted == {}
            assert refusals(env, "200") + refusals(env, "404") == 0

    run_virtual(scenario())


def test_refusals_are_tried_again_ever_more_slowly() -> None:
    """From tenths of a second to ten; the pod goes when its budget lets it."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env)
            selector = LabelSelector(match_labels={"app": "web"})
            await env.create(
                PodDisruptionBudget(
                    metadata=ObjectMeta(name="budget", namespace="default"),
                    spec=PodDisruptionBudgetSpec(max_unavailable=0, selector=selector),
                )
            )
            await env.wait(2)
            queue.add(pod, None)
            counts = []
            for _ in range(4):
                before = refusals(env, "429")
                await env.wait(20)
                counts.append(refusals(env, "429") - before)
            assert counts[0] > counts[-1]
            assert 2 <= counts[-1] <= 4
            await env.client.delete(PodDisruptionBudget, "budget", namespace="default")
            await env.wait(12)
            assert await _going(env) is not None

    run_virtual(scenario())


@pytest.mark.parametrize("deleted", [True, False])
def test_a_budget_that_gives_way_is_heard_of_at_once(deleted: bool) -> None:
    """No back-off keeps a pod once its budget has been loosened or is gone."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env)
            selector = LabelSelector(match_labels={"app": "web"})
            spec = PodDisruptionBudgetSpec(max_unavailable=0, selector=selector)
            meta = ObjectMeta(name="budget", namespace="default")
            await env.create(PodDisruptionBudget(metadata=meta, spec=spec))
            ready = merge({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
            await env.client.patch(Pod, "web", ready, namespace="default", subresource="status")
            await env.wait(2)
            queue.add(pod, None)
            await env.wait(61.3)
            assert await _going(env) is None
            if deleted:
                await env.client.delete(PodDisruptionBudget, "budget", namespace="default")
            else:
                loosened = merge({"spec": {"maxUnavailable": 1}})
                await env.client.patch(PodDisruptionBudget, "budget", loosened, namespace="default")
            await env.wait(0.3)
            assert await _going(env) is not None

    run_virtual(scenario())


def test_the_earlier_deadline_counts() -> None:
    """Of several deadlines for a pod; none at all is the latest."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env, annotations=HELD, spec={"termination_grace_period_seconds": 30})
            now = env.clock.now()
            queue.add(pod, now + 500)
            queue.add(pod, None)
            queue.add(pod, now + 1000)
            assert queue._wanted[pod.key][1] == now + 500
            queue.add(pod, now + 100)
            queue.add(pod, now + 500)
            assert queue._wanted[pod.key][1] == now + 100
            await env.wait(60)
            assert await _going(env) is None

    run_virtual(scenario())


def test_force_does_not_wait_for_a_back_off() -> None:
    """Asked again when its time has come, a protected pod goes at once with all that is left."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env, annotations=HELD, spec={"termination_grace_period_seconds": 30})
            deadline = env.clock.now() + 100
            queue.add(pod, deadline)
            await env.wait(70.5)  # by now it is tried every ten seconds only
            queue.add(pod, deadline)
            await env.wait(0.2)
            assert await _going(env) == 29
            event = await env.expect_event("Disrupted")
            assert "granted 29 seconds" in event.message

    run_virtual(scenario())


def test_a_slow_end_is_cut_short_and_counted_once() -> None:
    """A pod already going beyond the deadline gets what is left; it is not drained twice."""

    async def scenario() -> None:
        async with a_queue() as (env, queue):
            pod = await _bound(env, spec={"termination_grace_period_seconds": 300})
            queue.add(pod, None)
            await env.wait(1)
            assert await _going(env) == 300
            going = await env.client.get(Pod, "web", namespace="default")
            queue.add(going, env.clock.now() + 40)
            await env.wait(0.5)
            assert await _going(env) in (39, 40)
            assert env.metric("karpenter_pods_drained_total", reason="Forceful Termination") == 1

    run_virtual(scenario())
