"""Claims list types by name, but a type may have offerings of several sizes: keep the unsuitable ones out."""

from collections.abc import Iterable, Iterator

import numpy as np

from karpenter.model.instancetype import Offering
from karpenter.model.requirements import Requirement, Requirements
from karpenter.scheduling.catalogue import Mask
from karpenter.scheduling.space import PoolSpace


def told_apart(space: PoolSpace, requirements: Requirements, chosen: int, holding: Mask) -> Requirements:
    """Return what a claim has to require besides, so that `chosen` is not launched in a size too small.

    `holding` are the rows of the catalogue that hold the claim's pods. One label is restricted if that will
    do and makes nothing dearer, else the claim is nailed to the best offering.
    """
    names, price = space.catalogue.names, space.evaluate(requirements).price
    rows = [i for i in space.catalogue.twins if names[i] == names[chosen] and np.isfinite(price[i])]
    others = [i for i in rows if not holding[i]]
    if not others:
        return requirements
    wanted = list(_offerings(space, requirements, (i for i in rows if holding[i])))
    unwanted = list(_offerings(space, requirements, others))
    for key in sorted({key for o in wanted for key in o.requirements}):
        values = _values(key, wanted) - _values(key, unwanted)
        tried = requirements.add(Requirement.of(key, "In", sorted(values)))
        after = space.evaluate(tried).price
        if values and after[chosen] <= price[chosen] and not np.isfinite(after[others]).any():
            return tried
    return _nailed(space, requirements, chosen)


def in_one_size(
    space: PoolSpace, requirements: Requirements, chosen: int, options: list[int]
) -> tuple[Requirements, list[int]]:
    """Return what to require, and the `options` of which no other size can be had then, each type once."""
    names, price = space.catalogue.names, space.evaluate(requirements).price
    left_out = set(space.catalogue.twins).difference(options)
    doubtful = {names[i] for i in left_out if np.isfinite(price[i])}
    first: dict[str, int] = {}
    for i in options:
        first.setdefault(names[i], i)
    sure = [i for name, i in first.items() if name not in doubtful]
    return (requirements, sure) if sure else (_nailed(space, requirements, chosen), [chosen])


def _nailed(space: PoolSpace, requirements: Requirements, chosen: int) -> Requirements:
    """Return `requirements` of the offering that `chosen` is cheapest as."""
    ways = [requirements.merge(o.requirements) for o in _offerings(space, requirements, [chosen])]
    return min(ways, key=lambda way: (space.evaluate(way).price[chosen], str(way)))


def _offerings(space: PoolSpace, requirements: Requirements, rows: Iterable[int]) -> Iterator[Offering]:
    for row in rows:
        for offering in space.catalogue.types[row].offerings:
            if offering.available and not requirements.compatible(offering.requirements, space.well_known):
                yield offering


def _values(key: str, offerings: Iterable[Offering]) -> set[str]:
    return {value for o in offerings for value in o.requirements.get(key).permitted()}
