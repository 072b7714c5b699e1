"""What pods say about each other, read from their specs: spread, affinity and anti-affinity as terms.

A term is hard (it must hold) or soft (a preference, with a weight). Terms of two pods are the same *group*
when they count the same pods over the same label of nodes: then one counter serves both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import (
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from karpenter.apis.meta import LabelSelector, SelectorRequirement
from karpenter.apis.selectors import label_selector_matches
from karpenter.model.pods import term_expressions
from karpenter.model.requirements import Requirements

Kind = Literal["spread", "affinity", "anti"]
SPREAD_WEIGHT = 100
"""What a ScheduleAnyway spread weighs beside preferred affinity terms (1 to 100)."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class NodeFilter(msgspec.Struct, frozen=True):
    """Which nodes a spread counts."""

    alternatives: tuple[Requirements, ...]
    """One of these must hold (nodeAffinityPolicy Honor); empty: any node."""
    tolerations: tuple[Toleration, ...] | None
    """The node's taints must be tolerated by these (nodeTaintsPolicy Honor); None: whatever its taints."""


class Group(msgspec.Struct, frozen=True):
    """Which pods are counted, and per what."""

    kind: Kind
    key: str
    """The node label whose values are the domains."""
    namespaces: frozenset[str]
    selector: LabelSelector | None
    filter: NodeFilter | None = None
    identity: bytes = b""
    also: tuple["Group", ...] = ()
    """All of these must select a pod, too, for it to count."""

    def selects(self, pod: Pod) -> bool:
        """Tell whether `pod` is one of those the group counts."""
        return self.selects_labels(pod.namespace, pod.metadata.labels)

    def selects_labels(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod of `namespace` with `labels` is counted."""
        here = namespace in self.namespaces and label_selector_matches(self.selector, labels)
        return here and all(other.selects_labels(namespace, labels) for other in self.also)


class Term(msgspec.Struct, frozen=True):
    """One constraint of a pod."""

    group: Group
    max_skew: int = 1
    min_domains: int = 1
    weight: int = 0
    """0: it must hold. Otherwise a preference that weighs as much."""


def node_terms(pod: Pod) -> list[NodeSelectorTerm | None]:
    """Return the required node affinity terms of `pod` of which one must hold; `[None]` when it has none.

    A term without expressions matches no node, so it is left out.
    """
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if required is None:
        return [None]
    return [term for term in required.node_selector_terms if term_expressions(term)]


def term_requirements(pod: Pod, term: NodeSelectorTerm | None) -> Requirements:
    """Return the pod's node selector together with one of its node affinity terms."""
    selector = Requirements.from_labels(pod.spec.node_selector)
    return selector.merge(Requirements.from_specs(term_expressions(term))) if term else selector


def terms_of(pod: Pod, namespaces: Mapping[str, Mapping[str, str]], *, soft: bool) -> Iterator[Term]:
    """Yield every term of `pod`; preferences only if `soft`. `namespaces` are all labels by namespace."""
    for constraint in pod.spec.topology_spread_constraints:
        hard = constraint.when_unsatisfiable == "DoNotSchedule"
        if hard or soft:
            yield _spread(pod, constraint, 0 if hard else SPREAD_WEIGHT)
    affinity = pod.spec.affinity
    if affinity is None:
        return
    sides: tuple[tuple[Kind, PodAffinity | None], ...] = (
        ("affinity", affinity.pod_affinity),
        ("anti", affinity.pod_anti_affinity),
    )
    for kind, side in sides:
        if side is None:
            continue
        groups = [_neighbours(kind, pod, term, namespaces) for term in side.required]
        for group in groups:
            yield Term(_jointly(group, groups) if kind == "affinity" else group)
        for weighted in side.preferred if soft else ():
            yield Term(_neighbours(kind, pod, weighted.pod_affinity_term, namespaces), weight=weighted.weight)


def required_anti_terms(pod: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> Iterator[Term]:
    """Yield the terms by which a running pod keeps others away."""
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_anti_affinity is not None:
        for term in affinity.pod_anti_affinity.required:
            yield Term(_neighbours("anti", pod, term, namespaces))


def _spread(pod: Pod, constraint: TopologySpreadConstraint, weight: int) -> Term:
    selector = constraint.label_selector
    if selector is not None:
        selector = _narrowed(selector, pod, constraint.match_label_keys, "In")
    if constraint.topology_key == labels.KUBERNETES_HOSTNAME:
        # Every node is a domain of its own, and mostly there can be an empty one: all that matters is whether
        # it counts nodes that the pod does not select.
        every = NodeFilter((), None) if constraint.node_affinity_policy == "Ignore" else None
        group = _group("spread", constraint.topology_key, frozenset({pod.namespace}), selector, every)
        return Term(group, max_skew=max(1, constraint.max_skew), weight=weight)
    honours_affinity = constraint.node_affinity_policy != "Ignore"
    honours_taints = constraint.node_taints_policy == "Honor"
    alternatives = tuple(term_requirements(pod, t) for t in node_terms(pod)) if honours_affinity else ()
    chosen = NodeFilter(
        alternatives=alternatives if any(alternatives) else (),
        tolerations=tuple(pod.spec.tolerations) if honours_taints else None,
    )
    group = _group("spread", constraint.topology_key, frozenset({pod.namespace}), selector, chosen)
    return Term(
        group, max_skew=max(1, constraint.max_skew), min_domains=constraint.min_domains or 1, weight=weight
    )


def _neighbours(
    kind: Kind, pod: Pod, term: PodAffinityTerm, namespaces: Mapping[str, Mapping[str, str]]
) -> Group:
    named = set(term.namespaces)
    if term.namespace_selector is not None:
        named |= {n for n, own in namespaces.items() if label_selector_matches(term.namespace_selector, own)}
        if not term.namespace_selector.match_labels and not term.namespace_selector.match_expressions:
            # All namespaces: the pod's own is one of them, whether or not it was seen yet.
            named.add(pod.namespace)
    elif not named:
        named = {pod.namespace}
    selector = term.label_selector
    if selector is not None:
        selector = _narrowed(selector, pod, term.match_label_keys, "In")
        selector = _narrowed(selector, pod, term.mismatch_label_keys, "NotIn")
    return _group(kind, term.topology_key, frozenset(named), selector, None)


def _jointly(group: Group, groups: Sequence[Group]) -> Group:
    """Return `group`, counting only pods that all of `groups` select: so kube-scheduler reads affinity."""
    if groups == [group]:
        return group
    others = sorted((g.key, sorted(g.namespaces), _encoder.encode(g.selector)) for g in groups)
    identity = _encoder.encode((group.identity, others))
    return msgspec.structs.replace(group, also=tuple(groups), identity=identity)


def _narrowed(selector: LabelSelector, pod: Pod, keys: Iterable[str], operator: str) -> LabelSelector:
    """Return `selector`, narrowed by the pod's own values of those label `keys` that it has."""
    own = [
        SelectorRequirement(key=key, operator=operator, values=[pod.metadata.labels[key]])
        for key in keys
        if key in pod.metadata.labels
    ]
    # The API server merges the keys of affinity terms itself: what is there already is not added again.
    own = [e for e in own if e not in selector.match_expressions]
    if not own:
        return selector
    return LabelSelector(
        match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *own]
    )


def _group(
    kind: Kind,
    key: str,
    namespaces: frozenset[str],
    selector: LabelSelector | None,
    chosen: NodeFilter | None,
) -> Group:
    shown = None
    if chosen is not None:
        shown = ([list(a.values()) for a in chosen.alternatives], chosen.tolerations)
    identity = _encoder.encode((kind, key, sorted(namespaces), selector, shown))
    return Group(kind, key, namespaces, selector, chosen, identity)
