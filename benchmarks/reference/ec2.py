"""Our catalogues as a scenario lists them, so that the reference can buy what we buy."""

from collections.abc import Iterator
from typing import Any

from karpenter.apis import labels
from karpenter.base.quantity import format_resources
from karpenter.model.instancetype import InstanceType
from karpenter.providers.kwok.catalogue import ec2_instance_types, generic_instance_types

_CATEGORY = "karpenter.k8s.aws/instance-category"
_FROM_OFFERINGS = frozenset({labels.ZONE, labels.CAPACITY_TYPE})


def ec2_types(*, categories: str = "", cores: int = 1 << 30, spot: bool = True) -> list[dict[str, Any]]:
    """Return the types of `categories` (letters) with at most so many vCPUs, without metal; by default all.

    Without `spot`, on-demand offerings only. A scenario that lists no instance types means all of them.
    """
    return [
        _listed(kind, spot)
        for kind in ec2_instance_types()
        if kind.capacity["cpu"] <= cores * 1000 and (not categories or _is_of(kind, categories))
    ]


def generic_types(*, cores: int) -> list[dict[str, Any]]:
    """Return the made-up types of the kwok provider with at most so many cores: linux, amd64, on demand."""
    return [
        _listed(kind, False)
        for kind in generic_instance_types()
        if kind.capacity["cpu"] <= cores * 1000 and kind.name.endswith("-amd64-linux")
    ]


def _is_of(kind: InstanceType, categories: str) -> bool:
    return ".metal" not in kind.name and kind.requirements.single_value(_CATEGORY) in tuple(categories)


def _listed(kind: InstanceType, spot: bool) -> dict[str, Any]:
    offerings = [o for o in kind.offerings if spot or o.capacity_type == labels.CAPACITY_ON_DEMAND]
    return {
        "name": kind.name,
        "capacity": format_resources(kind.capacity),
        "overhead": {"kubeReserved": format_resources(kind.overhead)},
        "requirements": list(_requirements(kind)),
        "offerings": [
            {"zone": o.zone, "capacityType": o.capacity_type, "price": o.price, "available": o.available}
            for o in offerings
        ],
    }


def _requirements(kind: InstanceType) -> Iterator[dict[str, Any]]:
    for spec in kind.requirements.to_specs():
        if spec.key not in _FROM_OFFERINGS:
            yield {"key": spec.key, "operator": spec.operator, "values": list(spec.values)}
