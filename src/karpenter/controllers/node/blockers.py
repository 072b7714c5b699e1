"""Why a drain waits, in words with figures: the first thing to be asked when a node does not go."""

from karpenter.apis.core import Pod
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.model import pods as podlib
from karpenter.model.pdbs import PdbLimits


def why_not_evicted(pod: Pod, limits: PdbLimits, now: float) -> str:
    """Return what keeps `pod` from being evicted, with the arithmetic; empty when nothing seems to."""
    if podlib.do_not_disrupt_active(pod, now):
        return f"pod {pod.key} has annotation karpenter.sh/do-not-disrupt"
    covering = limits.matching(pod)
    if len(covering) > 1:
        names = ", ".join(pdb.name for pdb in covering)
        return f"pod {pod.key} is covered by several PodDisruptionBudgets ({names}): evictions take one"
    for pdb in covering:
        if pdb.status.disruptions_allowed == 0:
            return f"pod {pod.key} is held by {arithmetic(pdb)}"
    return ""


def arithmetic(pdb: PodDisruptionBudget) -> str:
    """Return a budget with its sum, and whether it can ever allow an eviction."""
    status = pdb.status
    rule = (
        f"minAvailable {pdb.spec.min_available}"
        if pdb.spec.min_available is not None
        else f"maxUnavailable {pdb.spec.max_unavailable}"
    )
    text = (
        f"PodDisruptionBudget {pdb.name}: {rule}, {status.current_healthy} healthy of "
        f"{status.expected_pods}, {status.desired_healthy} must stay"
    )
    never = status.expected_pods > 0 and status.desired_healthy >= status.expected_pods
    return f"{text}; it can never allow an eviction" if never else text
