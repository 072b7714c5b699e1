"""A cloud for tests: instances in memory, and everything that can go wrong, on demand.

It outlives the operator it serves (hand the same `FakeCloud` to the next one to play a restart). Its machines
join the cluster as real kubelets do: after a delay, with the unregistered taint, ready a little later (the
embedded kubelets see to that).
"""

from collections.abc import Iterable, Sequence

import msgspec
import structlog

from karpenter.apis import labels as known
from karpenter.apis.core import Node, NodeSpec, NodeStatus
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import ObjectMeta
from karpenter.base.clock import Clock, format_time
from karpenter.base.quantity import format_resources
from karpenter.cloudprovider import (
    InsufficientCapacity,
    NodeClaimNotFound,
    NodeClass,
    ProviderContext,
    RegistrationHook,
    RepairPolicy,
)
from karpenter.cloudprovider.overlaystore import OverlayStore
from karpenter.kube.client import Client
from karpenter.kube.errors import AlreadyExists, ApiError, NotFound
from karpenter.kube.transport import TransportError
from karpenter.model import taints
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.volumerules import VolumeRules
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.providers.kwok.offers import PriceOrder, labels_of
from karpenter.testing.builders import some_instance_types

log = structlog.get_logger()

RESERVATION = "fake.example/reservation-id"
"""Label that holds the id of the reservation a machine is from."""
_FAKE_NODE = "kwok.x-k8s.io/node"


class Instance(msgspec.Struct):
    """One machine of the fake cloud."""

    claim: NodeClaim
    """As `create` returned it."""
    launched_at: float
    joined: bool = False
    ending: bool = False


class FakeCloud:
    """The cloud's own memory, and the script of what it does next."""

    def __init__(self, types: Iterable[InstanceType] | None = None) -> None:
        found = some_instance_types() if types is None else list(types)
        self.types = tuple(sorted(found, key=lambda t: t.name))
        self.instances: dict[str, Instance] = {}
        """By provider id."""
        self.next_errors: list[Exception] = []
        """What the next creates raise, in order."""
        self.create_seconds = 0.0
        self.join_seconds: float | None = 2.0
        """From launch until the Node appears; None: it never does."""
        self.delete_seconds = 0.0
        self.drift: dict[str, str] = {}
        """Drift reasons by claim name."""
        self.repair_policies: list[RepairPolicy] = [
            RepairPolicy("Ready", "False", 600.0),
            RepairPolicy("Ready", "Unknown", 600.0),
        ]
        self.hooks: list[RegistrationHook] = []
        """What is asked before nodes may take pods."""
        self.created: list[NodeClaim] = []
        """Every machine ever launched."""
        self.deleted: list[str] = []
        """Provider ids of machines that ended, in order."""
        self._ends: dict[str, float] = {}

    def sell_out(self, instance_type: str, zone: str = "", capacity_type: str = "") -> None:
        """Make offerings unavailable from now on, for buyers and in the catalogue."""
        self.types = tuple(
            msgspec.structs.replace(
                t,
                offerings=tuple(
                    msgspec.structs.replace(o, available=False)
                    if zone in ("", o.zone) and capacity_type in ("", o.capacity_type)
                    else o
                    for o in t.offerings
                ),
            )
            if t.name == instance_type
            else t
            for t in self.types
        )

    def draw(self, drawn: Offering) -> None:
        """Take one machine from the reservation of an offering, if it has one."""
        reservation = drawn.requirements.single_value(RESERVATION)
        if not reservation or drawn.stock is None:
            return
        left = drawn.stock - 1

        def less(offering: Offering) -> Offering:
            if offering.requirements.single_value(RESERVATION) != reservation:
                return offering
            return msgspec.structs.replace(offering, stock=left, available=left > 0)

        self.types = tuple(
            msgspec.structs.replace(t, offerings=tuple(map(less, t.offerings))) for t in self.types
        )

    def end(self, provider_id: str) -> None:
        """Let a machine vanish, as an interruption would."""
        if self.instances.pop(provider_id, None) is not None:
            self.deleted.append(provider_id)


class FakeProvider:
    """See `karpenter.cloudprovider.CloudProvider`."""

    name = "fake"
    node_classes: tuple[type[NodeClass], ...] = (KwokNodeClass,)
    well_known_labels: frozenset[str] = frozenset()
    reservation_label = RESERVATION
    volume_rules = VolumeRules()
    default_termination_grace_period: str | None = None

    def __init__(
        self, cloud: FakeCloud, client: Client, clock: Clock, overlays: OverlayStore | None = None
    ) -> None:
        self.cloud = cloud
        self._overlays = overlays
        self._client = client
        self._clock = clock
        self._swept = 0  # how many of the machines that ended have no Node any more

    @classmethod
    def of(cls, context: ProviderContext, cloud: FakeCloud) -> "FakeProvider":
        """Build it as a factory would."""
        return cls(cloud, context.client, context.clock, context.overlays)

    async def run(self) -> None:
        """Boot machines until cancelled."""
        while True:
            await self._clock.sleep(0.5)
            for provider_id in sorted(self.cloud.instances):
                try:
                    await self._tend(provider_id)
                except (ApiError, TransportError):
                    continue  # it comes round again
            try:
                await self._sweep()
            except (ApiError, TransportError):
                continue

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if self.cloud.create_seconds:
            await self._clock.sleep(self.cloud.create_seconds)
        provider_id = f"fake://{claim.metadata.uid}"
        known_instance = self.cloud.instances.get(provider_id)
        if known_instance is not None:
            return known_instance.claim
        if self.cloud.next_errors:
            raise self.cloud.next_errors.pop(0)
        types = self.cloud.types
        if self._overlays is not None:
            types = self._overlays.apply(claim.metadata.labels.get(known.NODEPOOL, ""), types)
        offer = PriceOrder(types).cheapest(claim)
        if offer is None:
            raise InsufficientCapacity(f"no offering is available for nodeclaim {claim.name!r}")
        kind = offer.instance_type
        launched = msgspec.structs.replace(
            claim,
            metadata=msgspec.structs.replace(
                claim.metadata,
                labels=labels_of(claim, offer),
                creation_timestamp=format_time(self._clock.now()),
            ),
            status=msgspec.structs.replace(
                claim.status,
                provider_id=provider_id,
                image_id="image-1",
                capacity=dict(format_resources(kind.capacity)),
                allocatable=dict(format_resources(kind.allocatable)),
            ),
        )
        self.cloud.instances[provider_id] = Instance(launched, self._clock.now())
        self.cloud.created.append(launched)
        return launched

    async def delete(self, claim: NodeClaim) -> None:
        provider_id = claim.status.provider_id
        instance = self.cloud.instances.get(provider_id)
        if instance is not None and not instance.ending:
            instance.ending = True
            self.cloud._ends[provider_id] = self._clock.now() + self.cloud.delete_seconds
        if instance is not None and self.cloud._ends[provider_id] <= self._clock.now():
            self.cloud.end(provider_id)
            instance = None
        if instance is None:
            raise NodeClaimNotFound(f"instance {provider_id} is gone")

    async def get(self, provider_id: str) -> NodeClaim:
        instance = self.cloud.instances.get(provider_id)
        if instance is None:
            raise NodeClaimNotFound(f"instance {provider_id} is gone")
        return instance.claim

    async def list(self) -> Sequence[NodeClaim]:
        return [self.cloud.instances[key].claim for key in sorted(self.cloud.instances)]

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return self.cloud.types

    async def drift_reason(self, claim: NodeClaim) -> str:
        return self.cloud.drift.get(claim.name, "")

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return tuple(self.cloud.repair_policies)

    def registration_hooks(self) -> Sequence[RegistrationHook]:
        return tuple(self.cloud.hooks)

    async def _tend(self, provider_id: str) -> None:
        """Bring one machine nearer to joining."""
        instance = self.cloud.instances[provider_id]
        wait = self.cloud.join_seconds
        if instance.joined or instance.ending or wait is None:
            return
        if self._clock.now() < instance.launched_at + wait:
            return
        claim = instance.claim
        node = Node(
            metadata=ObjectMeta(
                name=claim.name,
                labels={**claim.metadata.labels, known.KUBERNETES_HOSTNAME: claim.name},
                annotations={_FAKE_NODE: "fake"},
            ),
            spec=NodeSpec(provider_id=provider_id, taints=[taints.UNREGISTERED]),
            status=NodeStatus(capacity=claim.status.capacity, allocatable=claim.status.allocatable),
        )
        try:
            await self._client.create(node)
        except AlreadyExists:
            log.debug("machine has joined before", Node=node.name)
        instance.joined = True  # only now: a failed request is tried again

    async def _sweep(self) -> None:
        """Remove the Nodes of machines that ended before they registered, as clouds do."""
        ended = self.cloud.deleted[self._swept :]
        if not ended:
            return
        for node in await self._client.list(Node):
            if node.spec.provider_id in ended and any(
                t.matches(taints.UNREGISTERED) for t in node.spec.taints
            ):
                await self.remove_node(node.name)
        self._swept += len(ended)

    async def remove_node(self, name: str) -> None:
        """Delete a Node as a cloud's own controller would."""
        try:
            await self._client.delete(Node, name)
        except NotFound:
            return
