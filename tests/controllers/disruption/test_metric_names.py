"""What disruption exports, by upstream's names and labels, and a few of its own."""

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption
from karpenter.testing.environment import environment

COMMAND = ("decision", "reason", "consolidation_type")
MOVE = ("decision", "nodepool", "policy")
OF_THE_GROUND = ("controller_runtime_", "workqueue_", "karpenter_kube_")

METRICS: dict[str, tuple[str, ...]] = {
    "karpenter_consolidation_moves_total": MOVE,
    "karpenter_consolidation_score": MOVE,
    "karpenter_nodepools_allowed_disruptions": ("nodepool", "reason"),
    "karpenter_nodepools_drift_halted": ("nodepool",),
    "karpenter_nodepools_drift_replacements_failed_total": ("nodepool",),
    "karpenter_nodepools_nodes_consuming_budgets": ("nodepool", "reason"),
    "karpenter_voluntary_disruption_consolidation_timeouts_total": ("consolidation_type",),
    "karpenter_voluntary_disruption_decision_evaluation_duration_seconds": ("reason", "consolidation_type"),
    "karpenter_voluntary_disruption_decisions_by_nodepool_total": ("nodepool", *COMMAND),
    "karpenter_voluntary_disruption_decisions_total": COMMAND,
    "karpenter_voluntary_disruption_eligible_nodes": ("reason",),
    "karpenter_voluntary_disruption_failed_validations_total": ("consolidation_type",),
    "karpenter_voluntary_disruption_moved_pods_total": ("reason",),
    "karpenter_voluntary_disruption_queue_failures_total": COMMAND,
    "karpenter_voluntary_disruption_restart_cost_dollars_total": ("reason",),
    "karpenter_voluntary_disruption_savings_dollars_per_hour_total": ("reason",),
    "karpenter_voluntary_disruption_verdicts": ("method", "code"),
}


def test_names_and_labels() -> None:
    """All of them from the start; timeouts of both kinds begin at nothing."""

    async def scenario() -> None:
        async with environment(rooms=(disruption,)) as env:
            declared = env.operator.metrics.declared()
            ours = {k: v for k, v in declared.items() if not k.startswith(OF_THE_GROUND)}
            assert ours == METRICS
            for kind in ("multi", "single"):
                name = "karpenter_voluntary_disruption_consolidation_timeouts_total"
                assert env.operator.metrics.registry.get_sample_value(name, {"consolidation_type": kind}) == 0

    run_virtual(scenario())
