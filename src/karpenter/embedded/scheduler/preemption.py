"""Whom to evict so that a more important pod fits: kube-scheduler's default preemption.

The model is used as its own sandbox: victims are removed, filters asked, pods put back one by one while the
newcomer still fits (the most important first), and everything is restored before returning.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.embedded.scheduler.filters import Evaluation, evaluate
from karpenter.embedded.scheduler.model import ClusterModel, NodeRow, Placed
from karpenter.embedded.scheduler.podclass import PodClass
from karpenter.embedded.scheduler.predicates import label_selector_holds
from karpenter.embedded.scheduler.volumes import VolumePlan

MAX_CANDIDATES = 100


class Eviction(msgspec.Struct, frozen=True):
    """The node to clear and the pods to delete there."""

    node: str
    victims: tuple[Placed, ...]


def find_eviction(
    model: ClusterModel,
    pod_class: PodClass,
    evaluation: Evaluation,
    budgets: Sequence[PodDisruptionBudget] = (),
    volumes: VolumePlan | None = None,
    *,
    key: str = "",
) -> Eviction | None:
    """Return the least harmful eviction that makes room for a pod of the class (None: there is none).

    Candidates are nodes whose refusal evictions can change. Preferred, in this order: fewest budget
    violations, least important worst victim, smallest sum of priorities, fewest victims, the latest started
    worst victim, then the node's name.
    """
    if not pod_class.may_preempt:
        return None
    best: tuple[tuple[int, int, int, int, str, str], Eviction] | None = None
    tried = 0
    for row in _promising(model, pod_class, evaluation):
        node = model.rows[row]
        assert node is not None
        found = _victims(model, pod_class, node, budgets, volumes, key)
        if found is None:
            continue
        victims, violations = found
        worst = max(v.pod_class.priority for v in victims)
        started = max(v.start_time for v in victims if v.pod_class.priority == worst)
        rank = (
            violations,
            worst,
            sum(v.pod_class.priority + (1 << 31) for v in victims),
            len(victims),
            _descending(started),
            node.name,
        )
        if best is None or rank < best[0]:
            best = (rank, Eviction(node.name, tuple(victims)))
        tried += 1
        if tried >= MAX_CANDIDATES:
            break
    return best[1] if best else None


def _promising(model: ClusterModel, pod_class: PodClass, evaluation: Evaluation) -> list[int]:
    # Cheap first: would the pod's requests fit if everything less important were gone?
    columns, amounts = model.request_vector(pod_class)
    rows = []
    for row in np.flatnonzero(evaluation.resolvable(model.live)).tolist():
        node = model.rows[row]
        assert node is not None
        lower = [p for p in node.pods.values() if p.pod_class.priority < pod_class.priority]
        if not lower:
            continue
        free = model.alloc[row] - model.used[row]
        for placed in lower:
            own_columns, own_amounts = model.request_vector(placed.pod_class)
            free[own_columns] += own_amounts
        if (free[columns] >= amounts).all():
            rows.append(row)
    return sorted(rows, key=lambda row: model.rows[row].name)  # type: ignore[union-attr]


def _victims(
    model: ClusterModel,
    pod_class: PodClass,
    node: NodeRow,
    budgets: Sequence[PodDisruptionBudget],
    volumes: VolumePlan | None,
    key: str,
) -> tuple[list[Placed], int] | None:
    lower = [p for p in node.pods.values() if p.pod_class.priority < pod_class.priority]
    removed = {placed.key: placed for placed in lower}
    for placed in lower:
        model.remove(placed.key)

    def fits() -> bool:
        return bool(evaluate(model, pod_class, volumes, key=key).feasible[node.row])

    victims: list[Placed] = []
    violations = 0
    try:
        if not fits():
            return None
        violating = violates_budgets(lower, budgets)
        # Spare first what budgets protect, then the most important, then the longest running.
        order = sorted(
            lower, key=lambda p: (p.key not in violating, -p.pod_class.priority, p.start_time, p.key)
        )
        for placed in order:
            model.place(placed)
            if fits():
                del removed[placed.key]
            else:
                model.remove(placed.key)
                victims.append(placed)
                violations += placed.key in violating
    finally:
        for placed in removed.values():
            model.place(placed)
    return (victims, violations) if victims else None


def violates_budgets(pods: Sequence[Placed], budgets: Sequence[PodDisruptionBudget]) -> set[str]:
    """Return the keys of pods that, evicted in order of importance, would exceed some budget."""
    allowed = {budget.key: budget.status.disruptions_allowed for budget in budgets}
    violating: set[str] = set()
    for placed in sorted(pods, key=lambda p: (-p.pod_class.priority, p.key)):
        for budget in budgets:
            if budget.namespace != placed.pod_class.namespace:
                continue
            if not label_selector_holds(budget.spec.selector, placed.pod_class.labels):
                continue
            allowed[budget.key] -= 1
            if allowed[budget.key] < 0:
                violating.add(placed.key)
    return violating


def _descending(text: str) -> str:
    # Timestamps compare as text; the complement of each character turns their order round.
    return "".join(chr(0x10FF - ord(c)) for c in text)
