"""Planned pods put together for whom it is all the same which of them is bound first."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from karpenter.apis import labels as known
from karpenter.scheduling.check_places import Place, Resident
from karpenter.scheduling.check_tallies import Attraction, Kind, Spread

Tight = Mapping[Spread, set[str]]
"""The domains in which it depends on the order of binding whether a spread constraint holds."""


class Ties(NamedTuple):
    """What a pod in its place waits for, and what it does for others."""

    own: tuple[tuple[Spread, str, bool], ...]
    """Its spread constraints, the domain it goes to, and whether it counts itself."""
    attraction: Attraction | None
    targets: tuple[tuple[str, str], ...]
    """The (key, domain) in which it must find company."""
    may_be_first: bool
    """It needs no company as long as nobody is anywhere."""
    swells: tuple[tuple[Spread, str], ...]
    """What counts it once it is bound."""
    pleases: tuple[tuple[Attraction, tuple[str, str]], ...]
    """Whose company it is once it is bound."""


class Party:
    """Pods of one kind in places that are alike but for their host names."""

    def __init__(self, kind: Kind, place: Place) -> None:
        """Start without members; `place` is that of any of them."""
        self.kind, self.place = kind, place
        self.members: list[Resident] = []

    def count(self) -> None:
        """Say that all of them are bound."""
        for spread, domain, pods in self.swells():
            spread.count(domain, pods)
        for attraction in self.kind.pleases:
            for resident in self.members:
                for found in attraction.domains_of(resident.place):
                    attraction.count(found)

    def swells(self) -> Iterator[tuple[Spread, str, int]]:
        """Yield which spread constraints will count how many of them, by domain."""
        for spread in self.kind.swells:
            if not spread.looks_at(self.place):
                continue
            if not spread.by_host:
                domain = spread.domain_of(self.place)
                if domain is not None:
                    yield spread, domain, len(self.members)
                continue
            for resident in self.members:
                domain = spread.domain_of(resident.place)
                if domain is not None:
                    yield spread, domain, 1

    def depends_on_hosts(self, tight: Tight | None) -> bool:
        """Tell whether it matters on which host each of them is."""
        kind = self.kind
        spreads = {*kind.spreads, *kind.swells}
        if any(s.by_host and (tight is None or s in tight) for s in spreads):
            return True
        attractions = [*kind.pleases, *([kind.attraction] if kind.attraction else [])]
        return any(known.KUBERNETES_HOSTNAME in a.keys for a in attractions)


def parties(residents: Sequence[Resident], kinds: Mapping[bytes, Kind]) -> list[Party]:
    """Return those together who are of one kind and in places that are alike."""
    found: dict[tuple[bytes, Hashable], Party] = {}
    for resident in residents:
        mark = resident.kind, resident.place.likeness
        party = found.get(mark)
        if party is None:
            party = found[mark] = Party(kinds[resident.kind], resident.place)
        party.members.append(resident)
    return list(found.values())


class Group:
    """Planned pods with the same ties."""

    def __init__(self, ties: Ties) -> None:
        """Start without members."""
        self.ties = ties
        self.members: list[Resident] = []
        self.left = 0
        """How many of them wait; the first ones."""
        self.free = not ties.own and not ties.targets
        """Nobody else matters to them."""

    def add(self, residents: Sequence[Resident]) -> None:
        """Let more wait."""
        self.members += residents
        self.left += len(residents)

    def ready(self) -> bool:
        """Tell whether one of its pods can be bound now."""
        return not self._crowded() and not self._lonely()

    def _crowded(self) -> tuple[Spread, str, int] | None:
        for spread, domain, itself in self.ties.own:
            skew = spread.crowding(domain) + itself
            if skew > spread.max_skew:
                return spread, domain, skew
        return None

    def _lonely(self) -> tuple[str, str] | None:
        attraction = self.ties.attraction
        if attraction is None or (self.ties.may_be_first and not attraction.total):
            return None
        return next((t for t in self.ties.targets if not attraction.found.get(t)), None)

    def refusal(self) -> str:
        """Return why none of its pods can be bound now; empty when one can."""
        crowded, lonely = self._crowded(), self._lonely()
        if crowded:
            spread, domain, skew = crowded
            return f"skew over {spread.key} would be {skew} in {domain}, maxSkew is {spread.max_skew}"
        return f"nobody whom its affinity wants is in {lonely[0]}={lonely[1]}" if lonely else ""

    def bind(self, pods: int = 1) -> None:
        """Bind so many pods; a negative number takes them back."""
        self.left -= pods
        for spread, domain in self.ties.swells:
            spread.count(domain, pods)
        for attraction, place in self.ties.pleases:
            attraction.count(place, pods)


def groups_of(planned: Sequence[Party], tight: Tight | None = None) -> list[Group]:
    """Return the pods that have or matter to a constraint, those together where all is the same to them.

    Without `tight` every domain is taken to be so.
    """
    groups: dict[Ties, Group] = {}
    for party in planned:
        if party.depends_on_hosts(tight):
            some = [(resident.place, [resident]) for resident in party.members]
        else:
            some = [(party.place, party.members)]
        for place, residents in some:
            ties = _ties(party.kind, place, tight)
            if ties.own or ties.targets or ties.swells or ties.pleases:
                if ties not in groups:
                    groups[ties] = Group(ties)
                groups[ties].add(residents)
    return list(groups.values())


def _ties(kind: Kind, place: Place, tight: Tight | None) -> Ties:
    own, swells = [], []
    for spread, itself in zip(kind.spreads, kind.counts_itself, strict=True):
        values = place.values(spread.key)
        if len(values) == 1:
            domain = next(iter(values))
            if tight is None or domain in tight.get(spread, ()):
                own.append((spread, domain, itself))
    for spread in kind.swells:
        if tight is None or spread in tight:
            found = spread.domain_of(place)
            if found is not None:
                swells.append((spread, found))
    attraction = kind.attraction
    return Ties(
        tuple(own),
        attraction,
        tuple(attraction.domains_of(place)) if attraction else (),
        attraction is not None and kind.attracts_itself,
        tuple(swells),
        tuple((a, found) for a in kind.pleases for found in a.domains_of(place)),
    )


def tight_domains(planned: Sequence[Party]) -> Tight:
    """Return the domains of spread constraints that get so many pods that the order of binding matters.

    In all others the constraint holds whatever the order: their count only rises, and never that far above
    what the emptiest domain has now.
    """
    final: dict[tuple[Spread, str], int] = {}
    for party in planned:
        for spread, domain, pods in party.swells():
            final[spread, domain] = final.get((spread, domain), spread.found.get(domain, 0)) + pods
    tight: dict[Spread, set[str]] = {}
    for party in planned:
        for spread in dict.fromkeys(party.kind.spreads):
            places = [r.place for r in party.members] if spread.by_host else [party.place]
            for domain in {value for place in places for value in place.values(spread.key)}:
                count = final.get((spread, domain), spread.found.get(domain, 0))
                if count - spread.least > spread.max_skew:
                    tight.setdefault(spread, set()).add(domain)
    return tight
