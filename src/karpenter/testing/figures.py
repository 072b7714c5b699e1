"""How good a plan is, in a few numbers that can be written down and compared with those of another day."""

from collections import Counter

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key, term_expressions
from karpenter.model.problem import Plan, Problem
from karpenter.model.requirements import Requirements
from karpenter.scheduling.check import violations
from karpenter.scheduling.terms import terms_of
from karpenter.testing.exhaustive import urgencies

_CENT = 1e-6
Places = dict[str, tuple[str, Requirements]]
"""By pod: the name of its node, planned or there, and what that node is known to be."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What users get out of a plan."""

    left_out: tuple[int, ...]
    """The priorities of the pods without a place, highest first."""
    cost: float
    """USD per hour of the new nodes, the fee for each node included."""
    wishes: int
    """The weights of all preferences kept, less those of the soft anti-affinities and crowds put up with."""
    types: int
    """How many instance types the claims list: the more, the likelier a launch succeeds."""
    wrong: int = 0
    """How many rules it breaks: the first plan of a few pods is not the last word."""

    def worse_than(self, other: "Figures") -> str:
        """Return what is worse here than there; empty: nothing."""
        if self.wrong > other.wrong:
            return "wrong"
        if self.left_out != other.left_out:
            return "left_out" if self.left_out > other.left_out else ""
        if self.wishes < other.wishes:
            return "wishes"
        if self.cost > other.cost + _CENT:
            return "cost"
        alike = self.wishes == other.wishes and self.cost > other.cost - _CENT
        return "types" if alike and self.types < other.types else ""


def figures(problem: Problem, plan: Plan) -> Figures:
    """Return how good `plan` is."""
    refused = {u.pod for u in plan.unschedulable}
    return Figures(
        left_out=urgencies(pod for pod in problem.pods if pod_key(pod) in refused),
        cost=round(plan.cost + problem.options.node_fee * len(plan.claims), 6),
        wishes=_wishes(problem, plan) if problem.options.respect_preferences else 0,
        types=sum(len(claim.instance_types) for claim in plan.claims),
        wrong=len(violations(problem, plan)),
    )


def _places(problem: Problem, plan: Plan) -> Places:
    views = {view.name: Requirements.from_labels(view.labels) for view in problem.nodes}
    found = {key: (name, views[name]) for name, keys in plan.placements.items() for key in keys}
    for number, claim in enumerate(plan.claims):
        found.update(dict.fromkeys(claim.pods, (f"new-{number}", claim.requirements)))
    return found


def _wishes(problem: Problem, plan: Plan) -> int:
    places = _places(problem, plan)
    placed = [pod for pod in problem.pods if pod_key(pod) in places]
    running = [(pod, (view.name, Requirements.from_labels(view.labels)))
               for view in problem.nodes for pod in view.pods]  # fmt: skip
    everyone = [*running, *((pod, places[pod_key(pod)]) for pod in placed)]
    return sum(
        _own_wishes(pod, places[pod_key(pod)][1]) + _about_others(problem, pod, places, everyone)
        for pod in placed
    )


def _own_wishes(pod: Pod, node: Requirements) -> int:
    """Return the weights of the preferred node affinities that hold for certain."""
    affinity = pod.spec.affinity
    preferred = affinity.node_affinity.preferred if affinity and affinity.node_affinity else []
    terms = [(p.weight, Requirements.from_specs(term_expressions(p.preference))) for p in preferred]
    return sum(weight for weight, term in terms if not node.compatible(term) and node.merge(term) == node)


def _about_others(
    problem: Problem, pod: Pod, places: Places, everyone: list[tuple[Pod, tuple[str, Requirements]]]
) -> int:
    """Return what the pod's preferences about other pods make of those in its domains."""
    total = 0
    soft = [t for t in terms_of(pod, problem.snapshot.namespaces, soft=True) if t.weight]
    for term in soft:
        key = term.group.key
        own = _domain(key, *places[pod_key(pod)])
        beside = Counter(
            _domain(key, *place)
            for other, place in everyone
            if other is not pod and term.group.selects(other)
        )
        if own and term.group.kind == "affinity":
            total += term.weight * min(beside[own], 1)
        elif own:
            total -= term.weight * (beside[own] if term.group.kind == "spread" else min(beside[own], 1))
    return total


def _domain(key: str, name: str, node: Requirements) -> str:
    return name if key == known.KUBERNETES_HOSTNAME else node.single_value(key)
