"""Whose turn it is to be nominated, of pods that a hard constraint spreads.

To kube-scheduler a pod that is nominated to a node is there already, as far as any other pod is concerned
that it tries on that node. More pods than a spread lets in at a time would keep each other out of the node
that all of them are nominated to; kube-scheduler then takes their nominations from them. So they are
nominated one after the other: as many in a domain as fit by what is bound, and the next as soon as the
domains that lag behind have caught up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from karpenter.apis.core import Node, Pod, TopologySpreadConstraint
from karpenter.apis.selectors import label_selector_matches
from karpenter.kube.informer import Change, Informer
from karpenter.model.pods import is_active, pod_key

_encoder = msgspec.json.Encoder(order="sorted")


class Company(NamedTuple):
    """What pods have in common that count for each other: equal companies are the same."""

    namespace: str
    terms: bytes
    """Their constraints as JSON, with their labels' values for `matchLabelKeys`."""


class _Tally:
    """Where the pods of one company are."""

    def __init__(self, spreads: Sequence[TopologySpreadConstraint]) -> None:
        self.spreads = spreads
        self.nodes: dict[str, list[int]] = {}
        """By node: pods bound there, and pods nominated to it; also nodes that are to get some."""
        self.pods = 0
        self.waiting: dict[str, str] = {}
        """Claims with pods whose turn is to come, each with its node."""
        self.domains: list[dict[str, list[int]]] | None = None
        """The same by domain, for each spread; None: to be counted again."""


class Turns:
    """Counts spread pods by node, from changes of pods, and tells who may be nominated."""

    def __init__(self, pods: Informer[Pod], nodes: Informer[Node]) -> None:
        self.wake: Callable[[str], None] = lambda claim: None
        """Called with the name of a claim that may nominate more pods than it could before."""
        self._nodes = nodes
        self._tallies: dict[Company, _Tally] = {}
        self._at: dict[str, tuple[Company, str, bool]] = {}
        """By pod: its company, its node or the one it is nominated to, and whether it is bound there."""
        self._late: dict[str, list[Company]] = {}
        """By claim: the companies of which it has pods whose turn is to come."""
        self._lost: dict[str, str] = {}
        """By waiting pod: the node that it is not nominated to any more, though it was."""
        self._nodes.subscribe(self._on_node)
        pods.subscribe(self._on_pod)

    def take(self, claim: str, node: Node, pods: Iterable[Pod]) -> list[Pod]:
        """Return those of the claim's `pods` that are to be nominated to `node` now, and count them as that.

        `wake` is called for the claim when it may be the turn of others.
        """
        taken = []
        late: dict[Company, None] = {}
        for pod in pods:
            company = _company(pod)
            if company is None:
                taken.append(pod)
                continue
            key, there = pod_key(pod), (company, node.name, False)
            if self._lost.get(key) == node.name:
                continue  # kube-scheduler would not have it there: asking again and again helps nobody
            if self._at.get(key) == there:
                taken.append(pod)  # its turn already, but nothing was heard of it yet
            elif self._room(self._tally(company, pod), node) > 0:
                self._put(key, there, pod)
                taken.append(pod)
            else:
                late[company] = None
        self.forget(claim)
        for company in late:
            self._tallies[company].waiting[claim] = node.name
        if late:
            self._late[claim] = list(late)
        return taken

    def forget(self, claim: str) -> None:
        """Wake a claim no more."""
        for company in self._late.pop(claim, ()):
            if company in self._tallies:
                self._tallies[company].waiting.pop(claim, None)

    def expect(self, node: Node, pods: Iterable[Pod]) -> None:
        """Note that `node` is there for `pods`: without them, its domains lag behind others from now on."""
        for pod in pods:
            company = _company(pod)
            if company is not None:
                tally = self._tally(company, pod)
                if node.name not in tally.nodes:
                    tally.nodes[node.name] = [0, 0]
                    tally.domains = None

    def _tally(self, company: Company, pod: Pod) -> _Tally:
        if company not in self._tallies:
            self._tallies[company] = _Tally(_spreads(pod))
        return self._tallies[company]

    def _room(self, tally: _Tally, node: Node) -> int:
        """Return how many more pods may be nominated to `node`."""
        if tally.domains is None:
            tally.domains = [self._by_domain(tally, spread.topology_key) for spread in tally.spreads]
        rooms = []
        for spread, domains in zip(tally.spreads, tally.domains, strict=True):
            domain = node.metadata.labels.get(spread.topology_key)
            if domain is not None:
                bound, nominated = domains.get(domain, (0, 0))
                least = min((count for count, _ in domains.values()), default=0)
                rooms.append(spread.max_skew + min(least, bound) - bound - nominated)
        return min(rooms, default=1)  # a node outside of all domains is kube-scheduler's to judge

    def _by_domain(self, tally: _Tally, key: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for name, (bound, nominated) in tally.nodes.items():
            node = self._nodes.get(name)
            domain = node.metadata.labels.get(key) if node is not None else None
            if domain is not None:
                sums = found.setdefault(domain, [0, 0])
                sums[0] += bound
                sums[1] += nominated
        return found

    def _on_node(self, change: Change[Node]) -> None:
        old, node = change.old, change.object
        if change.type == "MODIFIED" and old is not None and old.metadata.labels == node.metadata.labels:
            return
        for company in list(self._tallies):
            tally = self._tallies[company]
            tally.domains = None
            if change.type == "DELETED" and not any(tally.nodes.get(node.name, ())):
                tally.nodes.pop(node.name, None)
                self._wake(tally)

    def _on_pod(self, change: Change[Pod]) -> None:
        pod, old = change.object, change.old
        key = pod_key(pod)
        company = _company(pod) if change.type != "DELETED" and is_active(pod) else None
        if company is None:
            if key in self._at:
                self._put(key, None, pod)
            return
        bound, nominated = pod.spec.node_name, pod.status.nominated_node_name
        if bound or nominated:
            self._lost.pop(key, None)
        elif old is not None and old.status.nominated_node_name:
            self._lost[key] = old.status.nominated_node_name
        self._put(key, (company, bound or nominated, bool(bound)), pod)

    def _put(self, key: str, at: tuple[Company, str, bool] | None, pod: Pod) -> None:
        """Count a pod where it is now, instead of where it was."""
        before = self._at.get(key)
        if before == at:
            return
        if at is None:
            self._at.pop(key, None)
            self._lost.pop(key, None)
        else:
            self._at[key] = at
            self._count(at, pod, 1)
        if before is not None:
            self._count(before, pod, -1)
        for company in dict.fromkeys(each[0] for each in (before, at) if each is not None):
            if company in self._tallies:
                self._wake(self._tallies[company])

    def _count(self, at: tuple[Company, str, bool], pod: Pod, sign: int) -> None:
        company, node, bound = at
        tally = self._tally(company, pod)
        tally.pods += sign
        if node:
            tally.nodes.setdefault(node, [0, 0])[0 if bound else 1] += sign
            tally.domains = None
        if tally.pods == 0 and sign < 0:
            del self._tallies[company]

    def _wake(self, tally: _Tally) -> None:
        """Have claims looked at again that have room now."""
        for claim, name in list(tally.waiting.items()):
            node = self._nodes.get(name)
            if node is None or self._room(tally, node) > 0:
                self.wake(claim)


def _spreads(pod: Pod) -> list[TopologySpreadConstraint]:
    """Return the hard constraints of a pod that count the pod itself."""
    return [
        c
        for c in pod.spec.topology_spread_constraints
        if c.when_unsatisfiable == "DoNotSchedule"
        and c.label_selector is not None
        and label_selector_matches(c.label_selector, pod.metadata.labels)
    ]


def _company(pod: Pod) -> Company | None:
    """Return with whom a pod is spread; None: nobody."""
    if not pod.spec.topology_spread_constraints:
        return None
    spreads = _spreads(pod)
    if not spreads:
        return None
    labels: Mapping[str, str] = pod.metadata.labels
    values = [[labels.get(key, "") for key in spread.match_label_keys] for spread in spreads]
    return Company(pod.namespace, _encoder.encode((spreads, values)))
