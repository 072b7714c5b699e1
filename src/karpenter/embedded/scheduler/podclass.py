"""Pods that differ in nothing the scheduler looks at are one class.

Deployments stamp out thousands of equal pods; everything costly (selectors, requests, which counters a pod
is counted in) is worked out once per class. A class also remembers per node what never changes until the
node does.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from karpenter.apis.core import Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector, SelectorRequirement
from karpenter.base.quantity import Resources
from karpenter.embedded.scheduler.predicates import (
    NONZERO_DEFAULTS,
    HostPort,
    host_ports,
    label_selector_holds,
    node_affinity,
    pod_requests,
)

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
_encoder = msgspec.json.Encoder(order="sorted")


class Matcher:
    """Picks pods by namespace and labels; equal matchers share one count per node.

    `namespaces` are literal names; `namespace_selector` adds those whose labels it picks.
    """

    __slots__ = ("key", "namespace_selector", "namespaces", "selector")

    def __init__(
        self,
        namespaces: frozenset[str],
        selector: LabelSelector | None,
        namespace_selector: LabelSelector | None = None,
    ) -> None:
        self.namespaces = namespaces
        self.selector = selector
        self.namespace_selector = namespace_selector
        self.key = (tuple(sorted(namespaces)), _encoder.encode((selector, namespace_selector)))

    def holds(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Tell whether a pod of `namespace` with `labels` is picked."""
        if namespace not in self.namespaces:
            chosen = self.namespace_selector
            if chosen is None or not label_selector_holds(chosen, namespace_labels.get(namespace, {})):
                return False
        return label_selector_holds(self.selector, labels)


class Term(msgspec.Struct, frozen=True, eq=False):
    """A pod (anti-)affinity term made concrete for one class of pods."""

    topology_key: str
    matcher: Matcher
    weight: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.topology_key, self.matcher.key)


class Spread(msgspec.Struct, frozen=True, eq=False):
    """A topology spread constraint made concrete for one class of pods."""

    topology_key: str
    max_skew: int
    min_domains: int
    matcher: Matcher
    counts_self: bool
    honour_affinity: bool
    honour_taints: bool


class PodClass:
    """Everything the scheduler needs to know about a kind of pod."""

    def __init__(self, signature: bytes, pod: Pod, owner_selector: LabelSelector | None) -> None:
        spec = pod.spec
        self.signature = signature
        self.namespace = pod.namespace
        self.labels = pod.metadata.labels
        self.spec: PodSpec = spec
        self.priority = spec.priority or 0
        self.may_preempt = spec.preemption_policy != "Never"
        self.requests: Resources = {k: v for k, v in pod_requests(spec).items() if v > 0}
        self.requests["pods"] = 1
        nonzero = pod_requests(spec, NONZERO_DEFAULTS)
        self.nonzero = (nonzero.get("cpu", 0), nonzero.get("memory", 0))
        self.best_effort = not (self.requests.get("cpu") or self.requests.get("memory"))
        self.ports: tuple[HostPort, ...] = host_ports(spec)
        self.claims = _claims(pod)
        self.affinity_key = _encoder.encode((spec.node_selector, node_affinity(spec)))
        self.pinned = _pinned_node(spec)
        """The only node that the pod's affinity names, if it names one (daemon pods)."""
        self.toleration_key = _encoder.encode(spec.tolerations)
        affinity = spec.affinity
        wants = affinity.pod_affinity if affinity else None
        shuns = affinity.pod_anti_affinity if affinity else None
        self.affinity = [self._term(t) for t in wants.required] if wants else []
        self.anti_affinity = [self._term(t) for t in shuns.required] if shuns else []
        self.preferred = [
            *([self._term(w.pod_affinity_term, w.weight) for w in wants.preferred] if wants else []),
            *([self._term(w.pod_affinity_term, -w.weight) for w in shuns.preferred] if shuns else []),
        ]
        constraints = spec.topology_spread_constraints
        self.hard_spread = [self._spread(c) for c in constraints if c.when_unsatisfiable == "DoNotSchedule"]
        self.soft_spread = [self._spread(c) for c in constraints if c.when_unsatisfiable != "DoNotSchedule"]
        self.spread_is_default = not constraints and owner_selector is not None
        if self.spread_is_default:
            # kube-scheduler's system defaults: soft, by host and by zone, over the owner's pods.
            self.soft_spread = [
                self._spread(TopologySpreadConstraint(max_skew, key, "ScheduleAnyway", owner_selector))
                for key, max_skew in ((HOSTNAME, 3), (ZONE, 5))
            ]
        self.vector: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # the model's, of `requests`
        self.pods = 0
        """How many known pods are of this class; the model forgets a class without pods."""

    def _merged(
        self, selector: LabelSelector | None, match: list[str], mismatch: list[str]
    ) -> LabelSelector | None:
        extra = [
            SelectorRequirement(key, operator, [self.labels[key]])
            for operator, keys in (("In", match), ("NotIn", mismatch))
            for key in keys
            if key in self.labels
        ]
        if selector is None or not extra:
            return selector
        return msgspec.structs.replace(selector, match_expressions=[*selector.match_expressions, *extra])

    def _term(self, term: PodAffinityTerm, weight: int = 0) -> Term:
        namespaces = frozenset(term.namespaces)
        if not namespaces and term.namespace_selector is None:
            namespaces = frozenset({self.namespace})
        selector = self._merged(term.label_selector, term.match_label_keys, term.mismatch_label_keys)
        return Term(term.topology_key, Matcher(namespaces, selector, term.namespace_selector), weight)

    def _spread(self, constraint: TopologySpreadConstraint) -> Spread:
        selector = self._merged(constraint.label_selector, constraint.match_label_keys, [])
        return Spread(
            topology_key=constraint.topology_key,
            max_skew=constraint.max_skew,
            min_domains=constraint.min_domains or 1,
            matcher=Matcher(frozenset({self.namespace}), selector),
            counts_self=label_selector_holds(selector, self.labels),
            honour_affinity=constraint.node_affinity_policy != "Ignore",
            honour_taints=constraint.node_taints_policy == "Honor",
        )


def _pinned_node(spec: PodSpec) -> str | None:
    affinity = node_affinity(spec)
    if affinity is None or affinity.required is None:
        return None
    named: set[str] = set()
    for term in affinity.required.node_selector_terms:
        fields = [f for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
        if len(fields) != 1 or len(fields[0].values or []) != 1:
            return None
        named.update(fields[0].values or [])
    return named.pop() if len(named) == 1 else None


def _claims(pod: Pod) -> tuple[str, ...]:
    names = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.name}-{volume.name}")
    return tuple(names)


def signature_of(pod: Pod, owner_selector: LabelSelector | None) -> bytes:
    """Return bytes that are equal exactly for pods of one class."""
    spec = pod.spec
    if spec.node_name:
        spec = msgspec.structs.replace(spec, node_name="")
    ephemeral = pod.name if any(v.ephemeral is not None for v in spec.volumes) else ""
    return _encoder.encode((pod.namespace, ephemeral, pod.metadata.labels, spec, owner_selector))


def spread_weight(domains: int) -> float:
    """Return how much a soft constraint counts that has so many domains to choose from."""
    return math.log(domains + 2)
