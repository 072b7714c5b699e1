"""Whether the drivers of dynamic resources that a claim was bought for have told of their devices."""

from collections.abc import Iterable

from karpenter.apis import labels as known
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.resourceslices import ResourceSlice


def requested_drivers(claim: NodeClaim) -> list[str]:
    """Return the drivers whose devices the claim's pods asked for, by name."""
    listed = claim.metadata.annotations.get(known.REQUESTED_DRA_DRIVERS, "").split(",")
    return sorted({driver.strip() for driver in listed if driver.strip()})


def unpublished(drivers: Iterable[str], node: Node, slices: Iterable[ResourceSlice]) -> list[str]:
    """Return which of `drivers` have no whole pool of devices on `node` yet, in their order.

    A pool is whole when there are as many slices of its newest generation as that says it has.
    """
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for found in slices:
        if _is_local(found, node):
            pools.setdefault((found.spec.driver, found.spec.pool.name), []).append(found)
    ready = {driver for (driver, _), members in pools.items() if _is_whole(members)}
    return [driver for driver in drivers if driver not in ready]


def _is_local(found: ResourceSlice, node: Node) -> bool:
    owners = found.metadata.owner_references
    return found.spec.node_name == node.name or any(o.kind == "Node" and o.name == node.name for o in owners)


def _is_whole(members: list[ResourceSlice]) -> bool:
    newest = max(member.spec.pool.generation for member in members)
    current = [member for member in members if member.spec.pool.generation == newest]
    wanted = current[0].spec.pool.resource_slice_count
    return wanted > 0 and len(current) == wanted
