"""The part of the verifier that looks at pods beside each other; as independent as the rest of it."""

from collections.abc import Iterator, Mapping, Sequence

from karpenter.apis import labels as known
from karpenter.apis.core import Pod, PodAffinityTerm, TopologySpreadConstraint
from karpenter.apis.selectors import label_selector_matches
from karpenter.model.pods import is_active, pod_key
from karpenter.model.problem import Plan, Problem
from karpenter.model.snapshot import Snapshot


def neighbours(problem: Problem, plan: Plan, pods: Mapping[str, Pod]) -> Iterator[str]:
    """Yield what breaks host spread, host anti-affinity, or a running pod's wider anti-affinity."""
    views = {n.name: n for n in problem.nodes}
    running = [
        (pod, node)
        for node in problem.snapshot.nodes
        for pod in node.pods
        if is_active(pod) and pod_key(pod) not in pods
    ]
    for name, keys in plan.placements.items():
        placed = [pods[key] for key in keys]
        there = (
            [p for p in views[name].pods if is_active(p) and pod_key(p) not in pods] if name in views else []
        )
        yield from (f"node {name}: {text}" for text in _together(problem.snapshot, placed, there))
        here = {known.KUBERNETES_HOSTNAME: name, **views[name].labels} if name in views else {}
        for pod in placed:
            for other, node in running:
                for term in repelled_by(other):
                    domain = node.labels.get(term.topology_key)
                    if (
                        domain
                        and here.get(term.topology_key) == domain
                        and means(problem.snapshot, term, other, pod)
                    ):
                        yield f"node {name}: {pod_key(other)} keeps {pod_key(pod)} out of {domain}"
    for number, claim in enumerate(plan.claims):
        placed = [pods[key] for key in claim.pods]
        yield from (f"claim {number}: {text}" for text in _together(problem.snapshot, placed, []))
        for pod in placed:
            for other, node in running:
                for term in repelled_by(other):
                    domain = node.labels.get(term.topology_key)
                    wide = term.topology_key != known.KUBERNETES_HOSTNAME
                    if not domain or not wide or not means(problem.snapshot, term, other, pod):
                        continue
                    if claim.requirements.get(term.topology_key).has(domain):
                        yield f"claim {number}: {pod_key(other)} keeps {pod_key(pod)} out of {domain}"


def _together(snapshot: Snapshot, placed: Sequence[Pod], there: Sequence[Pod]) -> Iterator[str]:
    everyone = [*placed, *there]
    if not any(p.spec.affinity or p.spec.topology_spread_constraints for p in everyone):
        return
    for pod in everyone:
        for term in repelled_by(pod):
            if term.topology_key != known.KUBERNETES_HOSTNAME:
                continue
            for other in everyone:
                involved = pod in placed or other in placed
                if other is not pod and involved and means(snapshot, term, pod, other):
                    yield f"{pod_key(pod)} does not go with {pod_key(other)}"
    for pod in placed:
        for constraint in pod.spec.topology_spread_constraints:
            if constraint.when_unsatisfiable != "DoNotSchedule":
                continue
            alike = [p for p in everyone if _spread_counts(constraint, pod, p)]
            if pod in alike and len(alike) > constraint.max_skew:
                yield f"{pod_key(pod)} is spread with skew {len(alike)}, allowed is {constraint.max_skew}"


def _spread_counts(constraint: TopologySpreadConstraint, pod: Pod, other: Pod) -> bool:
    return (
        other.namespace == pod.namespace
        and label_selector_matches(constraint.label_selector, other.metadata.labels)
        and all(
            other.metadata.labels.get(key) == pod.metadata.labels[key]
            for key in constraint.match_label_keys
            if key in pod.metadata.labels
        )
    )


def repelled_by(pod: Pod) -> list[PodAffinityTerm]:
    """Return the required anti-affinity terms of `pod`."""
    affinity = pod.spec.affinity
    return affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else []


def means(snapshot: Snapshot, term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """Tell whether `term` of `owner` is about `other`."""
    own = not term.namespaces and term.namespace_selector is None and other.namespace == owner.namespace
    chosen = term.namespace_selector is not None and label_selector_matches(
        term.namespace_selector, snapshot.namespaces.get(other.namespace, {})
    )
    return (own or chosen or other.namespace in term.namespaces) and label_selector_matches(
        term.label_selector, other.metadata.labels
    )
