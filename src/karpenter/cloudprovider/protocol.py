"""The contract between the operator and a cloud."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import Condition, KubeObject, Object
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.cloudprovider.hooks import RegistrationHook
from karpenter.cloudprovider.overlaystore import OverlayStore
from karpenter.kube.client import Client
from karpenter.kube.informer import Cache
from karpenter.model.instancetype import InstanceType
from karpenter.model.volumerules import VolumeRules


class NodeClassStatus(Object, frozen=True):
    """The part of a node class's status that the core reads."""

    conditions: list[Condition] = []


class NodeClass(KubeObject, frozen=True):
    """What the core needs of any node class; providers subclass it and name its `resource`."""

    status: NodeClassStatus = msgspec.field(default_factory=NodeClassStatus)


class RepairPolicy(msgspec.Struct, frozen=True):
    """A node condition that means "replace me" once it has lasted."""

    condition_type: str
    condition_status: str
    toleration_seconds: float


class ProviderContext(msgspec.Struct, frozen=True):
    """What the assembly hands to a provider's factory."""

    client: Client
    cache: Cache
    clock: Clock
    rng: Random
    metrics: Metrics
    settings: Mapping[str, str]
    """Provider options by flag name without dashes at the front, e.g. `instance-types-file-path`."""
    overlays: OverlayStore | None = None
    """What NodeOverlays make of instance types (None: the feature is off). `instance_types` stays what the
    cloud says; `create` should choose by overlaid prices and sizes, as the plan did."""


class CloudProvider(Protocol):
    """One cloud. All methods may be called at any time, again and again, and concurrently."""

    name: str
    node_classes: tuple[type[NodeClass], ...]
    """Kinds it serves, each with its `resource`; the first is the default."""
    well_known_labels: frozenset[str]
    """Labels, beyond the core's, that its instance types define."""
    reservation_label: str
    """The one of them that holds the reservation's id, where an offering is reserved; other offerings require
    that it does not exist. Empty: the cloud has no reservations."""
    volume_rules: VolumeRules
    """Storage that its nodes cannot use."""
    default_termination_grace_period: str | None
    """What NodeClaims have whose NodePool sets none, e.g. `30m`; None: they may take as long as it takes."""

    async def run(self) -> None:
        """Do what the provider does in the background, until cancelled; runs only on the leader."""
        ...

    async def create(self, claim: NodeClaim) -> NodeClaim:
        """Launch one instance for `claim` and return it with labels, annotations and status filled in
        (providerID, imageID, capacity, allocatable). An offering of another size than its type's is as large
        as its overrides say, and bought only where that holds the claim's requests.

        Idempotent: called again for the same claim (by uid), it returns the instance launched before.

        Raises:
            InsufficientCapacity, NodeClassNotReady, CreateError
        """
        ...

    async def delete(self, claim: NodeClaim) -> None:
        """Ask for the end of the claim's instance; call again until it raises NodeClaimNotFound.

        Raises:
            NodeClaimNotFound: when the instance is gone.
        """
        ...

    async def get(self, provider_id: str) -> NodeClaim:
        """Return the instance as a claim. Raises NodeClaimNotFound when there is none."""
        ...

    async def list(self) -> Sequence[NodeClaim]:
        """Return every instance that this cluster owns, by provider id."""
        ...

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """Return every type `pool`'s node class could use, available or not, by name.

        Cheap when nothing changed: the same tuple object is returned until the catalogue changes.
        """
        ...

    async def drift_reason(self, claim: NodeClaim) -> str:
        """Return why the instance no longer is what its node class asks for; empty when it is."""
        ...

    def repair_policies(self) -> Sequence[RepairPolicy]:
        """Return the node conditions that justify a replacement."""
        ...

    def registration_hooks(self) -> Sequence[RegistrationHook]:
        """Return what is asked before a node that has joined may take pods; the same ones every time."""
        ...
