"""A cloud whose instance types are seen through NodeOverlays, whichever cloud it is."""

from collections.abc import Sequence

from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.cloudprovider.hooks import RegistrationHook
from karpenter.cloudprovider.overlaystore import OverlayStore
from karpenter.cloudprovider.protocol import CloudProvider, NodeClass, RepairPolicy
from karpenter.model.instancetype import InstanceType


class OverlaidProvider:
    """See `karpenter.cloudprovider.CloudProvider`; what pools could buy is seen through `store`."""

    def __init__(self, inner: CloudProvider, store: OverlayStore) -> None:
        self.inner = inner
        self.store = store
        self.name = inner.name
        self.node_classes: tuple[type[NodeClass], ...] = inner.node_classes
        self.well_known_labels = inner.well_known_labels
        self.reservation_label = inner.reservation_label
        self.volume_rules = inner.volume_rules
        self.default_termination_grace_period = inner.default_termination_grace_period

    async def run(self) -> None:
        await self.inner.run()

    async def create(self, claim: NodeClaim) -> NodeClaim:
        return await self.inner.create(claim)

    async def delete(self, claim: NodeClaim) -> None:
        await self.inner.delete(claim)

    async def get(self, provider_id: str) -> NodeClaim:
        return await self.inner.get(provider_id)

    async def list(self) -> Sequence[NodeClaim]:
        return await self.inner.list()

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """Return the cloud's types as the pool sees them. Raises also UnevaluatedNodePool."""
        return self.store.apply(pool.name, await self.inner.instance_types(pool))

    async def drift_reason(self, claim: NodeClaim) -> str:
        return await self.inner.drift_reason(claim)

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return self.inner.repair_policies()

    def registration_hooks(self) -> Sequence[RegistrationHook]:
        return self.inner.registration_hooks()
