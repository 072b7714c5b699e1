"""What there is only so much of: reservations, the last machines of a kind, prices for the first few nodes.

Each such thing is a lot. Wherever an instance type can be bought from a lot, the compiled catalogue has an
offering of its own for it, which requires the lot's name under `LOT`; a planned node that draws on a lot
requires it too, so that whoever joins later can neither move it to another offering nor make it dearer. All
other nodes require `NO_LOT`. One ledger, shared by all pools, knows how much is left.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.problem import Problem
from karpenter.model.requirements import Requirement, Requirements

LOT: Final = "simulation.karpenter.sh/lot"
"""Label of planned nodes while a plan is made; no claim shows it."""
NO_LOT: Final = "-"
STEP: Final = "#"
"""What only the names of lots have in them that are steps of a price."""


class Source(msgspec.Struct, frozen=True):
    """One way to pay for an offering."""

    lot: str
    """Its name, or NO_LOT."""
    stock: int | None
    """How many nodes it is good for; None: any number."""
    price: float
    """USD per hour of a node."""
    hazard: float
    """Expected interruptions per hour."""
    pin: Requirements
    """What a claim has to require so that it gets this and nothing else."""


def sources(kind: InstanceType, offering: Offering, reservation_label: str) -> Iterator[Source]:
    """Yield the ways to pay for an offering of `kind`: its lots, then what is there without end."""
    place = f"{kind.name}/{offering.zone}/{offering.capacity_type}"
    if offering.stock is not None:
        reservation = offering.requirements.single_value(reservation_label) if reservation_label else ""
        own = {labels.CAPACITY_TYPE: offering.capacity_type}
        own |= {reservation_label: reservation} if reservation else {labels.ZONE: offering.zone}
        pin = Requirements.from_labels({key: value for key, value in own.items() if value})
        yield Source(reservation or place, max(0, offering.stock), offering.price, offering.hazard, pin)
        return
    for number, (count, price) in enumerate(offering.steps):
        name = f"{offering.commitment or place}{STEP}{number}"
        yield Source(name, count, price, offering.hazard, Requirements())
    yield Source(NO_LOT, None, offering.price, offering.hazard, Requirements())


def requirement_of(lot: str) -> Requirement:
    """Return what a node that draws on `lot` requires."""
    return Requirement.of(LOT, "In", (lot,))


class Ledger:
    """How much is left of every lot while a plan is made."""

    def __init__(self, problem: Problem, scarce: Iterable[Sequence[tuple[str, int]]]) -> None:
        """Count what pools offer, `scarce` by catalogue, less what claims on their way hold.

        Pools that see different amounts of the same lot see it at different times: the least counts.
        """
        label = problem.options.reservation_label
        self.reservation_label: Final = label
        self.nodes: Final = problem.nodes
        offered: dict[str, int] = {}
        for lots in scarce:
            for lot, stock in lots:
                offered[lot] = min(stock, offered.get(lot, stock))
        held = problem.held
        self.offered = {lot: max(0, stock - held.get(lot, 0)) for lot, stock in sorted(offered.items())}
        """How much the plan may use of every lot."""
        self.left = dict(self.offered)
        self.awaited: Final = frozenset(
            lot for lot, stock in offered.items() if stock > 0 and not self.left[lot]
        )
        """Lots that only claims on their way have used up: should one fail, there is some again."""
        self.price_offered: Final = problem.options.price_remaining
        self.price_left = problem.options.price_remaining
        """What all pools together may still spend, micro-USD per hour; None: no limit."""
        self.used_up = self._used_up()
        """The lots that have run out."""

    def take(self, lot: str, count: int) -> None:
        """Use `count` of `lot`, as many as are left at most; negative: give back."""
        if lot in self.left:
            before = self.left[lot]
            self.left[lot] -= count
            if (before > 0) != (self.left[lot] > 0):
                self.used_up = self._used_up()

    def spend(self, micro: int) -> None:
        """Count `micro` USD per hour against the limit on all pools, if there is one."""
        if self.price_left is not None:
            self.price_left -= micro

    def _used_up(self) -> tuple[str, ...]:
        return tuple(lot for lot, left in self.left.items() if left <= 0)


def scarce_lots(types: Iterable[InstanceType], reservation_label: str) -> Iterator[tuple[str, int]]:
    """Yield every lot of some instance types with how much there is of it, also what is not on offer now."""
    for kind in types:
        for offering in kind.offerings:
            if offering.stock is not None or offering.steps:
                for source in sources(kind, offering, reservation_label):
                    if source.stock is not None:
                        yield source.lot, source.stock


def lot_of(requirements: Requirements) -> str:
    """Return the lot that a planned node draws on; empty for none."""
    lot = requirements.single_value(LOT)
    return "" if lot == NO_LOT else lot


def open_lots(ledger: Ledger) -> Requirement | None:
    """Return what a node that does not draw on any lot yet requires of those it may; None: nothing."""
    return Requirement.of(LOT, "NotIn", ledger.used_up) if ledger.used_up else None
