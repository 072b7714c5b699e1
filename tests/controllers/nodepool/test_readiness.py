"""What makes a pool usable: its node class, and what its own spec says."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.conditions import get
from karpenter.apis.karpenter import NodeClassRef, NodePool
from karpenter.apis.meta import Condition
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import NodeClassStatus
from karpenter.controllers.nodepool.readiness import verdict_of
from karpenter.kube.patch import merge
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.testing.builders import NODE_CLASS, a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

CAPACITY = known.CAPACITY_TYPE


def _class(*ready: Condition, deleted: str | None = None) -> KwokNodeClass:
    found = replace(KwokNodeClass(), status=NodeClassStatus(conditions=list(ready)))
    return replace(found, metadata=replace(found.metadata, deletion_timestamp=deleted))


READY = Condition(type="Ready", status="True", reason="Ready")


@pytest.mark.parametrize(
    ("node_class", "status", "reason", "message"),
    [
        (None, "False", "NodeClassNotFound", "NodeClass not found on cluster"),
        (
            _class(READY, deleted="2026-01-01T00:00:00Z"),
            "False",
            "NodeClassTerminating",
            "NodeClass is Terminating",
        ),
        (_class(), "False", "NodeClassReadinessUnknown", "Node Class Readiness Unknown"),
        (
            _class(replace(READY, status="Unknown")),
            "False",
            "NodeClassReadinessUnknown",
            "Node Class Readiness Unknown",
        ),
        (
            _class(replace(READY, status="False", reason="NoSubnets", message="none")),
            "False",
            "NoSubnets",
            "none",
        ),
        (_class(READY), "True", "NodeClassReady", ""),
    ],
    ids=["missing", "being deleted", "says nothing", "unknown", "not ready", "ready"],
)
def test_a_pool_is_as_ready_as_its_node_class(
    node_class: KwokNodeClass | None, status: str, reason: str, message: str
) -> None:
    """With the node class's own reason where it gives one."""
    assert verdict_of(node_class) == (status, reason, message)


async def _conditions(env: Environment, pool: str = "default") -> dict[str, str]:
    found = await env.client.get(NodePool, pool)
    return {c.type: c.status for c in found.status.conditions}


def test_a_pool_follows_a_node_class_that_comes_and_goes() -> None:
    """Nothing is bought while it is missing; when it is there and ready, pods get their node."""

    async def scenario() -> None:
        async with environment() as env:
            await env.client.delete(KwokNodeClass, NODE_CLASS.name)
            await env.create(a_nodepool())
            await env.create(a_pod())
            await env.wait(15)
            assert (await _conditions(env))["Ready"] == "False"
            assert not await env.claims()
            made = replace(KwokNodeClass(), metadata=replace(KwokNodeClass().metadata, name=NODE_CLASS.name))
            await env.create(made)
            ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
            ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            await env.client.patch(
                KwokNodeClass, made.name, merge({"status": {"conditions": [ready]}}), subresource="status"
            )
            await env.expect_claims(1)
            assert (await _conditions(env))["Ready"] == "True"

    run_virtual(scenario())


def test_pools_of_other_clouds_are_left_alone() -> None:
    """A node class of a kind that is not ours makes the pool another operator's."""

    async def scenario() -> None:
        async with environment() as env:
            other = NodeClassRef(group="cloud.example.com", kind="OtherNodeClass", name="default")
            await env.create(a_nodepool("theirs", node_class=other))
            await env.wait(15)
            found = await env.client.get(NodePool, "theirs")
            assert found.status.conditions == []
            assert found.status.resources == {}
            assert known.NODEPOOL_HASH not in found.metadata.annotations

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("values", "valid"),
    [(["spot"], True), (["spot", "imaginary"], True), (["imaginary"], False)],
)
def test_a_pool_is_invalid_only_when_all_its_capacity_types_are(values: list[str], valid: bool) -> None:
    """One that is unknown beside one that is known may be of a newer version."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool(requirements=[(CAPACITY, "In", values)]))
            await env.wait(5)
            status = (await _conditions(env))["ValidationSucceeded"]
            assert status == ("True" if valid else "False")
            assert (await _conditions(env))["Ready"] == status

    run_virtual(scenario())


def test_conditions_are_of_the_present_generation() -> None:
    """A change that leaves the verdicts as they are takes the conditions along."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.wait(5)
            await env.client.patch(NodePool, "default", merge({"spec": {"weight": 3}}))
            await env.wait(5)
            pool = await env.client.get(NodePool, "default")
            assert pool.metadata.generation == 2
            for type in ("Ready", "ValidationSucceeded", "NodeClassReady"):
                found = get(pool.status.conditions, type)
                assert found is not None
                assert (found.status, found.observed_generation) == ("True", 2)

    run_virtual(scenario())
