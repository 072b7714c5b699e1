"""What a topology constraint has counted so far, and who waits for it."""

from collections.abc import Sequence

from karpenter.apis.core import Pod, TopologySpreadConstraint
from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.check_company import attracted_by, counts, means, spread_by
from karpenter.scheduling.check_places import Place, Resident


class Spread:
    """One topology spread constraint of one kind of pod, and the pods it counts so far."""

    def __init__(self, owner: Pod, constraint: TopologySpreadConstraint) -> None:
        """Start with no domain at all."""
        self.owner, self.constraint = owner, constraint
        self.key = constraint.topology_key
        self.max_skew = constraint.max_skew
        self.found: dict[str, int] = {}
        """Pods counted, by domain."""
        self._eligible: set[str] = set()
        self._least: int | None = None
        self._keys = [c.topology_key for c in spread_by(owner)]
        self._seen: dict[str, bool] = {}

    def open(self, places: Sequence[Place], more: set[str]) -> None:
        """Take note of the domains there are: those with a node that the constraint looks at, and `more`."""
        here = {domain for place in places if (domain := self.domain_of(place)) is not None}
        self._eligible = here | more

    def looks_at(self, place: Place) -> bool:
        """Tell whether pods on `place` count: it has all the labels spread over, and passes the policies."""
        if place.name not in self._seen:
            self._seen[place.name] = all(place.values(key) for key in self._keys) and place.takes(
                self.owner,
                affinity=self.constraint.node_affinity_policy != "Ignore",
                taints=self.constraint.node_taints_policy == "Honor",
            )
        return self._seen[place.name]

    def domain_of(self, place: Place) -> str | None:
        """Return the domain in which pods on `place` count; None when they don't, or it is not known."""
        values = place.values(self.key)
        return next(iter(values)) if len(values) == 1 and self.looks_at(place) else None

    def count(self, domain: str, pods: int = 1) -> None:
        """Count so many more pods."""
        before = self.found.get(domain, 0)
        self.found[domain] = before + pods
        if self._least is not None and min(before, before + pods) <= self._least:
            self._least = None

    @property
    def least(self) -> int:
        """The smallest count of an eligible domain; 0 when these are fewer than minDomains."""
        if self._least is None:
            enough = len(self._eligible) >= (self.constraint.min_domains or 1)
            self._least = min((self.found.get(d, 0) for d in self._eligible), default=0) if enough else 0
        return self._least

    def crowding(self, domain: str) -> int:
        """Return by how much `domain` is ahead of the emptiest one."""
        return self.found.get(domain, 0) - self.least


class Attraction:
    """All required affinity terms of one kind of pod, and the pods that meet every one of them."""

    def __init__(self, owner: Pod) -> None:
        """Start with nobody there."""
        self.keys = sorted({t.topology_key for t in attracted_by(owner)})
        self.found: dict[tuple[str, str], int] = {}
        """Pods that meet all terms, by (key, domain)."""
        self.total = 0

    def domains_of(self, place: Place) -> list[tuple[str, str]]:
        """Return the (key, domain) in which a pod on `place` surely is."""
        known = [(key, place.values(key)) for key in self.keys]
        return [(key, next(iter(values))) for key, values in known if len(values) == 1]

    def count(self, domain: tuple[str, str], pods: int = 1) -> None:
        """Count so many more pods."""
        self.found[domain] = self.found.get(domain, 0) + pods
        self.total += pods


class Kind:
    """Pods that are the same as far as company goes."""

    def __init__(self, snapshot: Snapshot, pod: Pod) -> None:
        """Collect the constraints of pods like `pod`."""
        self.pod = pod
        self.spreads = [Spread(pod, c) for c in spread_by(pod)]
        self.counts_itself = [counts(c, pod, pod) for c in spread_by(pod)]
        self.attraction = Attraction(pod) if attracted_by(pod) else None
        self.attracts_itself = all(means(snapshot, t, pod, pod) for t in attracted_by(pod))

    @property
    def free(self) -> bool:
        """Where it goes depends on nobody."""
        return not self.spreads and self.attraction is None


class Group:
    """Planned pods of one kind for whom it is all the same which of them is bound first."""

    def __init__(
        self,
        kind: Kind,
        own: list[tuple[Spread, str, bool]],
        targets: list[tuple[str, str]],
        swells: list[tuple[Spread, str]],
        pleases: list[tuple[Attraction, tuple[str, str]]],
    ) -> None:
        """Start without members.

        `own`: its spread constraints, the domain it goes to, and whether it counts itself. `targets`: the
        (key, domain) in which it must find company. `swells` and `pleases`: what counts it once it is bound.
        """
        self.kind, self.own, self.targets, self.swells, self.pleases = kind, own, targets, swells, pleases
        self.members: list[Resident] = []
        self.left = 0
        """How many of them wait; the first ones."""

    def add(self, resident: Resident) -> None:
        """Let one more wait."""
        self.members.append(resident)
        self.left += 1

    def refusal(self) -> str:
        """Return why none of its pods can be bound now; empty when one can."""
        for spread, domain, itself in self.own:
            skew = spread.crowding(domain) + itself
            if skew > spread.max_skew:
                return f"skew over {spread.key} would be {skew} in {domain}, maxSkew is {spread.max_skew}"
        attraction = self.kind.attraction
        if attraction is not None and not (self.kind.attracts_itself and not attraction.total):
            for key, domain in self.targets:
                if not attraction.found.get((key, domain)):
                    return f"nobody whom its affinity wants is in {key}={domain}"
        return ""

    def crowding(self) -> int:
        """Return how near binding one more brings any constraint to its maxSkew; the lower the better."""
        return max((spread.crowding(domain) - spread.max_skew for spread, domain in self.swells), default=-1)

    def bind(self, pods: int = 1) -> None:
        """Bind so many pods; a negative number takes them back."""
        self.left -= pods
        for spread, domain in self.swells:
            spread.count(domain, pods)
        for attraction, place in self.pleases:
            attraction.count(place, pods)
