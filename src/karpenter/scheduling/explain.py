"""Refusals and plans put into words, and into JSON."""

from typing import Any

import msgspec

from karpenter.model.problem import Plan
from karpenter.model.reasons import Refusal, Unschedulable

_NAMES = {
    "requirements": "labels",
    "resources": "resources",
    "offering": "offerings",
    "limits": "limits",
    "hostPorts": "host ports",
}


def refusal_text(refusal: Refusal) -> str:
    """Return one refusal as a line: the place, why, how many types fell to what, and what would help."""
    text = f"{refusal.place}: {refusal.message}" if refusal.place else refusal.message
    removed = refusal.detail.get("removed", {})
    types = refusal.detail.get("instanceTypes")
    if types:
        counts = [f"{_NAMES.get(k, k)} rule out {n}" for k, n in removed.items() if n]
        text += f" ({', '.join(counts)} of {types} instance types)" if counts else ""
    return f"{text}; {refusal.remedy}" if refusal.remedy else text


def unschedulable_text(refused: Unschedulable) -> str:
    """Return why a pod could not be placed, one line per place that was tried."""
    lines = [f"pod {refused.pod} cannot be scheduled:"]
    lines += [f"  - {refusal_text(r)}" for r in refused.refusals]
    return "\n".join(lines)


def unschedulable_json(refused: Unschedulable) -> dict[str, Any]:
    """Return the same as plain data, ready for JSON."""
    return {
        "pod": refused.pod,
        "message": str(refused),
        "refusals": [msgspec.to_builtins(r) for r in refused.refusals],
    }


def plan_text(plan: Plan) -> str:
    """Return a plan in a few lines: what it costs, what it buys, and whom it leaves out."""
    placed = sum(len(keys) for keys in plan.placements.values())
    bought = sum(len(claim.pods) for claim in plan.claims)
    lines = [
        f"{bought} pods on {len(plan.claims)} new nodes, {placed} on existing ones, "
        f"{len(plan.unschedulable)} left out; {cost_text(plan)}"
    ]
    for claim in plan.claims:
        more = f" or {len(claim.instance_types) - 1} others" if len(claim.instance_types) > 1 else ""
        lines.append(
            f"  {claim.pool.name}: {claim.instance_types[0]}{more}, "
            f"${claim.price:.4f}/h, {len(claim.pods)} pods"
        )
    lines += [unschedulable_text(u) for u in plan.unschedulable]
    return "\n".join(lines)


def cost_text(plan: Plan) -> str:
    """Return cost, bound and gap: `cost $12.40/h, ≥ $12.11/h possible, gap 2.4 %`."""
    text = f"cost ${plan.cost:.2f}/h"
    if plan.lower_bound:
        gap = 100 * (plan.cost / plan.lower_bound - 1)
        text += f", ≥ ${plan.lower_bound:.2f}/h possible, gap {gap:.1f} %"
    return text
