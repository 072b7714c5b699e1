"""Required anti-affinity, both ways: of planned and of running pods, towards planned and running ones."""

from collections.abc import Iterator, Sequence

from karpenter.apis.core import PodAffinityTerm
from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.check_company import means, repelled_by
from karpenter.scheduling.check_places import Resident


def quarrels(snapshot: Snapshot, residents: Sequence[Resident]) -> Iterator[str]:
    """Yield the planned pods that somebody keeps out of where they are put, or that keep out who is there.

    A pod whose node may be in one of several domains must get on with the pods of all of them.
    """
    kinds: dict[bytes, list[Resident]] = {}
    for resident in residents:
        kinds.setdefault(resident.kind, []).append(resident)
    for owners in kinds.values():
        for term in repelled_by(owners[0].pod):
            for others in kinds.values():
                if means(snapshot, term, owners[0].pod, others[0].pod):
                    yield from _clashes(term, owners, others)


def _clashes(term: PodAffinityTerm, owners: Sequence[Resident], others: Sequence[Resident]) -> Iterator[str]:
    everyone: dict[str, list[Resident]] = {}
    planned: dict[str, list[Resident]] = {}
    for owner in owners:
        for value in sorted(owner.place.values(term.topology_key)):
            everyone.setdefault(value, []).append(owner)
            if owner.planned:
                planned.setdefault(value, []).append(owner)
    for other in others:
        for value in sorted(other.place.values(term.topology_key)):
            holders = (everyone if other.planned else planned).get(value, [])
            holder = next((o for o in holders if o.key != other.key), None)
            if holder is not None:
                yield f"{other.place.name}: {holder.key} keeps {other.key} out of {term.topology_key}={value}"
                break
