"""Which nodes can take a pod: kube-scheduler's filter plugins over all rows at once.

`evaluate` runs them in kube-scheduler's order and keeps every plugin's verdict, so that "why not" can be
told per node afterwards (`reasons`) without paying for it while pods fit.
"""

from collections import Counter as Tally
from collections.abc import Callable

import msgspec
import numpy as np

from karpenter.apis.core import Taint
from karpenter.embedded.scheduler.model import Bools, ClusterModel, Ints, NodeRow
from karpenter.embedded.scheduler.podclass import PodClass, Spread
from karpenter.embedded.scheduler.predicates import (
    UNSCHEDULABLE,
    affinity_holds,
    node_selector_holds,
    ports_conflict,
    untolerated,
)
from karpenter.embedded.scheduler.volumes import VolumePlan

HARD_EFFECTS = ("NoSchedule", "NoExecute")
UNSCHEDULABLE_REASON = "node(s) were unschedulable"
NAME_REASON = "node(s) didn't match the requested node name"
AFFINITY_REASON = "node(s) didn't match Pod's node affinity/selector"
PORTS_REASON = "node(s) didn't have free ports for the requested pod ports"
VOLUME_COUNT_REASON = "node(s) exceed max volume count"
VOLUME_AFFINITY_REASON = "node(s) had volume node affinity conflict"
VOLUME_BIND_REASON = "node(s) didn't find available persistent volumes to bind"
SPREAD_REASON = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL_REASON = f"{SPREAD_REASON} (missing required label)"
POD_AFFINITY_REASON = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY_REASON = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY_REASON = "node(s) didn't satisfy existing pods anti-affinity rules"


class Verdict(msgspec.Struct):
    """One plugin's answer: the rows it passes, and how to say why a row does not pass."""

    passes: Bools
    tally: Callable[[Bools], dict[str, int]]  # how often each reason holds among the rows given
    resolvable: bool  # evicting pods from the node could change the answer


class Evaluation(msgspec.Struct):
    """All plugins' answers for one pod."""

    feasible: Bools
    verdicts: list[Verdict]

    def resolvable(self, live: Bools) -> Bools:
        """Return the infeasible rows where evictions could help."""
        hopeless = np.zeros_like(live)
        for verdict in self.verdicts:
            if not verdict.resolvable:
                hopeless |= ~verdict.passes
        return live & ~self.feasible & ~hopeless


def _said(text: str) -> Callable[[Bools], dict[str, int]]:
    return lambda rows: {text: int(rows.sum())}


def taints_pass(model: ClusterModel, pod_class: PodClass) -> Bools:
    """Return the rows whose hard taints the class tolerates."""
    tolerations = pod_class.spec.tolerations
    return model.per_node(
        ("taints", pod_class.toleration_key),
        lambda node: untolerated(node.taints, tolerations, HARD_EFFECTS) is None,
    ).astype(np.bool_)


def affinity_passes(model: ClusterModel, pod_class: PodClass) -> Bools:
    """Return the rows that the class's node selector and required node affinity pick."""
    spec = pod_class.spec
    if pod_class.pinned is not None:  # daemon pods: each a class of its own, so nothing to keep
        passes = np.zeros_like(model.live)
        node = model.nodes.get(pod_class.pinned)
        if node is not None:
            passes[node.row] = affinity_holds(spec, node.labels, node.name)
        return passes
    return model.per_node(
        ("affinity", pod_class.affinity_key), lambda node: affinity_holds(spec, node.labels, node.name)
    ).astype(np.bool_)


def _unschedulable_passes(model: ClusterModel, pod_class: PodClass) -> Bools:
    cordon = [Taint(UNSCHEDULABLE, "", "NoSchedule")]
    tolerated = untolerated(cordon, pod_class.spec.tolerations, HARD_EFFECTS) is None
    return model.per_node(("cordon", tolerated), lambda node: tolerated or not node.unschedulable).astype(
        np.bool_
    )


def evaluate(
    model: ClusterModel, pod_class: PodClass, volumes: VolumePlan | None = None, *, key: str = ""
) -> Evaluation:
    """Run every filter for a pod of the class; `key` names the pod whose own promise does not hinder it."""
    verdicts = [
        Verdict(_unschedulable_passes(model, pod_class), _said(UNSCHEDULABLE_REASON), False),
        Verdict(taints_pass(model, pod_class), _taint_tally(model, pod_class), False),
        Verdict(affinity_passes(model, pod_class), _said(AFFINITY_REASON), False),
        _resources(model, pod_class, key),
    ]
    if pod_class.ports:
        verdicts.insert(3, Verdict(_ports_free(model, pod_class), _said(PORTS_REASON), True))
    if volumes is not None:
        verdicts.extend(_volumes(model, pod_class, volumes))
    if pod_class.hard_spread:
        verdicts.extend(_spread(model, pod_class))
    verdicts.extend(_pod_affinity(model, pod_class))
    feasible = model.live.copy()
    for verdict in verdicts:
        feasible &= verdict.passes
    return Evaluation(feasible, verdicts)


def reasons(model: ClusterModel, evaluation: Evaluation) -> dict[str, int]:
    """Return how many nodes each reason excludes; a node counts for its first failing plugin only."""
    total: Tally[str] = Tally()
    left = model.live.copy()
    for verdict in evaluation.verdicts:
        failing = left & ~verdict.passes
        if failing.any():
            total.update(verdict.tally(failing))
            left &= verdict.passes
    return dict(total)


def _taint_tally(model: ClusterModel, pod_class: PodClass) -> Callable[[Bools], dict[str, int]]:
    def say(rows: Bools) -> dict[str, int]:
        tolerations = pod_class.spec.tolerations

        def code(node: NodeRow) -> int:
            taint = untolerated(node.taints, tolerations, HARD_EFFECTS)
            return -1 if taint is None else model.code_of((taint.key, taint.value))

        codes = model.per_node(("taint-reason", pod_class.toleration_key), code)[rows]
        tally: dict[str, int] = {}
        for found, count in zip(*np.unique(codes, return_counts=True), strict=True):
            key, value = model.coded(int(found))
            tally[f"node(s) had untolerated taint {{{key}: {value}}}"] = int(count)
        return tally

    return say


def _resources(model: ClusterModel, pod_class: PodClass, key: str) -> Verdict:
    columns, amounts = model.request_vector(pod_class)
    free = model.alloc - model.used
    reserved = model.reserved(key, pod_class)
    if reserved is not None:
        free = free - reserved
    short = free[:, columns] < amounts
    names = list(model.columns)

    def say(rows: Bools) -> dict[str, int]:
        lacking = short[rows].sum(axis=0)
        found = {names[column]: int(count) for column, count in zip(columns, lacking, strict=True) if count}
        return {
            "Too many pods" if name == "pods" else f"Insufficient {name}": count
            for name, count in found.items()
        }

    passes: Bools = ~np.asarray(short.any(axis=1))
    return Verdict(passes, say, True)


def _ports_free(model: ClusterModel, pod_class: PodClass) -> Bools:
    passes = model.live.copy()
    for node in model.nodes.values():
        passes[node.row] = not any(
            ports_conflict(port, taken)
            for port in pod_class.ports
            for taken in node.ports.get((port.protocol, port.port), ())
        )
    return passes


def _volumes(model: ClusterModel, pod_class: PodClass, volumes: VolumePlan) -> list[Verdict]:
    verdicts = []
    limited = model.live.copy()
    for node in model.nodes.values():
        limited[node.row] = _attachable(node, volumes)
    verdicts.append(Verdict(limited, _said(VOLUME_COUNT_REASON), True))
    for reason, selectors in (
        (VOLUME_AFFINITY_REASON, volumes.bound_affinities),
        (VOLUME_BIND_REASON, volumes.allowed_topologies),
    ):
        for selector_key, selector in selectors:
            passes = model.per_node(
                ("volume", selector_key),
                lambda node, s=selector: node_selector_holds(s, node.labels, node.name),  # type: ignore[misc]
            ).astype(np.bool_)
            verdicts.append(Verdict(passes, _said(reason), False))
    return verdicts


def _attachable(node: NodeRow, volumes: VolumePlan) -> bool:
    if not node.volume_limits:
        return True
    wanted = set(volumes.attachments)
    for placed in node.pods.values():
        wanted.update(placed.volumes)
    tally = Tally(driver for driver, _ in wanted)
    return all(tally[driver] <= limit for driver, limit in node.volume_limits.items())


# --- pod topology spread ---------------------------------------------------------------------------------


def eligible_rows(model: ClusterModel, pod_class: PodClass, spread: Spread) -> Bools:
    """Return the rows whose pods a constraint counts, by its inclusion policies."""
    rows = model.live
    if spread.honour_affinity:
        rows = rows & affinity_passes(model, pod_class)
    if spread.honour_taints:
        rows = rows & taints_pass(model, pod_class)
    return rows


def domain_counts(codes: Ints, domains: int, counts: Ints, rows: Bools) -> tuple[Ints, Bools]:
    """Return the sum of `counts` per domain over `rows`, and which domains appear there at all."""
    inside = rows & (codes >= 0)
    chosen = codes[inside]
    sums = np.bincount(chosen, weights=counts[inside], minlength=domains).astype(np.int64)
    return sums, np.bincount(chosen, minlength=domains) > 0


def _spread(model: ClusterModel, pod_class: PodClass) -> list[Verdict]:
    keyed = [(spread, *model.codes(spread.topology_key)) for spread in pod_class.hard_spread]
    labelled = np.ones_like(model.live)
    for _, codes, _ in keyed:
        labelled &= codes >= 0
    verdicts = [Verdict(labelled, _said(SPREAD_LABEL_REASON), False)]
    for spread, codes, domains in keyed:
        counts = model.count([spread.matcher], terminating=False)
        rows = eligible_rows(model, pod_class, spread) & labelled
        sums, present = domain_counts(codes, domains, counts, rows)
        least = int(sums[present].min()) if present.any() else 0
        if int(present.sum()) < spread.min_domains:
            least = 0
        # A row outside the eligible domains counts as one without matching pods, as in kube-scheduler.
        here = np.where(codes >= 0, np.append(sums, 0)[codes], 0)
        skew = here + int(spread.counts_self) - least
        verdicts.append(Verdict(skew <= spread.max_skew, _said(SPREAD_REASON), True))
    return verdicts


# --- inter-pod affinity ----------------------------------------------------------------------------------


def _domain_has(model: ClusterModel, topology_key: str, counts: Ints) -> Bools:
    codes, domains = model.codes(topology_key)
    if not counts.any():
        return np.zeros_like(model.live)
    sums, _ = domain_counts(codes, domains, counts, model.live)
    found: Bools = np.append(sums, 0)[codes] > 0
    return found


def _pod_affinity(model: ClusterModel, pod_class: PodClass) -> list[Verdict]:
    verdicts = []
    if pod_class.affinity:
        verdicts.append(Verdict(_attracted(model, pod_class), _said(POD_AFFINITY_REASON), False))
    for term in pod_class.anti_affinity:
        taken = _domain_has(model, term.topology_key, model.count([term.matcher], terminating=True))
        verdicts.append(Verdict(~taken, _said(POD_ANTI_AFFINITY_REASON), True))
    for term, holders in model.holders(pod_class, "anti"):
        if holders.any():
            taken = _domain_has(model, term.topology_key, holders)
            verdicts.append(Verdict(~taken, _said(EXISTING_ANTI_AFFINITY_REASON), True))
    return verdicts


def _attracted(model: ClusterModel, pod_class: PodClass) -> Bools:
    terms = pod_class.affinity
    labelled = np.ones_like(model.live)
    for term in terms:
        labelled &= model.codes(term.topology_key)[0] >= 0
    counts = model.count([term.matcher for term in terms], terminating=True)
    located = np.zeros_like(model.live)
    for term in terms:
        located |= (counts > 0) & (model.codes(term.topology_key)[0] >= 0)
    if not located.any() and all(model.picked(term.matcher, pod_class) for term in terms):
        return labelled  # the first of a group that attracts itself may go anywhere
    passes = labelled
    for term in terms:
        passes = passes & _domain_has(model, term.topology_key, counts)
    return passes
