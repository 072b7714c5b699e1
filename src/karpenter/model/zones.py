"""Spreading a static pool's nodes over the zones it may use. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirement, Requirements


def pool_requirements(pool: NodePool) -> Requirements:
    """Return what every node of `pool` must be.

    Raises:
        ValueError: when one of the pool's requirements cannot be read.
    """
    template = pool.spec.template
    reference = template.spec.node_class_ref
    given = {
        **template.metadata.labels,
        known.NODEPOOL: pool.name,
        known.nodeclass_label(reference.group, reference.kind): reference.name,
    }
    return Requirements.from_specs(template.spec.requirements).merge(Requirements.from_labels(given))


def is_buyable(wanted: Requirements, types: Iterable[InstanceType]) -> bool:
    """Tell whether anything that meets `wanted` can be bought now."""
    return any(
        offering.available and not offering.requirements.intersects(wanted)
        for kind in types
        if not kind.requirements.intersects(wanted)
        for offering in kind.offerings
    )


def open_zones(wanted: Requirements, types: Iterable[InstanceType]) -> tuple[str, ...]:
    """Return the zones in which something that meets `wanted` can be bought now, by name.

    A zone that on its own would break a `minValues` of `wanted` is left out.
    """
    offered: dict[str, list[InstanceType]] = {}
    for kind in types:
        if kind.requirements.intersects(wanted):
            continue
        zones = {o.zone for o in kind.offerings if o.available and not o.requirements.intersects(wanted)}
        for zone in zones:
            offered.setdefault(zone, []).append(kind)
    return tuple(sorted(z for z, kinds in offered.items() if z and _varied_enough(wanted, z, kinds)))


def _varied_enough(wanted: Requirements, zone: str, kinds: Sequence[InstanceType]) -> bool:
    for key, requirement in wanted.items():
        if requirement.min_values is None:
            continue
        values = (
            {zone}
            if key == known.ZONE
            else {
                value
                for kind in kinds
                for value in kind.requirements.get(key).permitted()
                if requirement.has(value)
            }
        )
        if len(values) < requirement.min_values:
            return False
    return True


def zone_of(claim: NodeClaim) -> str:
    """Return the zone of a claim's machine, or the one it will be in; empty while the cloud may choose."""
    zone = claim.metadata.labels.get(known.ZONE, "")
    return zone or Requirements.from_specs(claim.spec.requirements).single_value(known.ZONE)


def zone_counts(claims: Iterable[NodeClaim]) -> Counter[str]:
    """Count claims by zone; those whose zone is open are left out."""
    return Counter(zone for claim in claims if (zone := zone_of(claim)))


def spread(zones: Sequence[str], there: Mapping[str, int], count: int) -> list[str]:
    """Return a zone for each of `count` new nodes, so that the emptiest is filled first (ties by name).

    Empty strings (no choice of ours) when there are no `zones`.
    """
    counts = {zone: there.get(zone, 0) for zone in sorted(zones)}
    chosen = []
    for _ in range(count):
        zone = min(counts, key=lambda z: counts[z], default="")
        if zone:
            counts[zone] += 1
        chosen.append(zone)
    return chosen


def in_zone(wanted: Requirements, zone: str) -> Requirements:
    """Return `wanted`, bound to `zone` unless that is empty."""
    return wanted.add(Requirement.of(known.ZONE, "In", [zone])) if zone else wanted
