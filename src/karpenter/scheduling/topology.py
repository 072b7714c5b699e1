"""Which pods may be together: on one node as counting, over wider domains as tallies.

Classes know the rules they *own* (their own constraints) and the groups that *select* them. Anti-affinity
works both ways: an owner keeps selected pods away too. Rules over host names are counted node by node
(`Occupancy`), all others domain by domain (`karpenter.scheduling.domains`). Anti-affinity of running pods
over wider domains keeps the pods it selects out of the domains they are in, which is a plain requirement.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.model.pods import is_active, pod_key
from karpenter.model.problem import Problem
from karpenter.model.requirements import Requirement, Requirements
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.alike import Alike, alike
from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.domains import NO_DOMAINS, DomainLedger, Wide
from karpenter.scheduling.terms import Group, Kind, Term, required_anti_terms, terms_of

UNLIMITED = 2**62


class Rule(msgspec.Struct, frozen=True):
    """One constraint on what a node may hold together."""

    group: Group
    max_skew: int
    """Of a spread: how many selected pods a node may hold."""

    @property
    def kind(self) -> Kind:
        return self.group.kind


class Profile(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod has to do with the rules of a problem, by their numbers."""

    owned: tuple[int, ...] = ()
    """Spread and anti-affinity over host names."""
    near: tuple[int, ...] = ()
    """Affinity over host names: a selected pod must be on the node."""
    soft: tuple[int, ...] = ()
    """Spread and anti-affinity over host names that are only preferred."""
    fond: tuple[int, ...] = ()
    """Affinity over host names that is only preferred."""
    selected: tuple[int, ...] = ()
    avoid: Requirements = Requirements()
    """Domains that running pods' anti-affinity keeps it out of."""
    wide: Wide = NO_DOMAINS
    """What it has to do with domains other than nodes."""

    @property
    def alone(self) -> bool:
        """No rule over host names concerns it."""
        return not (self.owned or self.near or self.soft or self.fond or self.selected)

    @property
    def wishes(self) -> tuple[tuple[int, ...], ...]:
        """The preferences about the other pods of a node that may be kept together: all, fewer, none."""
        return tuple(dict.fromkeys(((*self.soft, *self.fond), self.soft, ())))

    @property
    def gregarious(self) -> bool:
        """Its pods would rather be on one node."""
        return any(rule in self.selected for rule in self.fond)

    @property
    def on_nodes(self) -> "Profile":
        """The part of it that concerns single nodes."""
        if self.wide is NO_DOMAINS and not self.avoid:
            return self
        return Profile(
            owned=self.owned, near=self.near, soft=self.soft, fond=self.fond, selected=self.selected
        )


class Occupancy(msgspec.Struct):
    """How many pods of each rule a node holds."""

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
        for rule in profile.owned:
            self.owners[rule] = self.owners.get(rule, 0) + count
        for rule in profile.selected:
            self.selected[rule] = self.selected.get(rule, 0) + count


class Topology:
    """The rules of one problem."""

    def __init__(self, problem: Problem) -> None:
        """Collect the constraints of the pods to place and of those that run."""
        self._namespaces = problem.snapshot.namespaces
        self._soft = problem.options.respect_preferences
        self._moving = {pod_key(p) for p in problem.pods}
        self.alike = alike(problem.pods)
        """The pods to place, grouped."""
        self._numbers: dict[tuple[bytes, int], int] = {}
        self.rules: list[Rule] = []
        self._avoided: list[tuple[Group, str]] = []
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._profiles: dict[tuple[bytes, str, tuple[tuple[str, str], ...]], Profile] = {}
        self._terms: dict[tuple[bytes, str], list[Term]] = {}
        self._shapes: dict[bytes, bytes] = {}
        """The constraints of every shape of pods seen."""
        self._selecting: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, ...]] = {}
        self.domains = DomainLedger()
        self._read_running(problem.snapshot.nodes)
        self._read_pending()
        if self.domains.groups:
            self.domains.count(problem, self._moving)

    def _read_running(self, nodes: Iterable[NodeView]) -> None:
        seen: set[tuple[bytes, str]] = set()
        for node in nodes:
            for pod in self._staying(node.pods):
                for term in required_anti_terms(pod, self._namespaces):
                    key = term.group.key
                    if key == labels.KUBERNETES_HOSTNAME:
                        self._number(term)
                        continue
                    domain = node.labels.get(key)
                    if domain is not None and (term.group.identity, domain) not in seen:
                        seen.add((term.group.identity, domain))
                        self._avoided.append((term.group, domain))

    def _read_pending(self) -> None:
        for group in self.alike:
            pod = group.pods[0]
            affinity, spread = pod.spec.affinity, pod.spec.topology_spread_constraints
            if not spread and (
                affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None)
            ):
                continue
            for term in self._terms_of(pod, self.constraints(group)):
                if term.group.key == labels.KUBERNETES_HOSTNAME:
                    self._number(term)
                else:
                    self.domains.number(term.group)
                    if not term.weight:
                        self.domains.claim_hard(term.group)

    def _terms_of(self, pod: Pod, constraints: bytes) -> list[Term]:
        """Return the terms of `pod`, shared by pods with equal `constraints` unless their labels matter."""
        keyed = any(c.match_label_keys for c in pod.spec.topology_spread_constraints)
        affinity = pod.spec.affinity
        for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
            for term in (*side.required, *(w.pod_affinity_term for w in side.preferred)) if side else ():
                keyed = keyed or bool(term.match_label_keys or term.mismatch_label_keys)
        if keyed:
            return list(terms_of(pod, self._namespaces, soft=self._soft))
        found = self._terms.get((constraints, pod.namespace))
        if found is None:
            found = list(terms_of(pod, self._namespaces, soft=self._soft))
            self._terms[constraints, pod.namespace] = found
        return found

    def constraints(self, group: Alike) -> bytes:
        """Return all that the spec of a group says about where its pods may be, as one key."""
        found = self._shapes.get(group.shape)
        if found is None:
            spec = group.pods[0].spec
            found = self._shapes[group.shape] = self._encoder.encode(
                (spec.affinity, spec.topology_spread_constraints, spec.node_selector, spec.tolerations)
            )
        return found

    def counts(self, pod: Pod) -> bool:
        """Tell whether some rule counts `pod`, wherever it runs."""
        return bool(self._selected(pod) or self.domains.selecting(pod))

    def profile(self, group: Alike) -> Profile:
        """Return what the pods of `group` have to do with the rules."""
        if not self.rules and not self._avoided and not self.domains.groups:
            return _NOTHING
        pod = group.pods[0]
        constraints = self.constraints(group)
        key = (constraints, pod.namespace, tuple(sorted(pod.metadata.labels.items())))
        found = self._profiles.get(key)
        if found is None:
            found = self._profiles[key] = self._profile(pod, constraints)
        return found

    def _profile(self, pod: Pod, constraints: bytes) -> Profile:
        avoid = [Requirement.of(g.key, "NotIn", [value]) for g, value in self._avoided if g.selects(pod)]
        owned, near, wide = set(), set(), []
        soft: set[int] = set()
        fond: set[int] = set()
        for term in self._terms_of(pod, constraints):
            if term.group.key != labels.KUBERNETES_HOSTNAME:
                wide.append(term)
            elif term.weight:
                (fond if term.group.kind == "affinity" else soft).add(self._number(term))
            elif term.group.kind == "affinity":
                near.add(self._number(term))
            else:
                owned.add(self._number(term))
        return Profile(
            owned=tuple(sorted(owned)),
            near=tuple(sorted(near)),
            soft=tuple(sorted(soft)),
            fond=tuple(sorted(fond)),
            selected=self._selected(pod),
            avoid=Requirements.of(*avoid),
            wide=self.domains.wide(wide, pod),
        )

    def _selected(self, pod: Pod) -> tuple[int, ...]:
        """Return the rules that count `pod`."""
        kind = (pod.namespace, tuple(sorted(pod.metadata.labels.items())))
        found = self._selecting.get(kind)
        if found is None:
            found = tuple(i for i, r in enumerate(self.rules) if r.group.selects(pod))
            self._selecting[kind] = found
        return found

    def occupancy(self, pods: Iterable[Pod]) -> Occupancy:
        """Return what running `pods` mean for their node; pods that are to be placed anew don't count."""
        found = Occupancy.empty()
        if not self.rules:
            return found
        for pod in self._staying(pods):
            # A spread binds its owner only until it runs; anti-affinity lasts.
            lasting = {
                self._number(term)
                for term in required_anti_terms(pod, self._namespaces)
                if term.group.key == labels.KUBERNETES_HOSTNAME
            }
            found.add(Profile(owned=tuple(sorted(lasting)), selected=self._selected(pod)), 1)
        return found

    def allowance(self, profile: Profile, here: Occupancy) -> int:
        """Return how many more pods of `profile` a node that holds `here` may take.

        Affinity is not asked for here (see `welcome`), nor are preferences.
        """
        most = UNLIMITED
        for number in profile.owned:
            rule, present = self.rules[number], here.selected.get(number, 0)
            itself = number in profile.selected
            if rule.kind == "anti":
                most = min(most, 0 if present else 1 if itself else UNLIMITED)
            elif itself:
                most = min(most, rule.max_skew - present)
            elif present > rule.max_skew:
                return 0
        for number in profile.selected:
            if here.owners.get(number, 0):
                rule = self.rules[number]
                # Nobody knows who is bound first, so planned owners of a spread limit whom it selects, too.
                room = rule.max_skew - here.selected.get(number, 0)
                most = min(most, 0 if rule.kind == "anti" else room)
        return max(0, most)

    @staticmethod
    def welcome(profile: Profile, here: Occupancy) -> bool:
        """Tell whether the pods that `profile` must be near are on a node that holds `here`."""
        return all(here.selected.get(number, 0) for number in profile.near)

    def table(self) -> "Crowd":
        """Return an empty table of nodes for these rules."""
        return Crowd(self.rules)

    def _staying(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        return (p for p in pods if is_active(p) and pod_key(p) not in self._moving)

    def _number(self, term: Term) -> int:
        key = (term.group.identity, term.max_skew)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.rules)
            self.rules.append(Rule(term.group, term.max_skew))
        return found


_NOTHING = Profile()


class Crowd:
    """What many nodes hold, by rule: the same questions as of one `Occupancy`, asked of all at once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Start with no nodes."""
        self._rules = rules
        self._size = 0
        self._selected = np.zeros((len(rules), 16), dtype=np.int64)
        self._owners = np.zeros((len(rules), 16), dtype=np.int64)

    def append(self, held: Occupancy, copies: int) -> None:
        """Add `copies` nodes that hold `held` each."""
        last = self._size + copies
        while self._selected.shape[1] < last:
            self._selected = np.concatenate([self._selected, np.zeros_like(self._selected)], axis=1)
            self._owners = np.concatenate([self._owners, np.zeros_like(self._owners)], axis=1)
        for rule, count in held.selected.items():
            self._selected[rule, self._size : last] = count
        for rule, count in held.owners.items():
            self._owners[rule, self._size : last] = count
        self._size = last

    def add(self, row: int, profile: Profile, count: int) -> None:
        """Count `count` more pods of `profile` on one node."""
        for rule in profile.owned:
            self._owners[rule, row] += count
        for rule in profile.selected:
            self._selected[rule, row] += count

    def allowance(
        self,
        profile: Profile,
        *,
        wishes: Sequence[int] = (),
        only: Mask | None = None,
        founding: bool = False,
    ) -> Amounts:
        """Return, by node, how many more pods of `profile` it may take.

        Affinity is included unless they are `founding`: the first of a group that must be near itself.
        `wishes` are preferences of theirs that count as rules.

        `only`: the pods select these nodes and no others, none can be bought for them. Then the emptiest of
        these is what a spread measures by, and nobody makes way for owners planned there.
        """
        size = self._size
        most = np.full(size, UNLIMITED, dtype=np.int64)
        for number in (*profile.owned, *wishes):
            rule, present = self._rules[number], self._selected[number, :size]
            itself = number in profile.selected
            if rule.kind == "anti":
                np.minimum(most, np.where(present > 0, 0, 1 if itself else UNLIMITED), out=most)
            elif rule.kind == "affinity":
                most[present == 0] = 0
            elif itself:
                least = 0 if only is None else _least(rule, present, only)
                np.minimum(most, rule.max_skew + least - present, out=most)
            else:
                most[present > rule.max_skew] = 0
        for number in profile.selected:
            if only is not None and self._rules[number].kind != "anti":
                continue
            owned = self._owners[number, :size] > 0
            rule = self._rules[number]
            if owned.any():
                room = 0 if rule.kind == "anti" else rule.max_skew - self._selected[number, :size]
                most = np.where(owned, np.minimum(most, room), most)
        for number in () if founding else profile.near:
            most[self._selected[number, :size] == 0] = 0
        return np.maximum(most, 0)

    def counts(self) -> tuple[Amounts, Amounts]:
        """Return, by rule and node, how many pods the rule selects and how many own it; copies."""
        return self._selected[:, : self._size].copy(), self._owners[:, : self._size].copy()

    def anywhere(self, rule: int) -> bool:
        """Tell whether some node holds a pod that `rule` selects."""
        return bool(self._selected[rule, : self._size].any())


def _least(rule: Rule, present: Amounts, only: Mask) -> int:
    """Return how many pods the emptiest node has that a spread counts; its policies may count them all."""
    counted = present if rule.group.filter is not None else present[only]
    return int(counted.min(initial=UNLIMITED))
