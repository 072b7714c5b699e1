"""Which of the feasible nodes is best: kube-scheduler's score plugins with their default weights.

Not scored: image locality (simulated nodes hold no images).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from karpenter.base.randomness import Random
from karpenter.embedded.scheduler.filters import Evaluation, domain_counts, eligible_rows
from karpenter.embedded.scheduler.model import Bools, ClusterModel, Ints, NodeRow
from karpenter.embedded.scheduler.podclass import HOSTNAME, PodClass, spread_weight
from karpenter.embedded.scheduler.predicates import node_affinity, term_holds, tolerates

MAX_SCORE = 100
HARD_POD_AFFINITY_WEIGHT = 1
"""What an existing pod's required affinity for the newcomer counts, as in kube-scheduler."""

Floats = NDArray[np.float64]


def least_allocated(model: ClusterModel, pod_class: PodClass, rows: Ints) -> Ints:
    """Score how much of cpu and memory stays free, assuming something for pods that request nothing."""
    alloc = model.alloc[rows, :2]
    wanted = model.nonzero[rows] + np.array(pod_class.nonzero, np.int64)
    present = alloc > 0
    free = np.where(wanted > alloc, 0, (alloc - wanted) * MAX_SCORE // np.maximum(alloc, 1))
    result: Ints = np.where(present, free, 0).sum(axis=1) // np.maximum(present.sum(axis=1), 1)
    return result


def balanced_allocation(model: ClusterModel, pod_class: PodClass, rows: Ints) -> Ints:
    """Score how alike the used fractions of cpu and memory would be."""
    if pod_class.best_effort:
        return np.zeros(len(rows), np.int64)
    alloc = model.alloc[rows, :2]
    requests = np.array([pod_class.requests.get("cpu", 0), pod_class.requests.get("memory", 0)], np.int64)
    fractions = np.minimum(1.0, (model.used[rows, :2] + requests) / np.maximum(alloc, 1))
    present = (alloc > 0).all(axis=1)
    deviation = np.where(present, np.abs(fractions[:, 0] - fractions[:, 1]) / 2, 0.0)
    return ((1.0 - deviation) * MAX_SCORE).astype(np.int64)


def intolerable_taints(model: ClusterModel, pod_class: PodClass, rows: Ints) -> Ints:
    """Score few PreferNoSchedule taints that the class does not tolerate."""
    tolerations = [t for t in pod_class.spec.tolerations if t.effect in ("", "PreferNoSchedule")]

    def count(node: NodeRow) -> int:
        return sum(
            1
            for taint in node.taints
            if taint.effect == "PreferNoSchedule" and not any(tolerates(t, taint) for t in tolerations)
        )

    raw = model.per_node(("prefer-no", pod_class.toleration_key), count)[rows]
    return _scaled(raw, reverse=True)


def preferred_node_affinity(model: ClusterModel, pod_class: PodClass, rows: Ints) -> Ints:
    """Score the weights of the preferred node affinity terms that hold."""
    affinity = node_affinity(pod_class.spec)
    if affinity is None or not affinity.preferred:
        return np.zeros(len(rows), np.int64)
    preferred = affinity.preferred

    def weigh(node: NodeRow) -> int:
        return sum(t.weight for t in preferred if term_holds(t.preference, node.labels, node.name))

    return _scaled(model.per_node(("preferred", pod_class.affinity_key), weigh)[rows])


def topology_spread(model: ClusterModel, pod_class: PodClass, rows: Ints) -> Ints:
    """Score few matching pods in the node's domains, by the soft spread constraints."""
    constraints = pod_class.soft_spread
    if not constraints:
        return np.zeros(len(rows), np.int64)
    keyed = [(c, *model.codes(c.topology_key)) for c in constraints]
    ignored = np.zeros(len(model.live), np.bool_)
    if not pod_class.spread_is_default:  # the system's own constraints do not insist on the labels
        for _, codes, _ in keyed:
            ignored |= codes < 0
    considered: Bools = ~ignored[rows]
    raw: Floats = np.zeros(len(rows))
    for constraint, codes, domains in keyed:
        counts = model.count([constraint.matcher], terminating=False)
        here = codes[rows]
        if constraint.topology_key == HOSTNAME:
            size = int(considered.sum())
            found = counts[rows].astype(np.float64)
        else:
            size = len(np.unique(here[considered & (here >= 0)]))
            eligible = eligible_rows(model, pod_class, constraint) & ~ignored
            sums, _ = domain_counts(codes, domains, counts, eligible)
            found = np.append(sums, 0)[here].astype(np.float64)
        weighed = found * spread_weight(size) + (constraint.max_skew - 1)
        raw += np.where(here >= 0, weighed, 0.0)
    scores = np.rint(raw).astype(np.int64)
    kept = scores[considered]
    if not len(kept):
        return np.zeros(len(rows), np.int64)
    low, high = int(kept.min()), int(kept.max())
    scaled = (
        np.full(len(rows), MAX_SCORE, np.int64) if high == 0 else MAX_SCORE * (high + low - scores) // high
    )
    result: Ints = np.where(considered, scaled, 0)
    return result


def inter_pod_affinity(model: ClusterModel, pod_class: PodClass, rows: Ints) -> Ints:
    """Score the pods around that the class prefers or shuns, and those around that prefer or shun it."""
    raw: Ints = np.zeros(len(model.live), np.int64)
    terms = [
        (term.topology_key, term.weight, model.count([term.matcher], terminating=True))
        for term in pod_class.preferred
    ]
    terms += [(t.topology_key, t.weight, held) for t, held in model.holders(pod_class, "preferred")]
    terms += [
        (t.topology_key, HARD_POD_AFFINITY_WEIGHT, held) for t, held in model.holders(pod_class, "required")
    ]
    for topology_key, weight, counts in terms:
        codes, domains = model.codes(topology_key)
        sums, _ = domain_counts(codes, domains, counts, model.live)
        raw += weight * np.append(sums, 0)[codes]
    chosen = raw[rows]
    low, high = int(chosen.min()), int(chosen.max())
    if high == low:
        return np.zeros(len(rows), np.int64)
    result: Ints = MAX_SCORE * (chosen - low) // (high - low)
    return result


Scorer = Callable[[ClusterModel, PodClass, Ints], Ints]
SCORERS: tuple[tuple[Scorer, int], ...] = (
    (least_allocated, 1),
    (balanced_allocation, 1),
    (intolerable_taints, 3),
    (preferred_node_affinity, 2),
    (topology_spread, 2),
    (inter_pod_affinity, 2),
)


def total_scores(model: ClusterModel, pod_class: PodClass, rows: Ints) -> Ints:
    """Return the weighted sum of all scores for the feasible `rows` (not empty)."""
    total: Ints = np.zeros(len(rows), np.int64)
    for scorer, weight in SCORERS:
        total += weight * scorer(model, pod_class, rows)
    return total


def chosen(
    model: ClusterModel, pod_class: PodClass, evaluation: Evaluation, nominated: str, rng: Random
) -> str | None:
    """Return where a pod of the class goes: to its nominated node if it can, else to one of the best."""
    promised = model.nodes.get(nominated)
    if promised is not None and evaluation.feasible[promised.row]:
        return nominated
    rows = np.flatnonzero(evaluation.feasible)
    if len(rows) == 0:
        return None
    if len(rows) > 1:
        scores = total_scores(model, pod_class, rows)
        rows = rows[scores == scores.max()]
    names = sorted(model.rows[row].name for row in rows.tolist())  # type: ignore[union-attr]
    return names[0] if len(names) == 1 else rng.choice(names)


def _scaled(raw: Ints, *, reverse: bool = False) -> Ints:
    high = int(raw.max()) if len(raw) else 0
    if high == 0:
        return np.full(len(raw), MAX_SCORE if reverse else 0, np.int64)
    scaled: Ints = MAX_SCORE * raw // high
    return MAX_SCORE - scaled if reverse else scaled
