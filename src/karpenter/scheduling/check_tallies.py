"""What a topology constraint has counted so far."""

from collections.abc import Hashable, Iterable, Sequence

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod, PodAffinityTerm, TopologySpreadConstraint
from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.check_company import attracted_by, counts, means, narrowed, spread_by
from karpenter.scheduling.check_places import Place

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Spread:
    """One topology spread constraint, and the pods it counts so far."""

    def __init__(self, owner: Pod, constraint: TopologySpreadConstraint) -> None:
        """Start with no domain at all."""
        self.owner, self.constraint = owner, constraint
        self.key = constraint.topology_key
        self.max_skew = constraint.max_skew
        self.by_host = self.key == known.KUBERNETES_HOSTNAME
        self.found: dict[str, int] = {}
        """Pods counted, by domain."""
        self._eligible: set[str] = set()
        self._levels: dict[int, int] = {}
        """How many eligible domains have so many pods."""
        self._lowest = 0
        self._keys = [c.topology_key for c in spread_by(owner)]
        self._seen: dict[Hashable, bool] = {}

    def open(self, places: Iterable[Sequence[Place]], more: set[str]) -> None:
        """Take note of the domains there are: those with a node that the constraint looks at, and `more`.

        `places` are given in lots of such as are alike. Nothing must have been counted yet.
        """
        self._eligible = set(more)
        for alike in places:
            if self.looks_at(alike[0]):
                some = alike if self.by_host else alike[:1]
                self._eligible.update(d for place in some if (d := self.domain_of(place)) is not None)
        enough = len(self._eligible) >= (self.constraint.min_domains or 1)
        self._levels = {0: len(self._eligible)} if enough else {}

    def looks_at(self, place: Place) -> bool:
        """Tell whether pods on `place` count: it has all the labels spread over, and passes the policies."""
        if place.likeness not in self._seen:
            self._seen[place.likeness] = all(place.values(key) for key in self._keys) and place.takes(
                self.owner,
                affinity=self.constraint.node_affinity_policy != "Ignore",
                taints=self.constraint.node_taints_policy == "Honor",
            )
        return self._seen[place.likeness]

    def domain_of(self, place: Place) -> str | None:
        """Return the domain in which pods on `place` count; None when they don't, or it is not known."""
        values = place.values(self.key)
        return next(iter(values)) if len(values) == 1 and self.looks_at(place) else None

    def count(self, domain: str, pods: int = 1) -> None:
        """Count so many more pods."""
        before = self.found.get(domain, 0)
        after = self.found[domain] = before + pods
        if self._levels and domain in self._eligible:
            self._levels[before] -= 1
            self._levels[after] = self._levels.get(after, 0) + 1
            self._lowest = min(self._lowest, after)
            while not self._levels.get(self._lowest):
                self._lowest += 1

    @property
    def least(self) -> int:
        """The smallest count of an eligible domain; 0 when these are fewer than minDomains."""
        return self._lowest

    def crowding(self, domain: str) -> int:
        """Return by how much `domain` is ahead of the emptiest one."""
        return self.found.get(domain, 0) - self._lowest


class Attraction:
    """All required affinity terms of one kind of pod, and the pods that meet every one of them."""

    def __init__(self, owner: Pod) -> None:
        """Start with nobody there."""
        self.owner = owner
        self.keys = sorted({t.topology_key for t in attracted_by(owner)})
        self.found: dict[tuple[str, str], int] = {}
        """Pods that meet all terms, by (key, domain)."""
        self.total = 0

    def domains_of(self, place: Place) -> list[tuple[str, str]]:
        """Return the (key, domain) in which a pod on `place` surely is."""
        known_values = [(key, place.values(key)) for key in self.keys]
        return [(key, next(iter(values))) for key, values in known_values if len(values) == 1]

    def count(self, domain: tuple[str, str], pods: int = 1) -> None:
        """Count so many more pods."""
        self.found[domain] = self.found.get(domain, 0) + pods
        self.total += pods


class Tallies:
    """The counts of all constraints; those of different pods that count the same are one."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._spreads: dict[bytes, Spread] = {}
        self._attractions: dict[bytes, Attraction] = {}

    @property
    def spreads(self) -> list[Spread]:
        """All spread constraints."""
        return list(self._spreads.values())

    @property
    def attractions(self) -> list[Attraction]:
        """All sets of affinity terms."""
        return list(self._attractions.values())

    def spread(self, owner: Pod, constraint: TopologySpreadConstraint) -> Spread:
        """Return what counts for `constraint` of `owner`."""
        spec = owner.spec
        mark = _encoder.encode(
            (
                owner.namespace,
                msgspec.structs.replace(
                    constraint,
                    label_selector=narrowed(
                        constraint.label_selector, owner, constraint.match_label_keys, []
                    ),
                    match_label_keys=[],
                ),
                [c.topology_key for c in spread_by(owner)],
                spec.node_selector,
                spec.affinity.node_affinity if spec.affinity else None,
                spec.tolerations,
            )
        )
        return self._spreads.setdefault(mark, Spread(owner, constraint))

    def attraction(self, owner: Pod) -> Attraction:
        """Return what counts for the affinity terms of `owner`."""
        mark = _encoder.encode((owner.namespace, [_plain(t, owner) for t in attracted_by(owner)]))
        return self._attractions.setdefault(mark, Attraction(owner))


def _plain(term: PodAffinityTerm, owner: Pod) -> PodAffinityTerm:
    """Return `term` with what it takes from the labels of its owner written out."""
    selector = narrowed(term.label_selector, owner, term.match_label_keys, term.mismatch_label_keys)
    return msgspec.structs.replace(term, label_selector=selector, match_label_keys=[], mismatch_label_keys=[])


class Kind:
    """Pods that are the same as far as company goes."""

    def __init__(self, snapshot: Snapshot, pod: Pod, tallies: Tallies) -> None:
        """Collect the constraints of pods like `pod`."""
        self.pod = pod
        self.spreads = [tallies.spread(pod, c) for c in spread_by(pod)]
        self.counts_itself = [counts(c, pod, pod) for c in spread_by(pod)]
        self.attraction = tallies.attraction(pod) if attracted_by(pod) else None
        self.attracts_itself = all(means(snapshot, t, pod, pod) for t in attracted_by(pod))
        self.swells: list[Spread] = []
        """The spread constraints that count such pods."""
        self.pleases: list[Attraction] = []
        """Whose affinity such pods meet."""

    def listen(self, snapshot: Snapshot, tallies: Tallies) -> None:
        """Find out whom such pods matter to, once `tallies` knows all constraints."""
        self.swells = [s for s in tallies.spreads if counts(s.constraint, s.owner, self.pod)]
        self.pleases = [
            attraction
            for attraction in tallies.attractions
            if all(means(snapshot, t, attraction.owner, self.pod) for t in attracted_by(attraction.owner))
        ]

    @property
    def free(self) -> bool:
        """Where it goes depends on nobody."""
        return not self.spreads and self.attraction is None
