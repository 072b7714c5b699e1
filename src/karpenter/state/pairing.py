"""Which Node and which NodeClaim are one machine.

Both name their instance by its provider id. News may come in any order, though: while the watch of claims
lags behind, a Node may be here whose claim seems not to be launched. Once it is registered it names its
owner, and that tells them to be one; before that it is no capacity of its own
(`karpenter.state.rows.is_too_early`). Were they taken for two machines, pods would be planned onto both.
"""

from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim
from karpenter.kube.informer import Cache
from karpenter.state.unconfirmed import Unconfirmed


class Pairing:
    """Finds the parts of a machine by its token: its provider id, or `claim/NAME` or `node/NAME` without."""

    def __init__(self, cache: Cache, unconfirmed: Unconfirmed) -> None:
        """Index the Nodes and NodeClaims of `cache`; `unconfirmed` has claims that its watch lacks."""
        self._unconfirmed = unconfirmed
        self._nodes = cache.informer(Node)
        self._claims = cache.informer(NodeClaim)
        self._nodes.add_index("provider", lambda n: [n.spec.provider_id] if n.spec.provider_id else [])
        self._nodes.add_index("claim", _claim_uids)
        self._claims.add_index("provider", lambda c: [c.status.provider_id] if c.status.provider_id else [])
        self._claims.add_index("uid", lambda c: [c.metadata.uid])

    def claims_for(self, provider_id: str) -> list[NodeClaim]:
        """Return all claims of an instance: those that name it, or else those that own its Node, by name."""
        named = self._claims.by_index("provider", provider_id) if provider_id else []
        if named:
            return named
        owners = [claim for node in self.nodes_for(provider_id) for claim in self.owners_of(node)]
        return [claim for claim in owners if not claim.status.provider_id]

    def nodes_for(self, provider_id: str) -> list[Node]:
        """Return all Nodes that name this instance, by name."""
        return self._nodes.by_index("provider", provider_id) if provider_id else []

    def owners_of(self, node: Node) -> list[NodeClaim]:
        """Return the claims that a Node says it is of."""
        return [claim for uid in _claim_uids(node) for claim in self._claims.by_index("uid", uid)]

    def claim(self, name: str) -> NodeClaim | None:
        """Return a claim as the watch has it, or as we created it."""
        return self._claims.get(name) or self._unconfirmed.created(name)

    def token_of(self, claim: NodeClaim) -> str:
        """Return the token of the machine of a claim."""
        if claim.status.provider_id:
            return claim.status.provider_id
        owned = self._nodes.by_index("claim", claim.metadata.uid)
        return node_token(owned[0]) if owned else claim_token(claim)

    def parts(self, token: str) -> tuple[Node | None, NodeClaim | None]:
        """Return the objects that make up a machine now; the first by name where there are several."""
        if token.startswith("claim/"):
            claim = self.claim(token.removeprefix("claim/"))
            return None, claim if claim is not None and self.token_of(claim) == token else None
        if token.startswith("node/"):
            node = self._nodes.get(token.removeprefix("node/"))
            return (node if node is not None and not node.spec.provider_id else None), None
        return next(iter(self.nodes_for(token)), None), next(iter(self.claims_for(token)), None)


def claim_token(claim: NodeClaim) -> str:
    """Return the token of a claim's machine while nothing but the claim is known of it."""
    return f"claim/{claim.name}"


def node_token(node: Node) -> str:
    """Return the token of a Node's machine."""
    return node.spec.provider_id or f"node/{node.name}"


def _claim_uids(node: Node) -> list[str]:
    return [owner.uid for owner in node.metadata.owner_references if owner.kind == "NodeClaim" and owner.uid]
