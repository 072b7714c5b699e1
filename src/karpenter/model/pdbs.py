"""Which PodDisruptionBudgets stand in the way of evicting a pod."""

from collections.abc import Iterable

from karpenter.apis.core import Pod
from karpenter.apis.selectors import label_selector_matches
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.model import pods


class PdbLimits:
    """All budgets of a cluster at one moment. Pods are looked at one by one, not jointly."""

    def __init__(self, pdbs: Iterable[PodDisruptionBudget]) -> None:
        """Index `pdbs` by namespace, in order of name."""
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for pdb in sorted(pdbs, key=lambda p: p.key):
            self._by_namespace.setdefault(pdb.namespace, []).append(pdb)

    def matching(self, pod: Pod) -> list[PodDisruptionBudget]:
        """Return the budgets that cover `pod`, by name."""
        return [
            pdb
            for pdb in self._by_namespace.get(pod.namespace, ())
            if label_selector_matches(pdb.spec.selector, pod.metadata.labels)
        ]

    def blocking(self, pod: Pod, now: float) -> str:
        """Return why budgets forbid evicting `pod` now; empty when they don't.

        Pods that nobody would evict anyway (mirror, do-not-disrupt, …) are not held by budgets.
        """
        if not pods.is_evictable(pod, now):
            return ""
        covering = self.matching(pod)
        if len(covering) > 1:
            return _several(covering)
        for pdb in covering:
            if _lets_unhealthy_go(pdb, pod):
                continue
            if pdb.status.disruptions_allowed == 0:
                return f"pdb prevents pod evictions (PodDisruptionBudget=[{pdb.key}])"
        return ""

    def fully_blocking(self, pod: Pod, now: float | None = None) -> str:
        """Return why budgets will never let `pod` go, whatever its peers do; empty when they may.

        With `now`, pods that no one would evict (do-not-disrupt, mirror, …) are not held by budgets either.
        """
        if now is not None and not pods.is_evictable(pod, now):
            return ""
        covering = self.matching(pod)
        if len(covering) > 1:
            return _several(covering)
        for pdb in covering:
            if _lets_unhealthy_go(pdb, pod):
                continue
            if str(pdb.spec.max_unavailable) in ("0", "0%") or str(pdb.spec.min_available) == "100%":
                return f"pdb never allows a pod eviction (PodDisruptionBudget=[{pdb.key}])"
        return ""


def _several(covering: list[PodDisruptionBudget]) -> str:
    names = " ".join(pdb.key for pdb in covering)
    return f"eviction does not support multiple PDBs (PodDisruptionBudget=[{names}])"


def _lets_unhealthy_go(pdb: PodDisruptionBudget, pod: Pod) -> bool:
    return pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and any(
        c.type == "Ready" and c.status == "False" for c in pod.status.conditions
    )
