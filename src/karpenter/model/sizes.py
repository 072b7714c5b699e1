"""The sizes of an instance type whose offerings are not all alike.

An offering may have another capacity or overhead than its type. For those who plan, such a type falls into
one type for each size, all of the same name. Offerings that no claim could tell apart, because a node could
have the labels of either, count as no larger than the smaller one, and against limits as the larger one.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from karpenter.base.quantity import Resources, maximum
from karpenter.model.instancetype import InstanceType, Offering

_Amounts = tuple[tuple[str, int], ...]


def sizes(kind: InstanceType) -> tuple[InstanceType, ...]:
    """Return `kind` once for each size, with the offerings of that size; itself when there is but one.

    The type's own size comes first, the others as the offerings list them.
    """
    if not kind.has_overrides:
        return (kind,)
    found: dict[tuple[_Amounts, _Amounts], tuple[InstanceType, list[Offering]]] = {}
    if any(not o.overrides for o in kind.offerings):
        found[_size(kind)] = kind, []
    for family in _families(kind.offerings):
        machine = cautious([kind.bought_as(o) for o in family])
        found.setdefault(_size(machine), (machine, []))[1].extend(family)
    return tuple(
        replace(machine, offerings=tuple(offerings)) for machine, offerings in found.values() if offerings
    )


def cautious(machines: Sequence[InstanceType]) -> InstanceType:
    """Return what may be relied on when any of `machines`, all of one type, may be launched.

    Pods can use as much of it as of each of them; its capacity is the largest, as limits have to count it.
    """
    first = machines[0]
    if all(_size(m) == _size(first) for m in machines):
        return first
    capacity: Resources = {}
    for machine in machines:
        capacity = maximum(capacity, machine.capacity)
    roomy = replace(first, capacity=capacity, overhead={})
    overhead = {
        name: amount - min(m.allocatable.get(name, 0) for m in machines)
        for name, amount in roomy.allocatable.items()
    }
    return replace(first, capacity=capacity, overhead=overhead)


def by_size(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    """Return `types` with every size for itself; the same tuple when no offering overrides anything."""
    if not any(kind.has_overrides for kind in types):
        return types
    return tuple(machine for kind in types for machine in sizes(kind))


def smallest(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    """Return `types`, each as small as the smallest machine it may be."""
    return tuple(
        replace(cautious([kind.bought_as(o) for o in kind.offerings]), offerings=kind.offerings)
        if kind.has_overrides
        else kind
        for kind in types
    )


def _size(kind: InstanceType) -> tuple[_Amounts, _Amounts]:
    return tuple(sorted(kind.capacity.items())), tuple(sorted(kind.overhead.items()))


def _families(offerings: Iterable[Offering]) -> list[list[Offering]]:
    """Return the offerings in groups, each of those that requirements may not be able to tell apart."""
    families: list[list[Offering]] = []
    for offering in offerings:
        like = [f for f in families if any(not offering.requirements.intersects(o.requirements) for o in f)]
        families = [f for f in families if f not in like]
        families.append([*(o for f in like for o in f), offering])
    return families
