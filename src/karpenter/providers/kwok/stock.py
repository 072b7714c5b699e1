"""What simulated machines leave of reservations and other offerings of which there is only so much.

A file of instance types says how much there is in all (`ReservationCapacity`); what is used is counted from
the machines that exist. A machine just launched counts from then on, although its claim has not been read
back yet. Of steps of a price, those for the first few nodes (`PriceSteps`), the machines that there are use
what is cheapest first, whichever was bought when.
"""

from collections.abc import Mapping

import msgspec

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.providers.kwok.kwoklabels import RESERVATION

Place = tuple[str, ...]
"""What is used up: a reservation by its id, or type, zone and capacity type."""
Types = tuple[InstanceType, ...]
Steps = tuple[tuple[int, float], ...]
COMMITMENT = "commitment"


class Stock:
    """The catalogue less what is used."""

    def __init__(self, types: Types) -> None:
        """Start from all that there is."""
        self._all = types
        self._scarce = any(o.stock is not None or o.steps for t in types for o in t.offerings)
        self._commitments = _commitments(types)
        self._granted: dict[str, Place] = {}
        """Machines launched, by name, that were not among those seen since."""
        self._used: dict[Place, int] = {}
        self._left = types

    def grant(self, name: str, given: Mapping[str, str]) -> None:
        """Count a machine, with the labels it was given, until it is seen."""
        if self._scarce:
            self._granted[name] = _place(given)

    def types(
        self, machines: Mapping[str, Mapping[str, str]], claims: Mapping[str, bool], besides: str = ""
    ) -> Types:
        """Return the catalogue as it is with these machines (labels by name), but for the one `besides`.

        It is the same tuple until it changes. `claims` are those there are, by name, and whether each is
        known to be launched.
        """
        if not self._scarce:
            return self._all
        for name in list(self._granted):
            if name in machines or claims.get(name, True):
                del self._granted[name]  # it is counted as a machine, or its claim is gone
        places = {**{name: _place(own) for name, own in machines.items()}, **self._granted}
        apart = places.pop(besides, None)
        used: dict[Place, int] = {}
        for place in places.values():
            used[place] = used.get(place, 0) + 1
        for place in [place for place in used if place in self._commitments]:
            shared = (COMMITMENT, self._commitments[place])
            used[shared] = used.get(shared, 0) + used[place]
        if apart is not None:
            return tuple(_less(kind, used) for kind in self._all)
        if used != self._used:
            self._used = used
            self._left = tuple(_less(kind, used) for kind in self._all)
        return self._left


def _less(kind: InstanceType, used: Mapping[Place, int]) -> InstanceType:
    if all(offering.stock is None and not offering.steps for offering in kind.offerings):
        return kind
    return msgspec.structs.replace(kind, offerings=tuple(_left(kind, o, used) for o in kind.offerings))


def _left(kind: InstanceType, offering: Offering, used: Mapping[Place, int]) -> Offering:
    place = _place(_labels(kind, offering))
    if offering.steps:
        shared = (COMMITMENT, offering.commitment) if offering.commitment else place
        return msgspec.structs.replace(offering, steps=_steps_left(offering.steps, used.get(shared, 0)))
    if offering.stock is None:
        return offering
    left = max(0, offering.stock - used.get(place, 0))
    return msgspec.structs.replace(offering, stock=left, available=offering.available and left > 0)


def _steps_left(steps: Steps, used: int) -> Steps:
    left = []
    for count, price in steps:
        taken = min(count, used)
        used -= taken
        left.append((count - taken, price))  # a step that is used up keeps its number
    return tuple(left)


def _commitments(types: Types) -> dict[Place, str]:
    """Return which commitment the machines of a place use."""
    return {
        _place(_labels(kind, offering)): offering.commitment
        for kind in types
        for offering in kind.offerings
        if offering.steps and offering.commitment
    }


def _labels(kind: InstanceType, offering: Offering) -> dict[str, str]:
    return {
        labels.INSTANCE_TYPE: kind.name,
        labels.ZONE: offering.zone,
        labels.CAPACITY_TYPE: offering.capacity_type,
        RESERVATION: offering.requirements.single_value(RESERVATION),
    }


def _place(given: Mapping[str, str]) -> Place:
    reservation = given.get(RESERVATION, "")
    if reservation:
        return (reservation,)
    return tuple(given.get(key, "") for key in (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE))
