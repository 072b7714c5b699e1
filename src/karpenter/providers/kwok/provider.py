"""Launching machines that are only Node objects.

Where is the truth of this cloud? In the API server, so that any process may die after any line: an instance
is a NodeClaim whose `status.providerID` is ours and that is not being deleted, or a Node with such an id.
The id follows from the claim's name, and the offering is chosen by a fixed order, so that creating twice
gives the same machine. A launched claim without a Node gets one when its registration delay is over, also
after a restart; a Node whose claim has gone before it registered is removed, as a cloud's controller would.

Unlike upstream's, a Node has the capacity of its instance type (not just the claim's requests), and deleting
an instance leaves the NodeClaim object to its owner.
"""

from collections.abc import Iterable, Sequence

import msgspec
import structlog

from karpenter.apis import labels
from karpenter.apis.conditions import get, is_true
from karpenter.apis.core import Node, NodeSpec, NodeStatus, Taint
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import ObjectMeta
from karpenter.base.quantity import format_resources
from karpenter.base.timestamps import parse_time
from karpenter.cloudprovider import (
    InsufficientCapacity,
    NodeClaimNotFound,
    NodeClass,
    NodeClassNotReady,
    ProviderContext,
    RegistrationHook,
    RepairPolicy,
)
from karpenter.kube.errors import AlreadyExists, NotFound
from karpenter.kube.informer import Change
from karpenter.model.instancetype import InstanceType
from karpenter.model.volumerules import VolumeRules
from karpenter.providers.kwok.catalogue import EC2_LABELS, KWOK_LABELS
from karpenter.providers.kwok.kwoklabels import RESERVATION
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.providers.kwok.offers import Offer, PriceOrder, labels_of
from karpenter.providers.kwok.stock import Stock
from karpenter.runtime import Controller, Result

log = structlog.get_logger()

PREFIX = "kwok://"
FAKE_NODE = "kwok.x-k8s.io/node"
PRICE_LABEL = "eks-node-viewer/instance-price"
_UNREGISTERED = Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")
_UNHEALTHY_SECONDS = 600.0
_KEPT_OFFERS = 64


class KwokProvider:
    """See `karpenter.cloudprovider.CloudProvider`."""

    name = "kwok"
    node_classes: tuple[type[NodeClass], ...] = (KwokNodeClass,)
    reservation_label = RESERVATION
    default_termination_grace_period: str | None = None

    def __init__(self, context: ProviderContext, types: tuple[InstanceType, ...]) -> None:
        self._client = context.client
        self._clock = context.clock
        self._stock = Stock(types)
        self._overlays = context.overlays
        self._offers = {id(types): (types, PriceOrder(types))}
        self._by_name = {kind.name: kind for kind in types}
        offered = {key for kind in types for offering in kind.offerings for key in offering.requirements}
        self.well_known_labels = KWOK_LABELS | EC2_LABELS | offered
        self.volume_rules = VolumeRules()
        self._claims = context.cache.informer(NodeClaim)
        self._nodes = context.cache.informer(Node)
        self._classes = context.cache.informer(KwokNodeClass)
        self._nodes.add_index("providerID", lambda node: (node.spec.provider_id,))
        self._machines = Controller(
            "kwok.machine",
            self._reconcile,
            clock=context.clock,
            rng=context.rng,
            metrics=context.metrics,
            concurrency=20,
        )
        self._machines.watch(self._claims, _claim_keys)
        self._machines.watch(self._nodes, _node_keys)

    async def run(self) -> None:
        """Boot the machines of launched claims until cancelled."""
        await self._machines.run()

    async def create(self, claim: NodeClaim) -> NodeClaim:
        node_class = self._classes.get(claim.spec.node_class_ref.name)
        if node_class is None:
            raise InsufficientCapacity(f"nodeclass {claim.spec.node_class_ref.name!r} is not found")
        ready = get(node_class.status.conditions, "Ready")
        if ready is not None and ready.status == "False":
            raise NodeClassNotReady(ready.message or ready.reason)
        offer = self._offers_for(claim).cheapest(claim)
        if offer is None:
            raise InsufficientCapacity(f"no available offering satisfies nodeclaim {claim.name!r}")
        return self._launched(claim, offer)

    async def delete(self, claim: NodeClaim) -> None:
        node = self._nodes.get(node_name(claim))
        if node is not None and not is_managed(node) and not node.deleting:
            await self._remove(node)
        raise NodeClaimNotFound(f"instance {claim.status.provider_id or claim.name} is gone")

    async def get(self, provider_id: str) -> NodeClaim:
        for node in self._nodes.by_index("providerID", provider_id):
            return _of_node(node)
        claim = self._claims.get(provider_id.removeprefix(PREFIX))
        if claim is not None and _is_booting(claim):
            return claim
        raise NodeClaimNotFound(f"instance {provider_id} is gone")

    async def list(self) -> Sequence[NodeClaim]:
        found = {node.spec.provider_id: _of_node(node) for node in self._nodes.items() if _is_ours(node)}
        for claim in self._claims.items():
            if _is_booting(claim):
                found.setdefault(claim.status.provider_id, claim)
        return [found[provider_id] for provider_id in sorted(found)]

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return self._types_left()

    async def drift_reason(self, claim: NodeClaim) -> str:
        return ""

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return (
            RepairPolicy("Ready", "False", _UNHEALTHY_SECONDS),
            RepairPolicy("Ready", "Unknown", _UNHEALTHY_SECONDS),
        )

    def registration_hooks(self) -> Sequence[RegistrationHook]:
        return ()

    def _offers_for(self, claim: NodeClaim) -> PriceOrder:
        """Return what the claim's pool can buy, by the prices it sees. Raises UnevaluatedNodePool."""
        pool = claim.metadata.labels.get(labels.NODEPOOL, "")
        types = self._types_left(besides=node_name(claim))
        if self._overlays is not None:
            types = self._overlays.apply(pool, types)
        if id(types) not in self._offers:
            if len(self._offers) >= _KEPT_OFFERS:
                self._offers.clear()
            self._offers[id(types)] = types, PriceOrder(types)  # holding the tuple keeps its id its own
        return self._offers[id(types)][1]

    def _types_left(self, besides: str = "") -> tuple[InstanceType, ...]:
        """Return the catalogue less what machines, but for one, use of reservations."""
        machines = {n.name: n.metadata.labels for n in self._nodes.items() if _is_ours(n)}
        claims = self._claims.items()
        machines |= {node_name(c): c.metadata.labels for c in claims if _is_booting(c)}
        launched = {node_name(c): bool(c.status.provider_id) for c in claims}
        return self._stock.types(machines, launched, besides)

    def _launched(self, claim: NodeClaim, offer: Offer) -> NodeClaim:
        kind = offer.instance_type
        metadata = msgspec.structs.replace(claim.metadata, labels=labels_of(claim, offer))
        status = msgspec.structs.replace(
            claim.status,
            provider_id=PREFIX + node_name(claim),
            capacity=dict(format_resources(kind.capacity)),
            allocatable=dict(format_resources(kind.allocatable)),
        )
        self._stock.grant(node_name(claim), metadata.labels)
        return msgspec.structs.replace(claim, metadata=metadata, status=status)

    async def _reconcile(self, name: str) -> Result:
        """Bring the machine called `name` nearer to what its claim says: booted, or gone."""
        claim, node = self._claims.get(name), self._nodes.get(name)
        if claim is None or claim.deleting:
            if claim is None and node is not None and _is_orphan(node) and not node.deleting:
                await self._remove(node)
            return Result()
        if node is not None or not _is_booting(claim):
            return Result()
        wait = self._due(claim) - self._clock.now()
        if wait > 0:
            return Result(requeue_after=wait)
        try:
            await self._client.create(self._node(claim))
        except AlreadyExists:
            return Result()
        log.debug("booted machine", Node=name)
        return Result()

    def _due(self, claim: NodeClaim) -> float:
        """Return when the machine joins the cluster: a delay after its launch."""
        node_class = self._classes.get(claim.spec.node_class_ref.name)
        delay = node_class.registration_delay_seconds if node_class else 0.0
        launched = get(claim.status.conditions, "Launched")
        since = launched.last_transition_time if launched and launched.status == "True" else None
        return parse_time(since) + delay if since and delay else 0.0

    def _node(self, claim: NodeClaim) -> Node:
        name = node_name(claim)
        price = self._price(claim)
        return Node(
            metadata=ObjectMeta(
                name=name,
                labels={
                    **claim.metadata.labels,
                    labels.KUBERNETES_HOSTNAME: name,
                    FAKE_NODE: "fake",
                    "kwok-partition": "a",
                    **({PRICE_LABEL: f"{price:f}"} if price is not None else {}),
                },
                annotations={**claim.metadata.annotations, FAKE_NODE: "fake"},
            ),
            spec=NodeSpec(provider_id=claim.status.provider_id, taints=[_UNREGISTERED]),
            status=NodeStatus(
                phase="Pending",
                capacity=dict(claim.status.capacity),
                allocatable=dict(claim.status.allocatable),
            ),
        )

    def _price(self, claim: NodeClaim) -> float | None:
        own = claim.metadata.labels
        kind = self._by_name.get(own.get(labels.INSTANCE_TYPE, ""))
        place = (own.get(labels.ZONE), own.get(labels.CAPACITY_TYPE))
        offerings = kind.offerings if kind else ()
        return next((o.price for o in offerings if (o.zone, o.capacity_type) == place), None)

    async def _remove(self, node: Node) -> None:
        try:
            await self._client.delete(Node, node.name, uid=node.metadata.uid)
        except NotFound:
            log.debug("machine had no node", Node=node.name)


def node_name(claim: NodeClaim) -> str:
    """Return the name of the claim's Node; the claim's own, so that creating twice is creating once."""
    return claim.name


def _is_ours(node: Node) -> bool:
    return node.spec.provider_id.startswith(PREFIX)


def is_managed(node: Node) -> bool:
    """Tell whether the operator has taken the Node over: its removal is then its finalizer's matter."""
    return labels.TERMINATION_FINALIZER in node.metadata.finalizers


def _is_orphan(node: Node) -> bool:
    """Tell whether a Node without a claim is one of our machines that never registered."""
    return not is_managed(node) and any(taint.matches(_UNREGISTERED) for taint in node.spec.taints)


def _is_booting(claim: NodeClaim) -> bool:
    """Tell whether the claim's machine is launched and has not joined the cluster yet."""
    return (
        claim.status.provider_id.startswith(PREFIX)
        and not claim.deleting
        and not is_true(claim.status.conditions, "Registered")
    )


def _of_node(node: Node) -> NodeClaim:
    """Return what the cloud knows of a machine, as a claim."""
    status = msgspec.structs.replace(
        NodeClaim().status,
        node_name=node.name,
        provider_id=node.spec.provider_id,
        capacity=dict(node.status.capacity),
        allocatable=dict(node.status.allocatable),
    )
    metadata = ObjectMeta(
        name=node.spec.provider_id.removeprefix(PREFIX),
        labels=node.metadata.labels,
        creation_timestamp=node.metadata.creation_timestamp,
    )
    return NodeClaim(metadata=metadata, status=status)


def _claim_keys(change: Change[NodeClaim]) -> Iterable[str]:
    return (node_name(change.object),)


def _node_keys(change: Change[Node]) -> Iterable[str]:
    return (change.object.name,) if change.object.spec.provider_id.startswith(PREFIX) else ()
