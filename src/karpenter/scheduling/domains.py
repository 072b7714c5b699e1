"""How many pods of each group every domain (zone, rack, ...) holds, and which domains there are.

Counting follows kube-scheduler: running pods count where their node has the label and passes the group's
filter; pods that are being placed anew do not count where they were.
"""

from collections.abc import Iterable, Sequence

import msgspec

from karpenter.apis.core import Pod, Taint
from karpenter.model import taints
from karpenter.model.pods import is_active, pod_key
from karpenter.model.problem import Problem
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.terms import Group, NodeFilter, Term


class Spread(msgspec.Struct, frozen=True):
    """A class's own spread over a group's domains."""

    group: int
    max_skew: int
    min_domains: int
    itself: bool
    """The class is one of those counted."""
    weight: int


class Attraction(msgspec.Struct, frozen=True):
    """A class's own affinity or anti-affinity."""

    group: int
    itself: bool
    weight: int


class Wide(msgspec.Struct, frozen=True, cache_hash=True):
    """What a class has to do with the groups over domains other than nodes."""

    spreads: tuple[Spread, ...] = ()
    affinities: tuple[Attraction, ...] = ()
    antis: tuple[Attraction, ...] = ()
    selected: tuple[int, ...] = ()
    """Groups that count its pods."""
    keys: tuple[str, ...] = ()
    """The labels of nodes that have to be known for each of its pods, sorted."""
    optional: frozenset[str] = frozenset()
    """Those of `keys` that a node need not have: only anti-affinity, preferences and others count by them."""
    firm: bool = False
    """Where its pods go matters to a hard constraint, its own or another's."""


NO_DOMAINS = Wide()


class Tally:
    """The counts of one group, by domain."""

    def __init__(self, group: Group) -> None:
        """Start with nothing counted."""
        self.group = group
        self.pods: dict[str, int] = {}
        """Pods the group selects, running or placed."""
        self.owners: dict[str, int] = {}
        """Pods placed that carry the group as anti-affinity."""
        self.present: set[str] = set()
        """Domains that have a node which the group's filter lets count."""
        self.total = 0
        """Selected pods in all domains; on nodes without the label they are nobody's company."""

    def copy(self) -> "Tally":
        """Return one that changes independently."""
        other = Tally(self.group)
        other.pods, other.owners = dict(self.pods), dict(self.owners)
        other.present, other.total = set(self.present), self.total
        return other

    def add(self, domain: str, count: int) -> None:
        """Count `count` selected pods in `domain`."""
        self.pods[domain] = self.pods.get(domain, 0) + count
        self.total += count


class DomainLedger:
    """The groups of one problem that count over domains wider than a node."""

    def __init__(self) -> None:
        """Start without groups."""
        self.groups: list[Tally] = []
        self._numbers: dict[bytes, int] = {}
        self._owned_hard: set[int] = set()
        self._selecting: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, ...]] = {}

    def copy(self) -> "DomainLedger":
        """Return one with the same counts that changes independently."""
        other = DomainLedger()
        other._numbers, other._owned_hard = self._numbers, self._owned_hard
        other.groups = [tally.copy() for tally in self.groups]
        return other

    def number(self, group: Group) -> int:
        """Return the number of `group`, a new one if it is new."""
        found = self._numbers.get(group.identity)
        if found is None:
            found = self._numbers[group.identity] = len(self.groups)
            self.groups.append(Tally(group))
        return found

    def claim_hard(self, group: Group) -> None:
        """Note that somebody's hard constraint counts by `group`."""
        self._owned_hard.add(self.number(group))

    def selecting(self, pod: Pod) -> tuple[int, ...]:
        """Return the groups that count `pod`."""
        kind = (pod.namespace, tuple(sorted(pod.metadata.labels.items())))
        selected = self._selecting.get(kind)
        if selected is None:
            selected = tuple(i for i, t in enumerate(self.groups) if t.group.selects(pod))
            self._selecting[kind] = selected
        return selected

    def wide(self, terms: Sequence[Term], pod: Pod) -> Wide:
        """Return what `pod`, whose own terms over domains are `terms`, has to do with the groups."""
        selected = self.selecting(pod)
        if not terms and not selected:
            return NO_DOMAINS
        spreads: list[Spread] = []
        affinities: list[Attraction] = []
        antis: list[Attraction] = []
        for term in terms:
            number = self.number(term.group)
            itself = number in selected
            if term.group.kind == "spread":
                spreads.append(Spread(number, term.max_skew, term.min_domains, itself, term.weight))
            else:
                side = affinities if term.group.kind == "affinity" else antis
                side.append(Attraction(number, itself, term.weight))
        watched = [i for i in selected if i in self._owned_hard]
        firm = bool(watched) or any(not t.weight for t in terms)
        involved = {t.group.key for t in terms} | {self.groups[i].group.key for i in watched}
        needed = {t.group.key for t in terms if t.group.kind != "anti" and not t.weight}
        return Wide(
            spreads=tuple(dict.fromkeys(spreads)),
            affinities=tuple(dict.fromkeys(affinities)),
            antis=tuple(dict.fromkeys(antis)),
            selected=selected,
            keys=tuple(sorted(involved)),
            optional=frozenset(involved - needed),
            firm=firm,
        )

    def count(self, problem: Problem, moving: set[str]) -> None:
        """Count running pods and note which domains have nodes."""
        crowds = _crowds(problem.snapshot.nodes, moving)
        usable = {n.name for n in problem.nodes}
        for tally in self.groups:
            group = tally.group
            passing: dict[str, bool] = {}
            for node in problem.snapshot.nodes:
                domain = node.labels.get(group.key)
                passing[node.name] = domain is not None and passes(group.filter, node.labels, node.taints)
                if domain is not None and passing[node.name] and node.name in usable:
                    tally.present.add(domain)
            for (namespace, own), places in crowds.items():
                if not group.selects_labels(namespace, dict(own)):
                    continue
                for node, count in places:
                    if passing[node.name]:
                        tally.add(node.labels[group.key], count)

    def record(self, wide: Wide, values: Sequence[str], count: int) -> None:
        """Count `count` pods of a class placed where its keys have `values` (empty: not known)."""
        at = dict(zip(wide.keys, values, strict=True))
        for number in wide.selected:
            tally = self.groups[number]
            domain = at.get(tally.group.key, "")
            if domain:
                tally.add(domain, count)
            else:
                tally.total += count
        for tally in self.groups:
            domain = at.get(tally.group.key, "")
            if domain and domain not in tally.present and _may_pass(tally.group, domain):
                tally.present.add(domain)
        for anti in wide.antis:
            domain = at.get(self.groups[anti.group].group.key, "")
            if domain and not anti.weight:
                owners = self.groups[anti.group].owners
                owners[domain] = owners.get(domain, 0) + count


def passes(chosen: NodeFilter | None, labels: dict[str, str], node_taints: Iterable[Taint]) -> bool:
    """Tell whether a node with `labels` and taints is one that `chosen` counts."""
    if chosen is None:
        return True
    if chosen.tolerations is not None and taints.tolerates(node_taints, chosen.tolerations):
        return False
    if not chosen.alternatives:
        return True
    here = Requirements.from_labels(labels)
    return any(not here.compatible(wanted) for wanted in chosen.alternatives)


def _may_pass(group: Group, domain: str) -> bool:
    """Tell whether a new node in `domain` may be one that `group` counts."""
    if group.filter is None or not group.filter.alternatives:
        return True
    return any(wanted.get(group.key).has(domain) for wanted in group.filter.alternatives)


def _crowds(
    nodes: Iterable[NodeView], moving: set[str]
) -> dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[NodeView, int]]]:
    """Return, for each namespace and set of labels, on which nodes how many such pods run."""
    crowds: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, tuple[NodeView, int]]] = {}
    for node in nodes:
        for pod in node.pods:
            if not is_active(pod) or pod_key(pod) in moving:
                continue
            kind = (pod.namespace, tuple(sorted(pod.metadata.labels.items())))
            places = crowds.setdefault(kind, {})
            _, count = places.get(node.name, (node, 0))
            places[node.name] = (node, count + 1)
    return {kind: list(places.values()) for kind, places in crowds.items()}
