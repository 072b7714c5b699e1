"""Whom a pod's constraints are about: label selectors and namespaces, as kube-scheduler reads them."""

import msgspec

from karpenter.apis.core import Pod, PodAffinityTerm, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector, SelectorRequirement
from karpenter.apis.selectors import label_selector_matches
from karpenter.model.snapshot import Snapshot

_encoder = msgspec.msgpack.Encoder(order="deterministic")


def company(pod: Pod) -> bytes:
    """Return what tells pods apart where company matters: equal when no rule about it can.

    Node selection and tolerations are among it: they say which nodes a spread counts.
    """
    spec = pod.spec
    return _encoder.encode(
        (
            pod.metadata.namespace,
            pod.metadata.labels,
            spec.topology_spread_constraints,
            spec.affinity,
            spec.node_selector,
            spec.tolerations,
        )
    )


def spread_by(pod: Pod) -> list[TopologySpreadConstraint]:
    """Return the topology spread constraints of `pod` that must hold."""
    return [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]


def attracted_by(pod: Pod) -> list[PodAffinityTerm]:
    """Return the required affinity terms of `pod`."""
    affinity = pod.spec.affinity
    return affinity.pod_affinity.required if affinity and affinity.pod_affinity else []


def repelled_by(pod: Pod) -> list[PodAffinityTerm]:
    """Return the required anti-affinity terms of `pod`."""
    affinity = pod.spec.affinity
    return affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else []


def counts(constraint: TopologySpreadConstraint, owner: Pod, other: Pod) -> bool:
    """Tell whether `constraint` of `owner` counts `other`, where both run on nodes that it looks at."""
    selector = narrowed(constraint.label_selector, owner, constraint.match_label_keys, [])
    return other.namespace == owner.namespace and label_selector_matches(selector, other.metadata.labels)


def means(snapshot: Snapshot, term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """Tell whether `term` of `owner` is about `other`."""
    by_default = not term.namespaces and term.namespace_selector is None
    there = (
        (by_default and other.namespace == owner.namespace)
        or other.namespace in term.namespaces
        or label_selector_matches(term.namespace_selector, snapshot.namespaces.get(other.namespace, {}))
    )
    selector = narrowed(term.label_selector, owner, term.match_label_keys, term.mismatch_label_keys)
    return there and label_selector_matches(selector, other.metadata.labels)


def narrowed(
    selector: LabelSelector | None, owner: Pod, match_keys: list[str], mismatch_keys: list[str]
) -> LabelSelector | None:
    """Return `selector` with the owner's own values of some labels added; keys it lacks say nothing."""
    own = owner.metadata.labels
    wanted = [
        SelectorRequirement(key=key, operator=operator, values=[own[key]])
        for operator, keys in (("In", match_keys), ("NotIn", mismatch_keys))
        for key in keys
        if key in own
    ]
    if selector is None or not wanted:
        return selector
    return msgspec.structs.replace(selector, match_expressions=[*selector.match_expressions, *wanted])
