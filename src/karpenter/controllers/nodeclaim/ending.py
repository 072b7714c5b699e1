"""Deleting a NodeClaim on our own account, and counting it."""

from prometheus_client import Counter

from karpenter.apis import labels
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.duration import parse_duration
from karpenter.base.metrics import Metrics
from karpenter.controllers.context import Context
from karpenter.kube.errors import NotFound

_LABELS = ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"]


async def delete_claim(context: Context, claim: NodeClaim, reason: str, *, pods: int | None = None) -> bool:
    """Delete `claim` because of `reason` (in the metric's words); tell whether its end began with this call.

    It did not when the claim is gone, or when we had it deleted before and the watch has not said so yet:
    then nothing is counted. `pods` counts the pods that are disrupted by it, where it has any.
    """
    try:
        await context.client.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
    except NotFound:
        return False
    if not context.cluster.note_claim_ended(claim):
        return False
    count_disrupted(context, claim, reason, pods=pods)
    return True


def count_disrupted(
    context: Context,
    claim: NodeClaim,
    reason: str,
    *,
    consolidation_policy: str = "",
    pods: int | None = None,
) -> None:
    """Count a claim (and its pods) whose end we began."""
    values = (
        reason,
        claim.metadata.labels.get(labels.NODEPOOL, ""),
        claim.metadata.labels.get(labels.CAPACITY_TYPE, ""),
        consolidation_policy,
        termination_mode(claim),
    )
    claims_counter, pods_counter = counters(context.metrics)
    claims_counter.labels(*values).inc()
    if pods is not None:
        pods_counter.labels(*values).inc(pods)


def counters(metrics: Metrics) -> tuple[Counter, Counter]:
    """Return the counters of claims whose end we began, and of the pods on them."""
    return (
        metrics.counter(
            "karpenter_nodeclaims_disrupted", "NodeClaims whose deletion Karpenter began.", _LABELS
        ),
        metrics.counter(
            "karpenter_pods_disruption_initiated", "Pods on nodes whose deletion Karpenter began.", _LABELS
        ),
    )


def termination_mode(claim: NodeClaim) -> str:
    """Return how patient the end of `claim` is: graceful (without limit), eventual, or forceful."""
    period = claim.spec.termination_grace_period
    if period is None:
        return "graceful"
    return "eventual" if parse_duration(period) > 0 else "forceful"
