"""Topology spread and pod affinity: is there an order in which kube-scheduler could bind the planned pods?

Both look at who runs already, so a plan is right when its pods can be bound one after the other such that
each finds its constraints met at its turn. All planned nodes are taken to be there from the start.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.check_company import attracted_by, counts, means
from karpenter.scheduling.check_places import Place, Resident
from karpenter.scheduling.check_queue import bind_all
from karpenter.scheduling.check_tallies import Attraction, Group, Kind, Spread

_Effects = tuple[list[tuple[Spread, str]], list[tuple[Attraction, tuple[str, str]]]]


class Newcomer(NamedTuple):
    """A pod that is tried beside a finished plan, with caution."""

    key: str
    domains: Callable[[Spread], set[str]]
    """What a spread constraint might have to count besides the nodes there are and will be."""


def unbindable(
    snapshot: Snapshot,
    places: Sequence[Place],
    residents: Sequence[Resident],
    newcomer: Newcomer | None = None,
) -> Iterator[str]:
    """Yield the planned pods whose spread or affinity is not met, whatever the order.

    A `newcomer` comes when it does most harm: after all others if its place depends on them, else first.
    """
    kinds: dict[bytes, Kind] = {}
    for resident in residents:
        if resident.kind not in kinds:
            kinds[resident.kind] = Kind(snapshot, resident.pod)
    owners = [k for k in kinds.values() if not k.free]
    if not owners:
        return
    for kind in owners:
        for spread in kind.spreads:
            spread.open(places, newcomer.domains(spread) if newcomer else set())
    planned: list[tuple[Kind, Resident, _Effects]] = []
    listeners = {mark: _listeners(snapshot, kind, owners) for mark, kind in kinds.items()}
    for resident in residents:
        effects = _effects(resident.place, *listeners[resident.kind])
        if resident.planned:
            planned.append((kinds[resident.kind], resident, effects))
        else:
            _count(effects)
    for kind, resident, _ in planned:
        yield from _undecided(kind, resident)
    groups = _groups(planned, newcomer.key if newcomer else "")
    new = [g for g in groups if newcomer and g.members[0].key == newcomer.key]
    old = [g for g in groups if g not in new]
    for some in (new, old) if new and new[0].kind.free else (old, new):
        yield from _faults(bind_all(some))
        for group in some:
            if group.kind.free:
                group.bind(group.left)


def _listeners(
    snapshot: Snapshot, kind: Kind, owners: Sequence[Kind]
) -> tuple[list[Spread], list[Attraction]]:
    """Return the constraints that pods of `kind` matter to."""
    spreads = [s for owner in owners for s in owner.spreads if counts(s.constraint, owner.pod, kind.pod)]
    attractions = [
        owner.attraction
        for owner in owners
        if owner.attraction is not None
        and all(means(snapshot, t, owner.pod, kind.pod) for t in attracted_by(owner.pod))
    ]
    return spreads, attractions


def _effects(place: Place, spreads: Sequence[Spread], attractions: Sequence[Attraction]) -> _Effects:
    """Return which counts a pod on `place` adds to."""
    swells = [(spread, domain) for spread in spreads if (domain := spread.domain_of(place)) is not None]
    pleases = [(attraction, found) for attraction in attractions for found in attraction.domains_of(place)]
    return swells, pleases


def _count(effects: _Effects) -> None:
    for spread, domain in effects[0]:
        spread.count(domain)
    for attraction, found in effects[1]:
        attraction.count(found)


def _undecided(kind: Kind, resident: Resident) -> Iterator[str]:
    """Whoever has such a constraint must be put where its domain is known."""
    keys = [spread.key for spread in kind.spreads] + (kind.attraction.keys if kind.attraction else [])
    for key in dict.fromkeys(keys):
        values = sorted(resident.place.values(key))
        if len(values) != 1:
            text = f"could be any of {values}" if values else "is unknown"
            yield f"{resident.place.name}: {resident.key} depends on {key}, which {text}"


def _groups(planned: Sequence[tuple[Kind, Resident, _Effects]], newcomer: str) -> list[Group]:
    """Return the pods that have or matter to a constraint, those together where all is the same to them.

    The pod with the key `newcomer` is in a group of its own.
    """
    settled = set() if newcomer else _settled(planned)
    groups: dict[tuple[object, ...], Group] = {}
    for kind, resident, (swells, pleases) in planned:
        place = resident.place
        own = [
            (spread, next(iter(values)), itself)
            for spread, itself in zip(kind.spreads, kind.counts_itself, strict=True)
            if spread not in settled and len(values := place.values(spread.key)) == 1
        ]
        targets = kind.attraction.domains_of(place) if kind.attraction else []
        open_swells = [(spread, domain) for spread, domain in swells if spread not in settled]
        if not own and not targets and not open_swells and not pleases:
            continue
        shape = (
            kind,
            tuple(own),
            tuple(targets),
            tuple(open_swells),
            tuple(pleases),
            resident.key == newcomer,
        )
        if shape not in groups:
            groups[shape] = Group(kind, own, targets, open_swells, pleases)
        groups[shape].add(resident)
    return list(groups.values())


def _settled(planned: Sequence[tuple[Kind, Resident, _Effects]]) -> set[Spread]:
    """Return the spread constraints that hold in any order, because no domain ever gets too many."""
    final: dict[tuple[Spread, str], int] = {}
    domains: dict[Spread, set[str]] = {}
    for kind, resident, (swells, _) in planned:
        for spread, domain in swells:
            final[spread, domain] = final.get((spread, domain), spread.found.get(domain, 0)) + 1
        for spread in kind.spreads:
            domains.setdefault(spread, set()).update(resident.place.values(spread.key))
    return {
        spread
        for spread, found in domains.items()
        if all(
            final.get((spread, domain), spread.found.get(domain, 0)) - spread.least <= spread.max_skew
            for domain in found
        )
    }


def _faults(left: Sequence[Group]) -> Iterator[str]:
    for group in left:
        for resident in group.members[: group.left]:
            yield f"{resident.place.name}: {resident.key} can never be bound, {group.refusal()}"
