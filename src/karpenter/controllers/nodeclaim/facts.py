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
        "price": context.cluster.price(claim),
    }
    return {key: value for key, value in said.items() if value not in ("", None)}
