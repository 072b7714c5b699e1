"""What nodes, disruption and the metrics controllers export, by upstream's names and labels."""

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption, metrics, node
from karpenter.controllers.metrics.nodes import NodeMetrics
from karpenter.testing.builders import a_node
from karpenter.testing.environment import environment

OF_THE_GROUND = ("controller_runtime_", "workqueue_", "karpenter_kube_")
NODE = (
    *("node_name", "phase", "managed", "capacity_type", "nodepool", "arch", "os"),
    *("instance_type", "windows_build", "region", "zone"),
)
AMOUNT = (*NODE, "resource_type")
DECISION = ("decision", "reason", "consolidation_type")
CLAIM = ("karpenter_kwok_sh_kwoknodeclass", "karpenter_sh_nodepool")

METRICS: dict[str, tuple[str, ...]] = {
    "karpenter_build_info": ("version", "pythonversion", "arch"),
    "karpenter_cluster_state_node_count": (),
    "karpenter_cluster_utilization_percent": ("resource_type",),
    "karpenter_nodepools_allowed_disruptions": ("nodepool", "reason"),
    "karpenter_nodepools_limit": ("resource_type", "nodepool"),
    "karpenter_nodepools_nodes_consuming_budgets": ("nodepool", "reason"),
    "karpenter_nodepools_usage": ("resource_type", "nodepool"),
    "karpenter_nodes_allocatable": AMOUNT,
    "karpenter_nodes_current_lifetime_seconds": NODE,
    "karpenter_nodes_drained_total": ("nodepool",),
    "karpenter_nodes_lifetime_duration_seconds": ("nodepool",),
    "karpenter_nodes_system_overhead": AMOUNT,
    "karpenter_nodes_terminated_total": ("nodepool", "zone"),
    "karpenter_nodes_termination_duration_seconds": ("nodepool",),
    "karpenter_nodes_total_daemon_limits": AMOUNT,
    "karpenter_nodes_total_daemon_requests": AMOUNT,
    "karpenter_nodes_total_pod_limits": AMOUNT,
    "karpenter_nodes_total_pod_requests": AMOUNT,
    "karpenter_pods_drained_total": ("reason",),
    "karpenter_pods_eviction_requests_total": ("code",),
    "karpenter_pods_state": (
        *("name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch"),
        *("capacity_type", "instance_type", "phase", "ready", "managed"),
    ),
    "karpenter_pods_unbound_time_seconds": ("name", "namespace"),
    "karpenter_pods_unstarted_time_seconds": ("name", "namespace"),
    "karpenter_voluntary_disruption_decision_evaluation_duration_seconds": ("reason", "consolidation_type"),
    "karpenter_voluntary_disruption_decisions_by_nodepool_total": ("nodepool", *DECISION),
    "karpenter_voluntary_disruption_decisions_total": DECISION,
    "karpenter_voluntary_disruption_eligible_nodes": ("reason",),
    "karpenter_voluntary_disruption_failed_validations_total": ("consolidation_type",),
}
for _kind, _own in (("nodeclaim", CLAIM), ("nodepool", ()), ("node", (*CLAIM, "karpenter_sh_initialized"))):
    _object = ("namespace", "name")
    _condition = f"operator_{_kind}_status_condition"
    METRICS |= {
        f"{_condition}_count": (*_object, "type", "status", "reason", *_own),
        f"{_condition}_current_status_seconds": (*_object, "type", "status", "reason", *_own),
        f"{_condition}_transition_seconds": ("type", "status", *_own),
        f"{_condition}_transitions_total": ("type", "status", "reason", *_own),
        f"operator_{_kind}_termination_current_time_seconds": (*_object, *_own),
        f"operator_{_kind}_termination_duration_seconds": _own,
    }


def test_names_and_labels_are_upstreams() -> None:
    """These are there from the start, with these labels."""

    async def scenario() -> None:
        async with environment(rooms=(node, disruption, metrics)) as env:
            declared = env.operator.metrics.declared()
            ours = {k: v for k, v in declared.items() if not k.startswith(OF_THE_GROUND)}
            for name, names in METRICS.items():
                assert name in ours, name
                assert sorted(ours[name]) == sorted(names), name

    run_virtual(scenario())


def test_labels_of_clouds_become_labels_of_metrics() -> None:
    """What Prometheus would refuse in a name is replaced; two labels of one name share it, as upstream."""

    async def scenario() -> None:
        async with environment(rooms=()) as env:
            provider = env.operator.provider
            own = ("a.example/gpu-name", "a.example/Disk.Kind", "a.example/3d", "b.example/gpu-name")
            provider.well_known_labels = frozenset(own)
            controller = NodeMetrics(env.operator.context)
            found = {own[0]: "t4", own[1]: "nvme", own[2]: "yes"}
            await env.create(a_node(labels=found))
            await env.wait(1)
            controller._refresh()
            (sample,) = [
                sample.labels
                for family in env.operator.metrics.registry.collect()
                for sample in family.samples
                if sample.name == "karpenter_nodes_current_lifetime_seconds"
            ]
            assert sample["gpu_name"] == "t4"
            assert sample["disk_kind"] == "nvme"
            assert sample["_3d"] == "yes"

    run_virtual(scenario())
