"""How many units of room a capacity buffer keeps. Pure."""

from collections.abc import Mapping

from karpenter.apis.autoscaling import CapacityBufferSpec
from karpenter.base.quantity import Resources, resources_of


def desired_units(spec: CapacityBufferSpec, unit: Mapping[str, int], scale: int | None) -> int:
    """Return how many units the buffer wants.

    The larger of `replicas` and `percentage` of the workload's size, no more than `limits` hold. With limits
    alone, as many as they hold.

    Args:
        unit: what one unit requests.
        scale: replicas of the workload that `scalableRef` names; None without one.
    """
    sizes = [size for size in (spec.replicas, _share(spec.percentage, scale)) if size is not None]
    most = units_within(resources_of(spec.limits), unit)
    if not sizes:
        return most or 0
    wanted = max(sizes)
    return wanted if most is None else min(wanted, most)


def _share(percentage: int | None, scale: int | None) -> int | None:
    """Return `percentage` of `scale`, rounded up; None where there is nothing to take a share of."""
    if percentage is None or not scale or scale < 0:
        return None
    return -(-scale * percentage // 100)


def units_within(limits: Resources, unit: Mapping[str, int]) -> int | None:
    """Return how many units fit into `limits`; None when no resource of a unit is limited."""
    counts = [limit // unit[name] for name, limit in limits.items() if unit.get(name, 0) > 0]
    return max(0, min(counts)) if counts else None
