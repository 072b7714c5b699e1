"""A cloud whose calls are counted and timed, whichever cloud it is."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.cloudprovider.errors import (
    CloudProviderError,
    InsufficientCapacity,
    NodeClaimNotFound,
    NodeClassNotReady,
)
from karpenter.cloudprovider.hooks import RegistrationHook
from karpenter.cloudprovider.protocol import CloudProvider, NodeClass, RepairPolicy
from karpenter.model.instancetype import InstanceType

T = TypeVar("T")

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # Prometheus' default ones
_ERRORS: tuple[tuple[type[Exception], str], ...] = (
    (NodeClaimNotFound, "NodeClaimNotFoundError"),
    (NodeClassNotReady, "NodeClassNotReadyError"),
    (InsufficientCapacity, "InsufficientCapacityError"),
)


class MeteredProvider:
    """See `karpenter.cloudprovider.CloudProvider`; every call goes on to the cloud it was given."""

    def __init__(self, inner: CloudProvider, *, clock: Clock, metrics: Metrics) -> None:
        self.inner = inner
        self.name = inner.name
        self.node_classes: tuple[type[NodeClass], ...] = inner.node_classes
        self.well_known_labels = inner.well_known_labels
        self.reservation_label = inner.reservation_label
        self.volume_rules = inner.volume_rules
        self.default_termination_grace_period = inner.default_termination_grace_period
        self._clock = clock
        names = ["controller", "method", "provider"]
        self._seconds = metrics.histogram(
            "karpenter_cloudprovider_duration_seconds", "Time of calls to the cloud.", names, buckets=_BUCKETS
        )
        self._failed = metrics.counter(
            "karpenter_cloudprovider_errors_total", "Calls that failed.", [*names, "error"]
        )

    async def run(self) -> None:
        await self.inner.run()

    async def create(self, claim: NodeClaim) -> NodeClaim:
        return await self._call("Create", self.inner.create(claim))

    async def delete(self, claim: NodeClaim) -> None:
        await self._call("Delete", self.inner.delete(claim))

    async def get(self, provider_id: str) -> NodeClaim:
        return await self._call("Get", self.inner.get(provider_id))

    async def list(self) -> Sequence[NodeClaim]:
        return await self._call("List", self.inner.list())

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return await self._call("GetInstanceTypes", self.inner.instance_types(pool))

    async def drift_reason(self, claim: NodeClaim) -> str:
        return await self._call("IsDrifted", self.inner.drift_reason(claim))

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return self.inner.repair_policies()

    def registration_hooks(self) -> Sequence[RegistrationHook]:
        return self.inner.registration_hooks()

    async def _call(self, method: str, call: Awaitable[T]) -> T:
        values = (_controller(), method, self.name)
        began = self._clock.monotonic()
        try:
            return await call
        except CloudProviderError as error:
            self._failed.labels(*values, _kind(error)).inc()
            raise
        except Exception:
            self._failed.labels(*values, "").inc()
            raise
        finally:
            self._seconds.labels(*values).observe(self._clock.monotonic() - began)


def _kind(error: CloudProviderError) -> str:
    return next((name for kind, name in _ERRORS if isinstance(error, kind)), "")


def _controller() -> str:
    """Return which controller is calling: its workers' tasks are called `controller/number`."""
    task = asyncio.current_task()
    name, slash, _ = task.get_name().rpartition("/") if task is not None else ("", "", "")
    return name if slash else ""
