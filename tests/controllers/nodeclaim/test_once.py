"""What a claim reaches is told once, however far behind the caches are."""

from collections import Counter
from typing import Any

import pytest
from structlog.testing import capture_logs

from karpenter.apis.core import Pod
from karpenter.base.clock import LoopClock
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError, InsufficientCapacity
from karpenter.kube.transport import Transport
from karpenter.testing.builders import a_nodepool, a_pod, some_pods
from karpenter.testing.environment import environment
from karpenter.testing.lag import LaggingTransport

LIFE = ("created nodeclaim", "launched nodeclaim", "registered nodeclaim", "initialized nodeclaim")
END = ("deleted nodeclaim",)
ALL = ("nodeclaims", "nodes", "pods", "nodepools")


def lagging(seconds: float, *paths: str) -> dict[str, Any]:
    """Return the option that lets the operator's watches of `paths` be late."""

    def wrap(inner: Transport) -> Transport:
        return LaggingTransport(inner, LoopClock(), seconds, tuple(f"/{path}" for path in paths))

    return {"transport": wrap}


@pytest.mark.parametrize(
    "paths", [("nodeclaims",), ("nodes",), ("nodeclaims", "nodes"), ALL], ids=lambda p: "+".join(p)
)
def test_every_milestone_is_logged_and_counted_once(paths: tuple[str, ...]) -> None:
    """A stale claim, a stale node, or both: one line and one count for each claim and milestone."""

    async def scenario() -> None:
        async with environment(**lagging(1.5, *paths)) as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(5, cpu="3"))
            await env.expect_scheduled(pods, within=240)
            await env.wait(120)
            claims = {claim.name for claim in await env.claims()}
            counted = env.metric("karpenter_nodes_created_total", nodepool="default", zone="zone-a")
            assert counted == len(claims)
            lines = Counter((line["event"], line["NodeClaim"]) for line in logs if line["event"] in LIFE)
            assert lines == {(event, name): 1 for event in LIFE for name in claims}

    with capture_logs() as logs:
        run_virtual(scenario())


def test_an_end_is_begun_logged_and_counted_once() -> None:
    """A claim that cannot be launched ends once, though the cache shows it alive for a while longer."""

    async def scenario() -> None:
        async with environment(**lagging(5.0, "nodeclaims")) as env:
            env.cloud.next_errors = [InsufficientCapacity("sold out")]
            await env.create(a_nodepool())
            await env.create(a_pod())
            await env.wait(60)
            count = env.metric(
                "karpenter_nodeclaims_disrupted_total",
                reason="insufficient_capacity",
                nodepool="default",
                capacity_type="",
                consolidation_policy="",
                termination_mode="graceful",
            )
            assert count == 1
            assert len(env.cloud.created) == 1, "the next claim gets a machine, the ended one does not"
            ended = [line["NodeClaim"] for line in logs if line["event"] in END]
            assert len(ended) == 1

    with capture_logs() as logs:
        run_virtual(scenario())


def test_a_timeout_counts_once_against_its_pool() -> None:
    """One machine that never came is one failure, not one for each look at the stale claim."""

    async def scenario() -> None:
        async with environment(**lagging(2.0, "nodeclaims")) as env:
            env.cloud.next_errors = [CreateError("Broken", "always")] * 1000
            await env.create(a_nodepool())
            pod = await env.create(a_pod())
            await env.expect_claims(1)
            await env.wait(200)
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await env.wait(150)
            assert [line["event"] for line in logs].count("terminating nodeclaim, timeout passed") == 1
            pool = env.cluster.pool("default")
            assert pool is not None
            assert env.cluster.pool_health.verdict(pool.metadata.uid) is True, "one failure is bad luck"

    with capture_logs() as logs:
        run_virtual(scenario())


def test_lines_say_what_was_bought_and_for_how_much() -> None:
    """Each line of a claim's life names claim, pool, type, zone, capacity type and price."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.create(a_pod())
            claim = (await env.expect_claims(1))[0]
            claim = await env.expect_condition(claim.name, "Initialized")
            lines = {line["event"]: line for line in logs}
            created = lines["created nodeclaim"]
            assert (created["NodeClaim"], created["NodePool"], created["pods"]) == (claim.name, "default", 1)
            assert created["price"] > 0
            for event in LIFE[1:]:
                line = lines[event]
                assert line["NodeClaim"] == claim.name
                assert line["NodePool"] == "default"
                assert line["provider_id"] == claim.status.provider_id
                assert line["instance_type"] == claim.metadata.labels["node.kubernetes.io/instance-type"]
                assert line["zone"] == claim.metadata.labels["topology.kubernetes.io/zone"]
                assert line["capacity_type"] == claim.metadata.labels["karpenter.sh/capacity-type"]
                assert line["price"] == created["price"], "the cloud took the cheapest offering"
            assert "Node" not in lines["launched nodeclaim"], "nothing is said of what is not there yet"
            assert lines["registered nodeclaim"]["Node"] == claim.status.node_name
            assert lines["initialized nodeclaim"]["allocatable"] == claim.status.allocatable

    with capture_logs() as logs:
        run_virtual(scenario())
