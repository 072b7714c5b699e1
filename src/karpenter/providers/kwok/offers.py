"""Choosing what to buy for a claim: the cheapest offering that satisfies it."""

from collections.abc import Iterable
from typing import NamedTuple

from karpenter.apis import labels
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.quantity import fits, resources_of
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.requirements import Requirements


class Offer(NamedTuple):
    """One way to buy one machine."""

    price: float
    name: str
    zone: str
    capacity_type: str
    instance_type: InstanceType
    offering: Offering


class PriceOrder:
    """Every offering of a catalogue, cheapest first; ties by type, zone, capacity type."""

    def __init__(self, types: Iterable[InstanceType]) -> None:
        self._offers = sorted(
            (
                Offer(
                    offering.price,
                    kind.name,
                    offering.zone,
                    offering.capacity_type,
                    kind.bought_as(offering),
                    offering,
                )
                for kind in types
                for offering in kind.offerings
                if offering.available
            ),
            key=lambda offer: offer[:4],
        )

    def cheapest(self, claim: NodeClaim) -> Offer | None:
        """Return the cheapest offer that meets the claim's requirements and requests, or None."""
        wanted = Requirements.from_specs(claim.spec.requirements)
        requests = resources_of({k: str(v) for k, v in claim.spec.resources.requests.items()})
        types, zones = wanted.get(labels.INSTANCE_TYPE), wanted.get(labels.ZONE)
        capacity_types = wanted.get(labels.CAPACITY_TYPE)
        for offer in self._offers:
            if (
                types.has(offer.name)
                and zones.has(offer.zone)
                and capacity_types.has(offer.capacity_type)
                and fits(requests, offer.instance_type.allocatable)
                and not wanted.intersects(offer.instance_type.requirements)
                and not wanted.intersects(offer.offering.requirements)
            ):
                return offer
        return None


def labels_of(claim: NodeClaim, offer: Offer) -> dict[str, str]:
    """Return the labels of the machine: what the type and offering say, then the claim's own."""
    single: dict[str, str] = {}
    for requirements in (
        Requirements.from_specs(claim.spec.requirements),
        offer.instance_type.requirements,
        offer.offering.requirements,
    ):
        for key in requirements:
            value = requirements.single_value(key)
            if value:
                single[key] = value
    single.pop(labels.KUBERNETES_HOSTNAME, None)
    return {**single, **claim.metadata.labels}
