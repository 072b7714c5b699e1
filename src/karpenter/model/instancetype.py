"""What can be bought: instance types and their offerings, as a cloud provider describes them.

These are the objects a provider hands over; `karpenter.scheduling.catalogue` compiles them into arrays once
per catalogue version, and nothing on a hot path touches them again.
"""

from functools import cached_property

import msgspec
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.base.quantity import Resources, subtract
from karpenter.model.requirements import Requirements


class Offering(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One way to buy an instance type: where, how, and for how much."""

    requirements: Requirements
    """What a node of this offering is: at least capacity type and zone; reservations carry their id too."""
    price: float
    """USD per hour."""
    available: bool = True
    """False while the cloud is known to be out of it."""
    hazard: float = 0.0
    """Expected interruptions per hour of life (0 when it is not interrupted)."""
    stock: int | None = None
    """How many more can be had, where that is known (reservations)."""
    steps: tuple[tuple[int, float], ...] = ()
    """A price that depends on how many are bought: so many of the next nodes cost so much (USD per hour),
    then so many so much, and all others `price`. Not for offerings with `stock`."""
    commitment: str = ""
    """Offerings with the same name here share their `steps`: whoever buys one uses them up for all."""
    capacity_override: Resources = {}
    """What its machines have otherwise than the type's `capacity` says: replaced or added, by resource."""
    overhead_override: Resources = {}
    """What the system keeps of them otherwise than the type's `overhead` says, likewise."""

    @property
    def overrides(self) -> bool:
        """Whether it has a size of its own."""
        return bool(self.capacity_override or self.overhead_override)

    @property
    def zone(self) -> str:
        return self.requirements.single_value(labels.ZONE)

    @property
    def capacity_type(self) -> str:
        return self.requirements.single_value(labels.CAPACITY_TYPE)


class InstanceType(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A kind of machine: its labels, its size, and how it is offered.

    `requirements` are the labels a node of this type has (several values where it may be either, e.g. zone);
    `capacity` is what the machine has, `overhead` what the system keeps of it.
    """

    name: str
    requirements: Requirements
    offerings: tuple[Offering, ...]
    capacity: Resources
    overhead: Resources
    volume_limits: dict[str, int] = {}
    """How many volumes a CSI driver can attach to it, by driver, where the provider knows."""
    price_overlaid: bool = False
    """A NodeOverlay has a say in the price of some offering."""
    capacity_overlaid: bool = False
    """A NodeOverlay has a say in the capacity."""

    @cached_property
    def has_overrides(self) -> bool:
        """Whether some offering has a size of its own."""
        return any(offering.overrides for offering in self.offerings)

    def bought_as(self, offering: Offering) -> "InstanceType":
        """Return the type as large as it is when bought as `offering`, one of its own."""
        if not offering.overrides:
            return self
        return replace(
            self,
            capacity={**self.capacity, **offering.capacity_override},
            overhead={**self.overhead, **offering.overhead_override},
        )

    @cached_property
    def allocatable(self) -> Resources:
        """What pods can use: capacity less overhead, less huge pages for memory; never negative memory."""
        left = subtract(self.capacity, {k: v for k, v in self.overhead.items() if k in self.capacity})
        huge = sum(amount for name, amount in self.capacity.items() if name.startswith("hugepages-"))
        if huge:
            left["memory"] = max(0, left.get("memory", 0) - huge)
        return left
