"""What nodes cost."""

import math
from collections.abc import Mapping

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType


def price_of(
    kind: InstanceType | None, node_labels: Mapping[str, str], reservation_label: str = ""
) -> float | None:
    """Return what a node costs, USD per hour, whether more of its kind can be had or not; None: not known.

    It is the price of the very offering the node was bought by: zone, capacity type and, where the offering
    carries one, the reservation. Several reservations in one zone have prices of their own; offerings that no
    label tells apart count as the cheapest.
    """
    if kind is None:
        return None
    place = (node_labels.get(labels.ZONE, ""), node_labels.get(labels.CAPACITY_TYPE, ""))
    reservation = node_labels.get(reservation_label, "") if reservation_label else ""
    found = (
        offering.price
        for offering in kind.offerings
        if (offering.zone, offering.capacity_type) == place and not math.isnan(offering.price)
        if not reservation_label or offering.requirements.single_value(reservation_label) == reservation
    )
    return min(found, default=None)
