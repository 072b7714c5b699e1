"""When a node counts as ready for work, and what is said and done when it never is."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.conditions import get
from karpenter.apis.core import Node, Taint, Toleration
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import Condition, ObjectMeta, OwnerReference
from karpenter.apis.resourceslices import ResourcePool, ResourceSlice, ResourceSliceSpec
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.context import Settings
from karpenter.controllers.nodeclaim.dradrivers import requested_drivers, unpublished
from karpenter.controllers.nodeclaim.initialization import missing
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.model import taints
from karpenter.testing.builders import a_node, a_nodeclaim, a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

STARTUP = Taint("example.com/start", "", "NoSchedule")
READINESS = Taint("readiness.k8s.io/network", "", "NoSchedule")
NOT_READY = taints.EPHEMERAL_TAINTS[0]
GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("ready", "present", "allocatable", "reason"),
    [
        (True, [], {GPU: "1"}, ""),
        (False, [STARTUP], {GPU: "1"}, "NodeNotReady"),
        (True, [STARTUP, NOT_READY], {GPU: "1"}, "StartupTaintsExist"),
        (True, [NOT_READY], {}, "KnownEphemeralTaintsExist"),
        (True, [READINESS], {GPU: "1"}, "KnownEphemeralTaintsExist"),
        (True, [Taint("example.com/other", "", "NoSchedule")], {GPU: "1"}, ""),
        (True, [], {}, "ResourceNotRegistered"),
        (True, [], {GPU: "0"}, "ResourceNotRegistered"),
    ],
)
def test_what_a_node_must_have_is_looked_for_in_order(
    ready: bool, present: Sequence[Taint], allocatable: dict[str, str], reason: str
) -> None:
    """Ready, no startup taints, no taints that pass by themselves, every resource that was asked for."""
    claim = a_nodeclaim("c", startup_taints=[STARTUP], requests={GPU: "1", "example.com/none": "0"})
    assert missing(claim, a_node("n", ready=ready, taints=present, allocatable=allocatable))[0] == reason


def _slice(
    driver: str, pool: str, generation: int, count: int, *, node: str = "n", owned: bool = False
) -> ResourceSlice:
    owner = OwnerReference(api_version="v1", kind="Node", name=node, uid="u")
    return ResourceSlice(
        metadata=ObjectMeta(owner_references=[owner] if owned else []),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name="" if owned else node,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
        ),
    )


@pytest.mark.parametrize(
    ("slices", "lacking"),
    [
        ([], ["gpu", "nic"]),
        ([_slice("gpu", "p", 1, 1)], ["nic"]),
        ([_slice("gpu", "p", 1, 2), _slice("nic", "p", 1, 1)], ["gpu"]),
        ([_slice("gpu", "p", 1, 2), _slice("gpu", "p", 1, 2), _slice("nic", "q", 1, 1)], []),
        ([_slice("gpu", "p", 1, 1), _slice("gpu", "p", 2, 2), _slice("nic", "q", 1, 1)], ["gpu"]),
        ([_slice("gpu", "p", 1, 0), _slice("nic", "q", 1, 1)], ["gpu"]),
        ([_slice("gpu", "p", 1, 9), _slice("gpu", "o", 1, 1), _slice("nic", "q", 1, 1)], []),
        ([_slice("gpu", "p", 1, 1, node="m"), _slice("nic", "q", 1, 1)], ["gpu"]),
        ([_slice("gpu", "p", 1, 1, owned=True), _slice("nic", "q", 1, 1)], []),
        ([_slice("gpu", "p", 1, 1, node="m", owned=True), _slice("nic", "q", 1, 1)], ["gpu"]),
    ],
)
def test_every_driver_needs_one_whole_pool_on_the_node(
    slices: list[ResourceSlice], lacking: list[str]
) -> None:
    """Whole: as many slices of the newest generation as it says it has; others' nodes do not count."""
    assert unpublished(["gpu", "nic"], a_node("n"), slices) == lacking


def test_drivers_are_read_from_the_claim() -> None:
    """Names by commas; spaces and repetitions do not matter."""
    assert requested_drivers(a_nodeclaim(annotations={known.REQUESTED_DRA_DRIVERS: "b, a,,b"})) == ["a", "b"]
    assert requested_drivers(a_nodeclaim()) == []


async def _claim(env: Environment, **pool: object) -> NodeClaim:
    await env.create(a_nodepool(**pool))  # type: ignore[arg-type]
    await env.create(a_pod())
    claim = (await env.expect_claims(1))[0]
    return await env.expect_condition(claim.name, "Registered")


async def _initialized(env: Environment, claim: NodeClaim) -> Condition:
    found = get((await env.client.get(NodeClaim, claim.name)).status.conditions, "Initialized")
    assert found is not None
    return found


async def _is_ended(env: Environment, claim: NodeClaim) -> bool:
    try:
        return (await env.client.get(NodeClaim, claim.name)).deleting
    except NotFound:
        return True


@pytest.mark.parametrize("ignored", [False, True])
def test_a_node_waits_for_the_drivers_of_its_devices(ignored: bool) -> None:
    """Until each has published a whole pool; not at all where dynamic resources are ignored."""

    async def scenario() -> None:
        async with environment(settings=Settings(ignore_dra_requests=ignored)) as env:
            notes = {known.REQUESTED_DRA_DRIVERS: "gpu.example.com"}
            claim = await _claim(env, annotations=notes)
            if ignored:
                await env.expect_condition(claim.name, "Initialized")
                return
            await env.wait(20)
            waiting = await _initialized(env, claim)
            assert (waiting.status, waiting.reason) == ("Unknown", "DRADriverPoolsNotPublished")
            assert "gpu.example.com" in waiting.message
            published = _slice("gpu.example.com", "p", 1, 1, node=claim.status.node_name)
            await env.create(replace(published, metadata=ObjectMeta(name="s")))
            await env.expect_condition(claim.name, "Initialized", within=10)

    run_virtual(scenario())


def test_a_node_whose_object_went_is_waited_for() -> None:
    """Between registration and initialization the Node may go; the condition says so."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env, startup_taints=[STARTUP])
            name = claim.status.node_name
            await env.client.patch(Node, name, merge({"metadata": {"finalizers": None}}))
            await env.client.delete(Node, name)
            await env.wait(2)
            assert (await _initialized(env, claim)).reason == "NodeNotFound"

    run_virtual(scenario())


def test_a_node_that_is_never_initialized_says_so_and_stays() -> None:
    """After fifteen minutes claim and node have an event, every hour again; the condition says it, too."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env, startup_taints=[STARTUP])
            await env.wait(880)
            assert not await env.events("NotInitialized")
            await env.wait(30)
            told = await env.events("NotInitialized")
            assert sorted(e.involved_object.kind for e in told) == ["Node", "NodeClaim"]
            words = "StartupTaint 'example.com/start:NoSchedule' still exists; not initialized within 15m0s"
            assert all(words in e.message for e in told)
            assert words in (await _initialized(env, claim)).message
            assert (await _initialized(env, claim)).reason == "StartupTaintsExist"
            await env.wait(7200)
            assert len(await env.events("NotInitialized")) == 6
            assert not await _is_ended(env, claim)
            assert len(env.cloud.created) == 1, "nothing is bought instead"
            await env.client.patch(Node, claim.status.node_name, merge({"spec": {"taints": None}}))
            await env.expect_condition(claim.name, "Initialized")

    run_virtual(scenario())


def test_with_a_timeout_a_node_that_is_never_initialized_is_replaced() -> None:
    """Not before, and counted with its own reason."""

    async def scenario() -> None:
        async with environment(settings=Settings(initialization_timeout=1800.0)) as env:
            claim = await _claim(env, startup_taints=[STARTUP])
            await env.wait(1780)
            assert not await _is_ended(env, claim)
            await env.wait(30)
            assert await _is_ended(env, claim)
            count = env.metric(
                "karpenter_nodeclaims_disrupted_total",
                reason="initialization_timeout",
                nodepool="default",
                capacity_type="spot",
                consolidation_policy="",
                termination_mode="graceful",
            )
            assert count == 1

    run_virtual(scenario())


def test_a_node_that_runs_pods_outlives_the_timeout() -> None:
    """Whoever tolerates what the node lacks is not disturbed; when it goes, so does the node."""

    async def scenario() -> None:
        async with environment(settings=Settings(initialization_timeout=1800.0)) as env:
            await env.create(a_nodepool(startup_taints=[STARTUP]))
            pod = await env.create(a_pod(tolerations=[Toleration(operator="Exists")]))
            claim = (await env.expect_claims(1))[0]
            await env.expect_scheduled([pod])
            await env.wait(2400)
            assert not await _is_ended(env, claim)
            await env.client.delete(type(pod), pod.name, namespace=pod.namespace)
            await env.wait(120)
            assert await _is_ended(env, claim)

    run_virtual(scenario())
