"""How many pods of a kind one node may hold: host spread and host anti-affinity, as counting.

A *group* is one such constraint: a selector, and what it means for the pods that carry it. Classes know the
groups they own (their own constraints) and those that select them. Anti-affinity works both ways: an owner
on a node keeps selected pods away too. Anti-affinity of running pods over wider domains (zones, …) keeps the
pods it selects out of the domains they are in, which is a plain requirement.
"""

from collections.abc import Iterable, Iterator

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Pod, PodAffinityTerm, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector, SelectorRequirement
from karpenter.apis.selectors import label_selector_matches
from karpenter.model.pods import is_active, pod_key
from karpenter.model.problem import Problem
from karpenter.model.requirements import Requirement, Requirements
from karpenter.model.snapshot import Snapshot

UNLIMITED = 2**62


class Group(msgspec.Struct, frozen=True):
    """One constraint on what a node may hold together."""

    namespaces: frozenset[str]
    selector: LabelSelector | None
    max_skew: int
    """Of a spread: how many selected pods a node may hold. 0: anti-affinity, none beside an owner."""

    @property
    def anti(self) -> bool:
        return self.max_skew == 0

    def selects(self, pod: Pod) -> bool:
        """Tell whether `pod` is one of those the constraint is about."""
        return pod.namespace in self.namespaces and label_selector_matches(self.selector, pod.metadata.labels)


class Profile(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod has to do with the groups of a problem, by their numbers."""

    owned: tuple[int, ...] = ()
    selected: tuple[int, ...] = ()
    avoid: Requirements = Requirements()
    """Domains that running pods' anti-affinity keeps it out of."""


class Occupancy(msgspec.Struct):
    """How many pods of each group a node holds."""

    selected: dict[int, int]
    owners: dict[int, int]

    @staticmethod
    def empty() -> "Occupancy":
        """Return a node without pods."""
        return Occupancy({}, {})

    def copy(self) -> "Occupancy":
        """Return one that changes independently."""
        return Occupancy(dict(self.selected), dict(self.owners))

    def add(self, profile: Profile, count: int) -> None:
        """Count `count` more pods of `profile`."""
        for group in profile.owned:
            self.owners[group] = self.owners.get(group, 0) + count
        for group in profile.selected:
            self.selected[group] = self.selected.get(group, 0) + count


class Topology:
    """The groups of one problem."""

    def __init__(self, problem: Problem) -> None:
        """Collect the constraints of the pods to place and of those that run."""
        self._snapshot: Snapshot = problem.snapshot
        self._numbers: dict[bytes, int] = {}
        self.groups: list[Group] = []
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._profiles: dict[bytes, Profile] = {}
        self._moving = {pod_key(p) for p in problem.pods}
        self._domains: list[tuple[Group, str, str]] = []
        seen: set[tuple[bytes, str, str]] = set()
        for node in problem.snapshot.nodes:
            for pod in self._staying(node.pods):
                for term in _anti_terms(pod):
                    group = self._anti(pod, term)
                    if term.topology_key == labels.KUBERNETES_HOSTNAME:
                        self._number(group)
                    elif term.topology_key in node.labels:
                        domain = (_identity(group), term.topology_key, node.labels[term.topology_key])
                        if domain not in seen:
                            seen.add(domain)
                            self._domains.append((group, *domain[1:]))
        for pod in problem.pods:
            for group in self._owned(pod):
                self._number(group)

    def profile(self, pod: Pod) -> Profile:
        """Return what `pod` has to do with the groups."""
        if not self.groups and not self._domains:
            return _NOTHING
        spec = pod.spec
        terms = spec.affinity.pod_anti_affinity if spec.affinity else None
        key = self._encoder.encode(
            (pod.namespace, pod.metadata.labels, terms, spec.topology_spread_constraints)
        )
        found = self._profiles.get(key)
        if found is None:
            found = self._profiles[key] = self._profile(pod)
        return found

    def _profile(self, pod: Pod) -> Profile:
        avoid = [
            Requirement.of(key, "NotIn", [value]) for group, key, value in self._domains if group.selects(pod)
        ]
        return Profile(
            owned=tuple(sorted({self._number(g) for g in self._owned(pod)})),
            selected=tuple(i for i, g in enumerate(self.groups) if g.selects(pod)),
            avoid=Requirements.of(*avoid),
        )

    def occupancy(self, pods: Iterable[Pod]) -> Occupancy:
        """Return what running `pods` mean for their node; pods that are to be placed anew don't count."""
        found = Occupancy.empty()
        for pod in self._staying(pods):
            profile = self.profile(pod)
            # A spread binds its owner only until it runs; anti-affinity lasts.
            lasting = tuple(n for n in profile.owned if self.groups[n].anti)
            found.add(Profile(lasting, profile.selected), 1)
        return found

    def allowance(self, profile: Profile, here: Occupancy) -> int:
        """Return how many more pods of `profile` a node that holds `here` may take."""
        most = UNLIMITED
        for number in profile.owned:
            group, present = self.groups[number], here.selected.get(number, 0)
            itself = number in profile.selected
            if group.anti:
                most = min(most, 0 if present else 1 if itself else UNLIMITED)
            elif itself:
                most = min(most, group.max_skew - present)
            elif present > group.max_skew:
                return 0
        for number in profile.selected:
            group = self.groups[number]
            if here.owners.get(number, 0):
                # Nobody knows who is bound first, so planned owners of a spread limit whom it selects, too.
                most = min(most, 0 if group.anti else group.max_skew - here.selected.get(number, 0))
        return max(0, most)

    def _staying(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        return (p for p in pods if is_active(p) and pod_key(p) not in self._moving)

    def _number(self, group: Group) -> int:
        key = _identity(group)
        if key not in self._numbers:
            self._numbers[key] = len(self.groups)
            self.groups.append(group)
        return self._numbers[key]

    def _owned(self, pod: Pod) -> Iterator[Group]:
        for term in _anti_terms(pod):
            if term.topology_key == labels.KUBERNETES_HOSTNAME:
                yield self._anti(pod, term)
        for constraint in pod.spec.topology_spread_constraints:
            if is_host_spread(constraint):
                selector = _with_label_keys(constraint, pod)
                yield Group(frozenset({pod.namespace}), selector, max(1, constraint.max_skew))

    def _anti(self, pod: Pod, term: PodAffinityTerm) -> Group:
        named = set(term.namespaces)
        if term.namespace_selector is not None:
            named |= {
                name
                for name, own in self._snapshot.namespaces.items()
                if label_selector_matches(term.namespace_selector, own)
            }
        elif not named:
            named = {pod.namespace}
        return Group(frozenset(named), term.label_selector, 0)


_NOTHING = Profile()


def is_host_spread(constraint: TopologySpreadConstraint) -> bool:
    """Tell whether `constraint` is a hard one that counts per node."""
    return (
        constraint.when_unsatisfiable == "DoNotSchedule"
        and constraint.topology_key == labels.KUBERNETES_HOSTNAME
    )


def _anti_terms(pod: Pod) -> list[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else []


def _with_label_keys(constraint: TopologySpreadConstraint, pod: Pod) -> LabelSelector | None:
    """Return the constraint's selector, narrowed to the pod's own values of its matchLabelKeys."""
    selector = constraint.label_selector
    own = [
        SelectorRequirement(key=key, operator="In", values=[pod.metadata.labels[key]])
        for key in constraint.match_label_keys
        if key in pod.metadata.labels
    ]
    if selector is None or not own:
        return selector
    return LabelSelector(
        match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *own]
    )


def _identity(group: Group) -> bytes:
    return msgspec.msgpack.encode(
        (sorted(group.namespaces), group.selector, group.max_skew), order="deterministic"
    )
