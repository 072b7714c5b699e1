"""Whose turn it is to be nominated, of pods that a hard constraint spreads.

To kube-scheduler a pod that is nominated to a node is there already, as far as any other pod is concerned
that it tries on that node. More pods than a spread lets in at a time would keep each other out of the node
that all of them are nominated to; kube-scheduler then takes their nominations from them. So on each node
there are at most as many of them as the greatest skew, and the next is nominated as soon as one is bound.
That many there should be: they keep pods out that are to go elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
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
    """Where the waiting pods of one company are nominated to."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        """How many may be nominated to a node at a time."""
        self.nominated: dict[str, int] = {}
        """Waiting pods by the node that they are nominated to."""
        self.pods = 0
        self.waiting: dict[str, str] = {}
        """Claims with pods whose turn is to come, each with its node."""


class Turns:
    """Counts spread pods by node, from changes of pods, and tells who may be nominated."""

    def __init__(self, pods: Informer[Pod]) -> None:
        self.wake: Callable[[str], None] = lambda claim: None
        """Called with the name of a claim that may nominate more pods than it could before."""
        self._tallies: dict[Company, _Tally] = {}
        self._at: dict[str, tuple[Company, str]] = {}
        """By waiting pod: its company, and the node that it is nominated to, if it is."""
        self._late: dict[str, list[Company]] = {}
        """By claim: the companies of which it has pods whose turn is to come."""
        self._lost: dict[str, str] = {}
        """By waiting pod: the node that it is not nominated to any more, though it was."""
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
            key, there = pod_key(pod), (company, node.name)
            if self._lost.get(key) == node.name:
                continue  # kube-scheduler would not have it there: asking again and again helps nobody
            if self._at.get(key) == there:
                taken.append(pod)  # its turn already, but nothing was heard of it yet
            elif self._room(self._tally(company, pod), node.name) > 0:
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

    def _tally(self, company: Company, pod: Pod) -> _Tally:
        if company not in self._tallies:
            self._tallies[company] = _Tally(min(spread.max_skew for spread in _spreads(pod)))
        return self._tallies[company]

    def _room(self, tally: _Tally, node: str) -> int:
        """Return how many more pods may be nominated to `node`."""
        return tally.at_once - tally.nominated.get(node, 0)

    def _on_pod(self, change: Change[Pod]) -> None:
        pod, old = change.object, change.old
        key = pod_key(pod)
        company = _company(pod) if change.type != "DELETED" and _waits(pod) else None
        if company is None:
            if key in self._at:
                self._put(key, None, pod)
            return
        nominated = pod.status.nominated_node_name
        if nominated:
            self._lost.pop(key, None)
        elif old is not None and old.status.nominated_node_name:
            self._lost[key] = old.status.nominated_node_name
        self._put(key, (company, nominated), pod)

    def _put(self, key: str, at: tuple[Company, str] | None, pod: Pod) -> None:
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

    def _count(self, at: tuple[Company, str], pod: Pod, sign: int) -> None:
        company, node = at
        tally = self._tally(company, pod)
        tally.pods += sign
        if node:
            tally.nominated[node] = tally.nominated.get(node, 0) + sign
            if not tally.nominated[node]:
                del tally.nominated[node]
        if tally.pods == 0 and sign < 0:
            del self._tallies[company]

    def _wake(self, tally: _Tally) -> None:
        """Have claims looked at again that have room now."""
        for claim, node in list(tally.waiting.items()):
            if self._room(tally, node) > 0:
                self.wake(claim)


def _waits(pod: Pod) -> bool:
    return is_active(pod) and not pod.spec.node_name


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
