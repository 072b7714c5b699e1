"""Calls to the cloud, counted and timed."""

import asyncio
from collections.abc import Sequence

import pytest

from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.clock import LoopClock
from karpenter.base.metrics import Metrics
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import (
    CloudProvider,
    CreateError,
    InsufficientCapacity,
    NodeClaimNotFound,
    NodeClass,
    NodeClassNotReady,
    RegistrationHook,
    RepairPolicy,
)
from karpenter.cloudprovider.metered import MeteredProvider
from karpenter.model.instancetype import InstanceType
from karpenter.model.volumerules import VolumeRules
from karpenter.testing.builders import a_nodeclaim, a_nodepool, some_instance_types


class SlowCloud:
    """Takes two seconds for everything; `error` is what creating raises."""

    name = "slow"
    node_classes: tuple[type[NodeClass], ...] = ()
    well_known_labels: frozenset[str] = frozenset({"example.com/label"})
    reservation_label = "example.com/reservation"
    default_termination_grace_period: str | None = "30m"
    volume_rules = VolumeRules(unsupported_provisioners=frozenset({"old.example.com"}))

    def __init__(self, clock: LoopClock, error: Exception | None = None) -> None:
        self._clock = clock
        self._error = error
        self.types = tuple(some_instance_types())

    async def run(self) -> None:
        await self._clock.sleep(2)

    async def create(self, claim: NodeClaim) -> NodeClaim:
        await self._clock.sleep(2)
        if self._error is not None:
            raise self._error
        return claim

    async def delete(self, claim: NodeClaim) -> None:
        await self._clock.sleep(2)

    async def get(self, provider_id: str) -> NodeClaim:
        raise NodeClaimNotFound(provider_id)

    async def list(self) -> Sequence[NodeClaim]:
        return []

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return self.types

    async def drift_reason(self, claim: NodeClaim) -> str:
        return "why"

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return (RepairPolicy("Ready", "False", 60.0),)

    def registration_hooks(self) -> Sequence[RegistrationHook]:
        return ()


def test_calls_pass_through_and_are_timed_by_controller() -> None:
    """Answers are the cloud's own; durations are kept by controller, method and provider."""

    async def scenario() -> None:
        clock, metrics = LoopClock(), Metrics()
        cloud = SlowCloud(clock)
        metered: CloudProvider = MeteredProvider(cloud, clock=clock, metrics=metrics)
        claim = a_nodeclaim()
        task = asyncio.create_task(metered.create(claim), name="nodeclaim.lifecycle/3")
        assert await task is claim
        await metered.delete(claim)
        assert await metered.instance_types(a_nodepool()) is cloud.types
        assert await metered.drift_reason(claim) == "why"
        assert await metered.list() == []
        assert metered.repair_policies() == cloud.repair_policies()
        assert metered.well_known_labels == cloud.well_known_labels
        assert metered.reservation_label == cloud.reservation_label
        assert metered.default_termination_grace_period == "30m"
        assert metered.volume_rules == cloud.volume_rules
        name = "karpenter_cloudprovider_duration_seconds_sum"
        where = {"controller": "nodeclaim.lifecycle", "method": "Create", "provider": "slow"}
        assert metrics.registry.get_sample_value(name, where) == pytest.approx(2.0)
        where = {"controller": "", "method": "Delete", "provider": "slow"}
        assert metrics.registry.get_sample_value(name, where) == pytest.approx(2.0)

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InsufficientCapacity("none"), "InsufficientCapacityError"),
        (NodeClassNotReady("no"), "NodeClassNotReadyError"),
        (NodeClaimNotFound("gone"), "NodeClaimNotFoundError"),
        (CreateError("Quota", "3"), ""),
        (RuntimeError("boom"), ""),
    ],
)
def test_errors_are_counted_by_kind_and_passed_on(error: Exception, kind: str) -> None:
    """The caller sees the very error; those without a name of their own count under the empty one."""

    async def scenario() -> None:
        clock, metrics = LoopClock(), Metrics()
        metered = MeteredProvider(SlowCloud(clock, error), clock=clock, metrics=metrics)
        with pytest.raises(type(error)) as caught:
            await metered.create(a_nodeclaim())
        assert caught.value is error
        where = {"controller": "", "method": "Create", "provider": "slow", "error": kind}
        assert metrics.registry.get_sample_value("karpenter_cloudprovider_errors_total", where) == 1

    run_virtual(scenario())
