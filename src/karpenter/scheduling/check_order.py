"""Topology spread and pod affinity: is there an order in which kube-scheduler could bind the planned pods?

Both look at who runs already, so a plan is right when its pods can be bound one after the other such that
each finds its constraints met at its turn. All planned nodes are taken to be there from the start.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.check_groups import Group, Party, groups_of, parties, tight_domains
from karpenter.scheduling.check_places import Place, Resident
from karpenter.scheduling.check_queue import MOST_STATES, bind_all
from karpenter.scheduling.check_tallies import Kind, Spread, Tallies


class Newcomer(NamedTuple):
    """A pod that is tried beside a finished plan, with caution."""

    key: str
    """Empty: there is none, only the domains are to be minded."""
    domains: Callable[[Spread], set[str]]
    """What a spread constraint might have to count besides the nodes there are and will be."""


def unbindable(
    snapshot: Snapshot,
    places: Sequence[Place],
    residents: Sequence[Resident],
    newcomer: Newcomer | None = None,
    *,
    most_states: int = MOST_STATES,
) -> Iterator[str]:
    """Yield the planned pods whose spread or affinity is not met, whatever the order.

    `most_states`: how many combinations of bound pods are looked at before no order is taken to exist.

    A `newcomer` comes when it does most harm: after all others if its place depends on them, else first.
    """
    tallies, kinds = Tallies(), dict[bytes, Kind]()
    for resident in residents:
        if resident.kind not in kinds:
            kinds[resident.kind] = Kind(snapshot, resident.pod, tallies)
    if not tallies.spreads and not tallies.attractions:
        return
    for kind in kinds.values():
        kind.listen(snapshot, tallies)
    lots: dict[Hashable, list[Place]] = {}
    for place in places:
        lots.setdefault(place.likeness, []).append(place)
    for spread in tallies.spreads:
        spread.open(lots.values(), newcomer.domains(spread) if newcomer else set())
    here = [r for r in residents if r.planned]
    for party in parties([r for r in residents if not r.planned], kinds):
        party.count()
    planned = parties([r for r in here if newcomer is None or r.key != newcomer.key], kinds)
    if newcomer is None:
        yield from chain.from_iterable(map(_undecided, planned))
        yield from _faults(bind_all(groups_of(planned, tight_domains(planned)), most_states))
        return
    new = parties([r for r in here if r.key == newcomer.key], kinds)
    for party in (*planned, *new):
        yield from _undecided(party)
    for some in (new, planned) if all(p.kind.free for p in new) else (planned, new):
        groups = groups_of(some)
        yield from _faults(bind_all(groups, most_states))
        for group in groups:
            if group.free:
                group.bind(group.left)


def _undecided(party: Party) -> Iterator[str]:
    """Whoever has such a constraint must be put where its domain is known."""
    kind = party.kind
    keys = [spread.key for spread in kind.spreads] + (kind.attraction.keys if kind.attraction else [])
    for key in dict.fromkeys(keys):
        values = sorted(party.place.values(key))
        if len(values) != 1:
            text = f"could be any of {values}" if values else "is unknown"
            for resident in party.members:
                yield f"{resident.place.name}: {resident.key} depends on {key}, which {text}"


def _faults(left: Sequence[Group]) -> Iterator[str]:
    for group in left:
        for resident in group.members[: group.left]:
            yield f"{resident.place.name}: {resident.key} can never be bound, {group.refusal()}"
