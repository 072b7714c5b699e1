"""What the operator exports, by upstream's names and labels: dashboards depend on them."""

import pytest

from karpenter.base.virtualtime import run_virtual
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import environment

ENDED = ("reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode")
POD = ("name", "namespace")

OF_THE_GROUND = ("controller_runtime_", "workqueue_", "karpenter_kube_")
"""What caches and controllers export about themselves, whoever uses them."""

METRICS: dict[str, tuple[str, ...]] = {
    "karpenter_cluster_state_synced": (),
    "karpenter_cluster_state_unsynced_time_seconds": (),
    "karpenter_nodeclaims_created_total": ("reason", "nodepool", "min_values_relaxed"),
    "karpenter_nodeclaims_disrupted_total": ENDED,
    "karpenter_nodeclaims_instance_termination_duration_seconds": ("nodepool",),
    "karpenter_nodeclaims_terminated_total": ("nodepool", "capacity_type", "zone"),
    "karpenter_nodeclaims_termination_duration_seconds": ("nodepool",),
    "karpenter_nodepools_cost_total": ("nodepool",),
    "karpenter_nodepools_cost_tracker_errors_total": ("nodepool",),
    "karpenter_nodes_created_total": ("nodepool", "zone"),
    "karpenter_pods_bound_duration_seconds": (),
    "karpenter_pods_disruption_initiated_total": ENDED,
    "karpenter_pods_provisioning_bound_duration_seconds": (),
    "karpenter_pods_provisioning_scheduling_undecided_time_seconds": POD,
    "karpenter_pods_provisioning_startup_duration_seconds": (),
    "karpenter_pods_provisioning_unbound_time_seconds": POD,
    "karpenter_pods_provisioning_unstarted_time_seconds": POD,
    "karpenter_pods_scheduling_decision_duration_seconds": (),
    "karpenter_pods_startup_duration_seconds": (),
    "karpenter_scheduler_distrusted_plans_total": (),
    "karpenter_scheduler_ignored_pods_count": (),
    "karpenter_scheduler_pending_pods_by_effective_zone_count": ("controller", "zone"),
    "karpenter_scheduler_queue_depth": ("controller", "scheduling_id"),
    "karpenter_scheduler_scheduling_duration_seconds": ("controller",),
    "karpenter_scheduler_unfinished_work_seconds": ("controller", "scheduling_id"),
    "karpenter_scheduler_refused_pods": ("constraint",),
    "karpenter_scheduler_unschedulable_pods_count": ("controller",),
}
"""What provisioning, nodeclaim and nodepool are to export, with label names in order."""


def test_names_and_labels_are_upstreams() -> None:
    """Exactly these, all of them from the start, none with other labels."""

    async def scenario() -> None:
        async with environment() as env:
            declared = env.operator.metrics.declared()
            ours = {k: v for k, v in declared.items() if not k.startswith(OF_THE_GROUND)}
            assert ours == METRICS

    run_virtual(scenario())


def test_values_of_a_small_history() -> None:
    """A pod that gets a machine leaves its traces in every timing metric; a stuck one in every gauge."""

    async def scenario() -> None:
        async with environment() as env:
            assert env.metric("karpenter_cluster_state_synced") == 1
            assert env.metric("karpenter_cluster_state_unsynced_time_seconds") == 0
            env.cloud.join_seconds = 30.0
            await env.create(a_nodepool())
            pod = await env.create(a_pod(node_selector={"topology.kubernetes.io/zone": "zone-b"}))
            await env.wait(15)
            waits = {"name": pod.name, "namespace": pod.namespace}
            assert env.metric("karpenter_pods_provisioning_unbound_time_seconds", **waits) > 5
            assert env.metric("karpenter_pods_provisioning_unstarted_time_seconds", **waits) > 5
            await env.expect_scheduled([pod])
            await env.wait(30)
            assert env.metric("karpenter_pods_provisioning_unbound_time_seconds", **waits) == 0
            assert env.metric("karpenter_pods_scheduling_decision_duration_seconds_count") == 1
            for name in ("bound", "provisioning_bound", "startup", "provisioning_startup"):
                assert env.metric(f"karpenter_pods_{name}_duration_seconds_count") == 1, name
                assert 25 < env.metric(f"karpenter_pods_{name}_duration_seconds_sum") < 60, name
            claim = (await env.claims())[0]
            price = env.cluster.price(claim)
            assert price
            assert env.metric("karpenter_nodepools_cost_total", nodepool="default") == pytest.approx(price)

    run_virtual(scenario())


def test_waiting_pods_by_zone() -> None:
    """A pod counts for the zone it is tied to, or as flexible; when it is placed it counts no more."""

    async def scenario() -> None:
        async with environment() as env:
            key = "topology.kubernetes.io/zone"
            pods = [
                a_pod("tied", node_selector={key: "zone-b"}),
                a_pod("free"),
                a_pod("lost", node_selector={key: "nowhere"}),
            ]
            await env.create_all(pods)
            await env.wait(15)

            def count(zone: str) -> float:
                name = "karpenter_scheduler_pending_pods_by_effective_zone_count"
                return env.metric(name, controller="provisioner", zone=zone)

            assert [count(z) for z in ("zone-b", "flexible", "nowhere", "none")] == [1, 1, 1, 0]
            await env.create(a_nodepool())
            await env.wait(60)
            assert [count(z) for z in ("zone-b", "flexible", "nowhere")] == [0, 0, 1]

    run_virtual(scenario())
