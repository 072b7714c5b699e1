"""Which zone waiting pods are tied to: where a shortage of one zone would show."""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.model.problem import Problem
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.catalogue import compiled
from karpenter.scheduling.domains import Tally
from karpenter.scheduling.terms import Term, terms_of
from karpenter.scheduling.topology import Topology
from karpenter.scheduling.volumes import VolumeProblem, alternatives

FLEXIBLE = "flexible"
NONE = "none"


def pods_by_zone(problem: Problem) -> Counter[str]:
    """Count the pods to place by the one zone they can run in, `flexible` if several, `none` without any."""
    zones = Zones(problem)
    return Counter(zones.of(pod) for pod in problem.pods)


class Zones:
    """The zones that there are, and how many pods of whom run in each."""

    def __init__(self, problem: Problem) -> None:
        """Look at `problem`; pods are counted when the first one asks that minds them."""
        self._problem = problem

    def of(self, pod: Pod) -> str:
        """Return the zone that `pod` is tied to before anything is placed.

        By its node selector, its required node affinity and its volumes; by its own hard spread over zones
        and its own required affinity and anti-affinity over zones, as far as pods run that these count.
        """
        chosen = _chosen(pod, self._problem.snapshot)
        for term in self._terms(pod):
            here = self.known if chosen is None else chosen
            chosen = self._permitted(pod, term, here)
        if chosen is None or len(chosen) > 1:
            return FLEXIBLE
        return min(chosen, default=NONE)

    @cached_property
    def known(self) -> frozenset[str]:
        """The zones of nodes, and those where some pool can buy."""
        found = {node.labels[known.ZONE] for node in self._problem.nodes if known.ZONE in node.labels}
        for offer in self._problem.pools:
            bought = Requirements.from_specs(offer.pool.spec.template.spec.requirements).get(known.ZONE)
            catalogue = compiled(offer.instance_types, self._problem.options.reservation_label)
            found.update(zone for zone in catalogue.values_of(known.ZONE) if bought.has(zone))
        return frozenset(found)

    @cached_property
    def _topology(self) -> Topology:
        return Topology(self._problem)

    def _terms(self, pod: Pod) -> Iterable[Term]:
        """Return the hard terms of a pod that count by zone."""
        spread, affinity = pod.spec.topology_spread_constraints, pod.spec.affinity
        if not spread and (affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity)):
            return ()
        namespaces = self._problem.snapshot.namespaces
        return [t for t in terms_of(pod, namespaces, soft=False) if t.group.key == known.ZONE]

    def _permitted(self, pod: Pod, term: Term, zones: frozenset[str]) -> frozenset[str]:
        """Return those of `zones` where one more pod keeps the term, as things stand."""
        ledger = self._topology.domains
        tally = ledger.groups[ledger.number(term.group)]
        itself = term.group.selects(pod)
        if term.group.kind == "anti":
            return frozenset(z for z in zones if not tally.pods.get(z))
        if term.group.kind == "affinity":
            founder = itself and not tally.total
            return zones if founder else frozenset(z for z in zones if tally.pods.get(z))
        most = term.max_skew + _least(tally, term, zones) - itself
        return frozenset(z for z in zones if tally.pods.get(z, 0) <= most)


def _least(tally: Tally, term: Term, zones: frozenset[str]) -> int:
    domains = tally.present | zones
    if len(domains) < term.min_domains:
        return 0
    return min((tally.pods.get(z, 0) for z in domains), default=0)


def _chosen(pod: Pod, snapshot: Snapshot) -> frozenset[str] | None:
    """Return the zones that a pod's own selection and its volumes leave; None: they leave it open."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity is not None else None
    if not (pod.spec.node_selector or required or pod.spec.volumes):
        return None
    own = Requirements.from_labels(pod.spec.node_selector)
    terms = required.node_selector_terms if required is not None else []
    try:
        places = alternatives(pod, snapshot)
    except VolumeProblem:
        return frozenset()
    zones: set[str] = set()
    for term in [Requirements.from_specs(t.match_expressions) for t in terms] or [Requirements()]:
        for place in places:
            zone = own.merge(term).merge(place).get(known.ZONE)
            if zone.complement:
                return None
            zones.update(zone.permitted())
    return frozenset(zones)
