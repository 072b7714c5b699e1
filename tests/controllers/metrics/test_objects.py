"""Series and events about nodes, pools, pods and conditions: they come and go with the objects."""

from typing import Any

import pytest

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption, metrics, node, nodeclaim, nodepool, provisioning
from karpenter.controllers.context import Settings
from karpenter.controllers.metrics.pods import PodMetrics
from karpenter.testing.builders import a_node, a_nodepool, a_pod, an_owner, some_pods
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, disruption, metrics)


def series(env: Environment, name: str) -> list[dict[str, str]]:
    """Return the labels of all series of a metric."""
    return [
        dict(sample.labels)
        for family in env.operator.metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    ]


async def _running(env: Environment, **pool: Any) -> tuple[Node, Pod]:
    await env.create(a_nodepool(**pool))
    pod = await env.create(a_pod())
    await env.expect_scheduled([pod])
    claim = (await env.expect_claims(1))[0]
    await env.expect_condition(claim.name, "Initialized")
    await env.wait(31)
    return (await env.nodes())[0], pod


def test_a_nodes_series_have_its_labels_and_go_with_it() -> None:
    """Allocatable, requests, overhead and age by node; nothing is left after its end."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, _ = await _running(env)
            (found,) = [s for s in series(env, "karpenter_nodes_allocatable") if s["resource_type"] == "cpu"]
            assert found == {
                "node_name": target.name,
                "phase": found["phase"],
                "managed": "true",
                "nodepool": "default",
                "zone": "zone-a",
                "region": "",
                "instance_type": "general-2",
                "arch": "amd64",
                "os": "linux",
                "capacity_type": "spot",
                "windows_build": "",
                "resource_type": "cpu",
            }
            assert env.metric("karpenter_nodes_allocatable", **found) == 2.0
            assert env.metric("karpenter_nodes_total_pod_requests", **found) == 1.0
            assert env.metric("karpenter_cluster_utilization_percent", resource_type="cpu") == 50.0
            assert env.metric("karpenter_cluster_state_node_count") == 1
            age = {key: value for key, value in found.items() if key != "resource_type"}
            assert env.metric("karpenter_nodes_current_lifetime_seconds", **age) > 25
            await env.client.delete(Node, target.name)
            await env.wait(60)
            left = {s["node_name"] for s in series(env, "karpenter_nodes_allocatable")}
            assert target.name not in left
            left = {s["node_name"] for s in series(env, "karpenter_nodes_current_lifetime_seconds")}
            assert target.name not in left

    run_virtual(scenario())


def test_a_pods_series_tells_where_it_is_and_goes_with_it() -> None:
    """One series a pod with its place and owner; it moves with the pod's state and vanishes with it."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _running(env)
            stuck = await env.create(a_pod("stuck", cpu="500"))
            await env.wait(35)
            rows = {row["name"]: row for row in series(env, "karpenter_pods_state")}
            expected = {
                "node": target.name,
                "scheduled": "true",
                "nodepool": "default",
                "capacity_type": "spot",
                "instance_type": "general-2",
                "phase": "Running",
                "ready": "true",
                "managed": "true",
                "owner": "",
            }
            assert expected.items() <= rows["pod"].items()
            assert rows["stuck"]["scheduled"] == rows["stuck"]["managed"] == "false"
            where = {"name": "stuck", "namespace": "default"}
            assert env.metric("karpenter_pods_unbound_time_seconds", **where) >= 20
            assert env.metric("karpenter_pods_unstarted_time_seconds", **where) >= 20
            assert series(env, "karpenter_pods_unbound_time_seconds") == [where]
            for one in (pod, stuck):
                await env.client.delete(Pod, one.name, namespace="default")
            await env.wait(70)
            assert series(env, "karpenter_pods_state") == []
            assert series(env, "karpenter_pods_unbound_time_seconds") == []

    run_virtual(scenario())


def test_a_pools_series_go_with_it() -> None:
    """Limits, usage, budgets and conditions of a pool; none after its end."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _running(env, limits={"cpu": "10500m", "memory": "100Gi"})
            cpu = {"resource_type": "cpu", "nodepool": "default"}
            assert env.metric("karpenter_nodepools_limit", **cpu) == 10.5
            assert env.metric("karpenter_nodepools_usage", **cpu) == 2
            assert (
                env.metric("karpenter_nodepools_limit", resource_type="memory", nodepool="default")
                == 100 * 2**30
            )
            empty = {"nodepool": "default", "reason": "Empty"}
            assert env.metric("karpenter_nodepools_allowed_disruptions", **empty) == 1
            ready = {
                "namespace": "",
                "name": "default",
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
            }
            assert env.metric("operator_nodepool_status_condition_count", **ready) == 1
            await env.client.delete(NodePool, "default")
            await env.wait(60)
            for name in (
                "karpenter_nodepools_limit",
                "karpenter_nodepools_usage",
                "karpenter_nodepools_allowed_disruptions",
                "karpenter_nodepools_nodes_consuming_budgets",
                "operator_nodepool_status_condition_count",
            ):
                assert series(env, name) == [], name

    run_virtual(scenario())


def test_conditions_of_a_claim_are_metered_and_told() -> None:
    """Count and age of each condition, every transition as a counter, a duration and an event."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _running(env)
            claim = (await env.claims())[0]
            added = {"karpenter_kwok_sh_kwoknodeclass": "default", "karpenter_sh_nodepool": "default"}
            registered = {"type": "Registered", "status": "True", "reason": "Registered"}
            full = {"namespace": "", "name": claim.name, **registered, **added}
            prefix = "operator_nodeclaim_status_condition"
            assert env.metric(f"{prefix}_count", **full) == 1
            assert 20 < env.metric(f"{prefix}_current_status_seconds", **full) < 60
            assert env.metric(f"{prefix}_transitions_total", **registered, **added) == 1
            unknown = {"type": "Registered", "status": "Unknown", **added}
            assert env.metric(f"{prefix}_transition_seconds_count", **unknown) == 1
            (event,) = [e for e in await env.events("Registered") if e.involved_object.name == claim.name]
            assert event.message == (
                "Status condition transitioned, Type: Registered, Status: Unknown -> True, Reason: Registered"
            )
            nodes = series(env, "operator_node_status_condition_count")
            assert {"Ready"} <= {row["type"] for row in nodes}
            assert {row["karpenter_sh_initialized"] for row in nodes} == {"true"}

    run_virtual(scenario())


def test_ends_are_timed() -> None:
    """While a claim ends its time counts up; after it, its duration is observed and its series are gone."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            env.cloud.delete_seconds = 30.0
            await _running(env)
            claim = (await env.claims())[0]
            await env.client.delete(Pod, "pod", namespace="default")
            await env.client.delete(NodeClaim, claim.name)
            await env.wait(25)
            name = "operator_nodeclaim_termination_current_time_seconds"
            (row,) = series(env, name)
            assert row["name"] == claim.name
            assert env.metric(name, **row) >= 15
            await env.wait(60)
            assert series(env, name) == []
            left = series(env, "operator_nodeclaim_status_condition_count")
            assert claim.name not in {row["name"] for row in left}
            own = {k: v for k, v in row.items() if k.startswith("karpenter_")}
            assert env.metric("operator_nodeclaim_termination_duration_seconds_count", **own) == 1
            assert 30 <= env.metric("operator_nodeclaim_termination_duration_seconds_sum", **own) < 80
            ended = {e.involved_object.kind: e.message for e in await env.events("Finalized")}
            assert ended == {
                "Node": "Finalized karpenter.sh/termination",
                "NodeClaim": "Finalized karpenter.sh/termination",
            }

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("karpenter_nodeclaims_termination_duration_seconds", [2**k for k in range(12)]),
        ("karpenter_nodeclaims_instance_termination_duration_seconds", [2**k for k in range(11)]),
    ],
)
def test_durations_are_sorted_as_upstream_does(name: str, bounds: list[float]) -> None:
    """Into the same buckets, so that dashboards show the same."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await _running(env)
            await env.client.delete(Pod, "pod", namespace="default")
            await env.client.delete(NodeClaim, (await env.claims())[0].name)
            await env.wait(30)
            assert [float(row["le"]) for row in series(env, f"{name}_bucket")] == [*bounds, float("inf")]

    run_virtual(scenario())


def test_the_build_is_told() -> None:
    """One series with the value 1 says what runs here, also without per-object metrics."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=Settings(observability=False)) as env:
            (row,) = series(env, "karpenter_build_info")
            assert set(row) == {"version", "pythonversion", "arch"}
            assert env.metric("karpenter_build_info", **row) == 1
            await env.create(a_pod())
            await env.wait(40)
            assert series(env, "karpenter_pods_state") == []

    run_virtual(scenario())


def test_a_refresh_replaces_what_was_said_of_pods() -> None:
    """One series for each of many pods, however often they are looked at."""

    async def scenario() -> None:
        async with environment(rooms=()) as env:
            pods = some_pods(300, node_name="node", owner=an_owner("ReplicaSet"))
            a_node_object = a_node()
            controller = PodMetrics(env.operator.context)
            controller._pods.items = lambda: pods  # type: ignore[method-assign]
            controller._nodes.get = lambda *_: a_node_object  # type: ignore[method-assign]
            controller._refresh()
            controller._refresh()
            assert len(series(env, "karpenter_pods_state")) == len(pods)

    run_virtual(scenario())
