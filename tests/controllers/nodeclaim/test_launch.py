"""How launching goes wrong, kind by kind, and what a launch leaves on the claim."""

import pytest
from msgspec.structs import replace

from karpenter.apis.conditions import get
from karpenter.apis.karpenter import NodeClaim, NodeClaimStatus
from karpenter.apis.meta import ObjectMeta
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import (
    CreateError,
    InsufficientCapacity,
    NodeClassNotReady,
    UnevaluatedNodePool,
)
from karpenter.controllers.nodeclaim.launch import shortened, with_details
from karpenter.kube.errors import NotFound
from karpenter.testing.builders import a_nodeclaim, a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import FakeCloud


async def _claim(env: Environment) -> NodeClaim:
    await env.create(a_nodepool())
    await env.create(a_pod())
    return (await env.expect_claims(1))[0]


async def _is_gone(env: Environment, claim: NodeClaim) -> bool:
    try:
        await env.client.get(NodeClaim, claim.name)
    except NotFound:
        return True
    return False


@pytest.mark.parametrize(
    ("error", "event", "reason"),
    [
        (InsufficientCapacity("sold out"), "InsufficientCapacityError", "insufficient_capacity"),
        (NodeClassNotReady("no subnets"), "NodeClassNotReady", "nodeclass_not_ready"),
    ],
)
def test_a_launch_that_cannot_work_ends_the_claim_at_once(error: Exception, event: str, reason: str) -> None:
    """No capacity, or a node class that is not ready: an event, a count, and another claim for the pod."""

    async def scenario() -> None:
        cloud = FakeCloud()
        cloud.next_errors = [error]
        cloud.create_seconds = 1.0
        async with environment(cloud=cloud) as env:
            claim = await _claim(env)
            await env.expect("the claim is gone", lambda: _is_gone(env, claim), within=10)
            told = await env.expect_event(event)
            assert told.message == f"NodeClaim {claim.name} event: {error}"
            assert (told.type, told.involved_object.name) == ("Warning", claim.name)
            counted = env.metric(
                "karpenter_nodeclaims_disrupted_total",
                reason=reason,
                nodepool="default",
                capacity_type="",
                consolidation_policy="",
                termination_mode="graceful",
            )
            assert counted == 1
            (second,) = await env.expect_claims(1)
            await env.expect_condition(second.name, "Initialized")

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (CreateError("QuotaExceeded", "no more than 3"), "QuotaExceeded", "no more than 3"),
        (RuntimeError("x" * 400), "LaunchFailed", "x" * 300 + "..."),
        (UnevaluatedNodePool("default"), "AwaitingReconciliation", "object is awaiting reconciliation"),
    ],
    ids=["the cloud says why", "anything else", "overlays are not evaluated yet"],
)
def test_other_failures_are_written_down_and_tried_again(error: Exception, reason: str, message: str) -> None:
    """The claim stays; tries come less and less often, but within a minute."""

    async def scenario() -> None:
        cloud = FakeCloud()
        cloud.next_errors = [error] * 4
        async with environment(cloud=cloud) as env:
            env.may_crash = isinstance(error, RuntimeError)
            claim = await _claim(env)
            await env.wait(0.5)
            launched = get((await env.client.get(NodeClaim, claim.name)).status.conditions, "Launched")
            assert launched is not None
            assert (launched.status, launched.reason, launched.message) == ("Unknown", reason, message)
            await env.expect_condition(claim.name, "Launched", within=60)
            assert len(cloud.created) == 1

    run_virtual(scenario())


def test_the_claims_labels_win_and_the_clouds_annotations() -> None:
    """What the launched instance tells is laid under the claim's labels and over its annotations."""
    claim = a_nodeclaim("c", labels={"a": "claim"}, annotations={"b": "claim"})
    told = NodeClaim(
        metadata=ObjectMeta(labels={"a": "cloud", "zone": "z"}, annotations={"b": "cloud", "image": "i"}),
        status=NodeClaimStatus(provider_id="p://1", image_id="i-1", capacity={"cpu": "2"}),
    )
    found = with_details(claim, told)
    assert found.metadata.labels == {**claim.metadata.labels, "a": "claim", "zone": "z"}
    assert found.metadata.annotations == {"b": "cloud", "image": "i"}
    assert found.status == replace(claim.status, provider_id="p://1", image_id="i-1", capacity={"cpu": "2"})


def test_messages_are_cut_at_three_hundred_characters() -> None:
    """Conditions and events stay readable whatever the cloud answers."""
    assert shortened("x" * 300) == "x" * 300
    assert shortened("x" * 301) == "x" * 300 + "..."
