"""What a log line says about a claim: the same keys wherever it is spoken of."""

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context


def facts(context: Context, claim: NodeClaim) -> dict[str, object]:
    """Return the keys that say which claim, of which pool, and what was bought for it.

    What is not known (yet) is left out. `price` is USD per hour, from the pool's catalogue.
    """
    labels = claim.metadata.labels
    said: dict[str, object] = {
        "NodeClaim": claim.name,
        "NodePool": labels.get(known.NODEPOOL, ""),
        "Node": claim.status.node_name,
        "provider_id": claim.status.provider_id,
        "instance_type": labels.get(known.INSTANCE_TYPE, ""),
        "zone": labels.get(known.ZONE, ""),
        "capacity_type": labels.get(known.CAPACITY_TYPE, ""),
        "price": price_of(context, claim),
    }
    return {key: value for key, value in said.items() if value not in ("", None)}


def price_of(context: Context, claim: NodeClaim) -> float | None:
    """Return what the claim's machine costs, USD per hour; None when its offering is not known (any more)."""
    labels = claim.metadata.labels
    name, zone = labels.get(known.INSTANCE_TYPE), labels.get(known.ZONE)
    if not name or not zone:
        return None
    for instance_type in context.cluster.catalogue(labels.get(known.NODEPOOL, "")):
        if instance_type.name == name:
            prices = [
                offering.price
                for offering in instance_type.offerings
                if (offering.zone, offering.capacity_type) == (zone, labels.get(known.CAPACITY_TYPE))
            ]
            return min(prices, default=None)
    return None
