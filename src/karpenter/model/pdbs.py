"""Which PodDisruptionBudgets stand in the way of evicting pods: one by one, and several pods together."""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from karpenter.apis.core import Pod
from karpenter.apis.selectors import label_selector_matches
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.model import pods as podlib

Answer = Literal["yes", "notNow", "never"]
"""What a budget says to an eviction: it may happen, it has to wait, or waiting will not help."""

_UNASKED_PHASES = ("Succeeded", "Failed", "Pending")


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that budgets do not let go all at once."""

    budgets: tuple[str, ...]
    """Keys of the budgets: one, or several that cover the same pod."""
    pods: tuple[str, ...]
    """Keys of the pods that would each take one of its disruptions, sorted."""
    allowed: int
    """How many of them may go now."""
    at_best: int
    """How many may go at once when all pods of the budget are healthy; 0: none ever."""

    @property
    def permanent(self) -> bool:
        """Waiting will never help."""
        return self.at_best <= 0


class Joint(msgspec.Struct, frozen=True, kw_only=True):
    """What budgets say to evicting some pods together."""

    shortages: tuple[Shortage, ...] = ()
    """Sorted by their budgets; empty when all pods may go now, at once."""
    going: tuple[str, ...] = ()
    """Keys of the pods that may go now, side by side, sorted: of those that share a budget the first ones."""
    rounds: int = 1
    """How many times at least one has to evict and wait for stand-ins until all have gone; counted without
    those that can never go."""

    @property
    def all_now(self) -> bool:
        """All may be evicted now, at once."""
        return not self.shortages

    @property
    def all_ever(self) -> bool:
        """All may be evicted sooner or later, one after the other."""
        return not any(shortage.permanent for shortage in self.shortages)


class PdbLimits:
    """All budgets of a cluster at one moment."""

    def __init__(self, pdbs: Iterable[PodDisruptionBudget], stand_ins: Collection[str] = ()) -> None:
        """Index `pdbs` by one label that they select, or by namespace.

        `stand_ins` are keys of pods that a budget which can never let them go does not hold: their workload
        brings up another first.
        """
        self._stand_ins = stand_ins
        self._by_label: dict[tuple[str, str, str], list[PodDisruptionBudget]] = {}
        self._others: dict[str, list[PodDisruptionBudget]] = {}
        for pdb in sorted(pdbs, key=lambda p: p.key):
            selector = pdb.spec.selector
            if selector is not None and selector.match_labels:
                label = min(selector.match_labels.items())
                self._by_label.setdefault((pdb.namespace, *label), []).append(pdb)
            elif selector is not None:
                self._others.setdefault(pdb.namespace, []).append(pdb)

    def matching(self, pod: Pod) -> list[PodDisruptionBudget]:
        """Return the budgets that cover `pod`, by name."""
        namespace, by_label = pod.namespace, self._by_label
        found = list(self._others.get(namespace, ()))
        for label in pod.metadata.labels.items():
            found.extend(by_label.get((namespace, *label), ()))
        covering = [p for p in found if label_selector_matches(p.spec.selector, pod.metadata.labels)]
        return sorted(covering, key=_key) if len(covering) > 1 else covering

    def blocking(self, pod: Pod, now: float) -> str:
        """Return why budgets forbid evicting `pod` now; empty when they don't.

        Pods that nobody would evict anyway (mirror, do-not-disrupt, …) are not held by budgets.
        """
        covering = self.matching(pod)
        if not covering or not podlib.is_evictable(pod, now):
            return ""
        if len(covering) > 1:
            return _several(covering)
        for pdb in covering:
            if _lets_unhealthy_go(pdb, pod) or (pod.key in self._stand_ins and can_never_allow(pdb)):
                continue
            if pdb.status.disruptions_allowed == 0:
                return f"pdb prevents pod evictions (PodDisruptionBudget=[{pdb.key}])"
        return ""

    def fully_blocking(self, pod: Pod, now: float | None = None) -> str:
        """Return why budgets will never let `pod` go, whatever its peers do; empty when they may.

        With `now`, pods that no one would evict (do-not-disrupt, mirror, …) are not held by budgets either.
        """
        if now is not None and not podlib.is_evictable(pod, now):
            return ""
        covering = self.matching(pod)
        if len(covering) > 1:
            return _several(covering)
        for pdb in covering:
            if _lets_unhealthy_go(pdb, pod) or pod.key in self._stand_ins:
                continue
            if can_never_allow(pdb):
                return f"pdb never allows a pod eviction (PodDisruptionBudget=[{pdb.key}])"
        return ""

    def joint(self, pods: Sequence[Pod], now: float) -> Joint:
        """Return what budgets say to evicting `pods` together, as the Eviction API would count.

        Pods that no one would evict, or that may go without asking, take nothing from any budget.
        """
        asking = sorted((p for p in pods if podlib.is_evictable(p, now)), key=lambda p: p.key)
        held: dict[tuple[str, ...], list[str]] = {}
        budgets: dict[tuple[str, ...], PodDisruptionBudget] = {}
        going: list[str] = []
        for pod in asking:
            covering = self.matching(pod)
            if not covering or not _asks(pod, covering):
                going.append(pod.key)
                continue
            names = tuple(pdb.key for pdb in covering)
            held.setdefault(names, []).append(pod.key)
            budgets[names] = covering[0]
        shortages, rounds = [], 1
        for names, keys in sorted(held.items()):
            allowed, at_best = _room(budgets[names]) if len(names) == 1 else (0, 0)
            going.extend(keys[:allowed])
            if len(keys) > allowed:
                shortages.append(
                    Shortage(budgets=names, pods=tuple(keys), allowed=allowed, at_best=max(allowed, at_best))
                )
            if at_best > 0:
                rounds = max(rounds, -(-len(keys) // at_best))
        return Joint(shortages=tuple(shortages), going=tuple(sorted(going)), rounds=rounds)


def answer(pdb: PodDisruptionBudget, pod: Pod) -> Answer:
    """Return what the Eviction API would say to evicting `pod`, if `pdb` is the one budget that covers it."""
    if not _asks(pod, [pdb]):
        return "yes"
    if is_fresh(pdb) and pdb.status.disruptions_allowed > 0:
        return "yes"
    return "never" if can_never_allow(pdb) else "notNow"


def can_never_allow(pdb: PodDisruptionBudget) -> bool:
    """Tell whether the budget keeps all of its pods, however healthy they are.

    That is so by its own words (`maxUnavailable: 0`, `minAvailable: 100%`), or because as many pods must stay
    as there are (`minAvailable: 1` over one replica).
    """
    if str(pdb.spec.max_unavailable) in ("0", "0%") or str(pdb.spec.min_available) == "100%":
        return True
    status = pdb.status
    return is_fresh(pdb) and 0 < status.expected_pods <= status.desired_healthy


def is_fresh(pdb: PodDisruptionBudget) -> bool:
    """Tell whether the budget's status was worked out from its spec as it is now."""
    return pdb.status.observed_generation >= pdb.metadata.generation


def is_ready(pod: Pod) -> bool:
    """Tell whether the pod is Ready, which is what budgets call healthy."""
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def _room(pdb: PodDisruptionBudget) -> tuple[int, int]:
    """Return how many pods may go now, and how many at once when all are healthy."""
    status = pdb.status
    allowed = max(0, status.disruptions_allowed) if is_fresh(pdb) else 0
    if can_never_allow(pdb):
        return allowed, 0
    return allowed, max(1, status.expected_pods - status.desired_healthy)


def _asks(pod: Pod, covering: Sequence[PodDisruptionBudget]) -> bool:
    """Tell whether evicting `pod` needs the consent of budgets: not before it runs or after it has ended, and
    not while it is not Ready, if its budget lets such pods go."""
    if pod.status.phase in _UNASKED_PHASES or pod.deleting:
        return False
    if len(covering) > 1 or is_ready(pod):
        return True
    (pdb,) = covering
    status = pdb.status
    return not (
        pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        or status.current_healthy >= status.desired_healthy > 0
    )


def _key(pdb: PodDisruptionBudget) -> str:
    return pdb.key


def _several(covering: list[PodDisruptionBudget]) -> str:
    names = " ".join(pdb.key for pdb in covering)
    return f"eviction does not support multiple PDBs (PodDisruptionBudget=[{names}])"


def _lets_unhealthy_go(pdb: PodDisruptionBudget, pod: Pod) -> bool:
    return pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and any(
        c.type == "Ready" and c.status == "False" for c in pod.status.conditions
    )
