"""What the changes that would help cost: the problem is solved again as if each had been made.

Only what a change says on its face is tried: limits lifted, taints tolerated, one label of a selection or one
constraint about other pods given up. What asks for other machines or smaller pods has no price of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Affinity, NodeAffinity, Pod, PodAffinity, PodSpec, Toleration
from karpenter.model.pods import pod_key
from karpenter.model.problem import Budget, Plan, PoolOffer, Problem
from karpenter.model.reasons import Refusal
from karpenter.scheduling import solve
from karpenter.scheduling.purse import PRICE

_MOST_TRIALS = 12
_MOST_PODS = 60_000
"""In all trials together."""
_BUDGET = Budget(steps=30)
_EVERYTHING = Toleration(operator="Exists")

Cause = tuple[str, str, str]
"""Constraint, place and label of a refusal."""


class Outcome(NamedTuple):
    """What a change comes to."""

    places: int
    """How many of the equal pods without a place it gives one."""
    price: float | None
    """USD per hour that the plan costs more with it; None when it gives nobody a place."""


class Trial(NamedTuple):
    """A change to try: equal pods without a place, and one reason why."""

    pods: frozenset[str]
    alike: frozenset[str]
    """Those, and the ones that have a place: whoever changes one pod of a workload changes all."""
    refusal: Refusal


def priced(problem: Problem, plan: Plan) -> dict[tuple[str, Cause], Outcome]:
    """Return, by pod without a place and cause, what it would come to if the cause were removed.

    Prices compare plans that were searched for equally long, and are never below 0. Causes that cannot be
    tried, and those beyond a bounded number of trials, are missing.
    """
    found: dict[tuple[str, Cause], Outcome] = {}
    trials = [t for t in _trials(problem, plan) if _changed(problem, t) is not None]
    trials = trials[: min(_MOST_TRIALS, _MOST_PODS // max(1, len(problem.pods)))]
    if not trials:
        return found
    before = solve(problem, _BUDGET)
    for trial in trials:
        changed = _changed(problem, trial)
        if changed is None:
            continue
        after = solve(changed, _BUDGET)
        left = {u.pod for u in after.unschedulable}
        places = len(trial.pods - left)
        outcome = Outcome(places, max(0.0, round(after.cost - before.cost, 9)) if places else None)
        found.update({(pod, cause_of(trial.refusal)): outcome for pod in trial.pods})
    return found


def cause_of(refusal: Refusal) -> Cause:
    """Return what tells the causes of one pod's refusals apart."""
    return refusal.constraint, refusal.place, str(refusal.detail.get("key", ""))


def _trials(problem: Problem, plan: Plan) -> list[Trial]:
    """Return what to try, for pods that are equal once; the first pods by name come first."""
    if not plan.unschedulable:
        return []
    shapes = {pod_key(pod): _shape(pod) for pod in problem.pods}
    alike: dict[bytes, list[str]] = {}
    for key, shape in shapes.items():
        alike.setdefault(shape, []).append(key)
    groups: dict[tuple[bytes, tuple[Cause, ...]], tuple[list[str], Sequence[Refusal]]] = {}
    for refused in plan.unschedulable:
        group = (shapes[refused.pod], tuple(cause_of(r) for r in refused.refusals))
        groups.setdefault(group, ([], refused.refusals))[0].append(refused.pod)
    return [
        Trial(frozenset(keys), frozenset(alike[shape]), refusal)
        for (shape, _), (keys, refusals) in groups.items()
        for refusal in {cause_of(r): r for r in refusals}.values()
    ]


def _shape(pod: Pod) -> bytes:
    """Return what equal pods have in common."""
    return msgspec.json.encode((pod.namespace, sorted(pod.metadata.labels.items()), pod.spec))


def _changed(problem: Problem, trial: Trial) -> Problem | None:
    """Return `problem` as if the cause were removed; None when that cannot be tried."""
    change = _CHANGES.get(trial.refusal.constraint)
    return change(problem, trial) if change is not None else None


# --- changes to pools -----------------------------------------------------------------------------------


def _without_limits(problem: Problem, trial: Trial) -> Problem:
    """Lift the pool's limits: those on money if they are what binds, else the others."""
    money = trial.refusal.detail.get("limit") == PRICE

    def lifted(offer: PoolOffer) -> PoolOffer:
        if offer.pool.name != trial.refusal.place.removeprefix("nodepool/"):
            return offer
        left = {name: amount for name, amount in offer.remaining.items() if (name == PRICE) != money}
        return msgspec.structs.replace(offer, remaining=left)

    options = problem.options
    if money:
        options = msgspec.structs.replace(options, price_remaining=None)
    pools = tuple(lifted(offer) for offer in problem.pools)
    return msgspec.structs.replace(problem, pools=pools, options=options)


def _with_few_types(problem: Problem, trial: Trial) -> Problem:
    options = msgspec.structs.replace(problem.options, min_values_strict=False)
    return msgspec.structs.replace(problem, options=options)


# --- changes to pods ------------------------------------------------------------------------------------


def _with_pods(problem: Problem, trial: Trial, change: Callable[[PodSpec], PodSpec]) -> Problem:
    def new(pod: Pod) -> Pod:
        return msgspec.structs.replace(pod, spec=change(pod.spec)) if pod_key(pod) in trial.alike else pod

    return msgspec.structs.replace(problem, pods=tuple(new(pod) for pod in problem.pods))


def _tolerant(problem: Problem, trial: Trial) -> Problem:
    return _with_pods(
        problem,
        trial,
        lambda spec: msgspec.structs.replace(spec, tolerations=[*spec.tolerations, _EVERYTHING]),
    )


def _unselective(problem: Problem, trial: Trial) -> Problem | None:
    """Let the pods go without the one label that stands in the way."""
    key = str(trial.refusal.detail.get("key", ""))
    if not key:
        return None

    def change(spec: PodSpec) -> PodSpec:
        selector = {k: v for k, v in spec.node_selector.items() if known.ALIASES.get(k, k) != key}
        node_part = _without_label(spec.affinity.node_affinity if spec.affinity else None, key)
        affinity = msgspec.structs.replace(spec.affinity or Affinity(), node_affinity=node_part)
        return msgspec.structs.replace(spec, node_selector=selector, affinity=affinity)

    changed = _with_pods(problem, trial, change)
    return changed if changed.pods != problem.pods else None


def _without_label(affinity: NodeAffinity | None, key: str) -> NodeAffinity | None:
    """Return node affinity that no longer asks for `key`; a term without anything else asks for nothing."""
    if affinity is None or affinity.required is None:
        return affinity
    terms = [
        msgspec.structs.replace(
            term,
            match_expressions=[e for e in term.match_expressions if known.ALIASES.get(e.key, e.key) != key],
        )
        for term in affinity.required.node_selector_terms
    ]
    free = any(not term.match_expressions and not term.match_fields for term in terms)
    required = None if free else msgspec.structs.replace(affinity.required, node_selector_terms=terms)
    return msgspec.structs.replace(affinity, required=required)


def _unspread(problem: Problem, trial: Trial) -> Problem:
    """Let the pods' spread over the label be a wish."""
    key = trial.refusal.detail.get("key")

    def change(spec: PodSpec) -> PodSpec:
        constraints = [c for c in spec.topology_spread_constraints if key and c.topology_key != key]
        return msgspec.structs.replace(spec, topology_spread_constraints=constraints)

    return _with_pods(problem, trial, change)


def _uncompanied(problem: Problem, trial: Trial) -> Problem:
    """Let the pods go without their required affinity, or anti-affinity, over the label."""
    key = trial.refusal.detail.get("key")
    near = trial.refusal.constraint == "podAffinity"

    def free(part: PodAffinity | None) -> PodAffinity | None:
        if part is None:
            return None
        kept = [term for term in part.required if key and term.topology_key != key]
        return msgspec.structs.replace(part, required=kept)

    def change(spec: PodSpec) -> PodSpec:
        whole = spec.affinity or Affinity()
        if near:
            whole = msgspec.structs.replace(whole, pod_affinity=free(whole.pod_affinity))
        else:
            whole = msgspec.structs.replace(whole, pod_anti_affinity=free(whole.pod_anti_affinity))
        return msgspec.structs.replace(spec, affinity=whole)

    return _with_pods(problem, trial, change)


_CHANGES: Mapping[str, Callable[[Problem, Trial], Problem | None]] = {
    "limits": _without_limits,
    "taints": _tolerant,
    "requirements": _unselective,
    "offering": _unselective,
    "topologySpread": _unspread,
    "podAffinity": _uncompanied,
    "podAntiAffinity": _uncompanied,
    "minValues": _with_few_types,
}
