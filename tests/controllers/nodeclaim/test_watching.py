"""What is noted about claims while their machines work: shape, labels, pod events, drift of their type."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.conditions import get
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import ObjectMeta
from karpenter.base.timestamps import parse_time
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.nodeclaim.consistency import shape_issues
from karpenter.controllers.nodeclaim.drift import instance_type_drift
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_node, a_nodeclaim, a_nodepool, a_pod, some_instance_types
from karpenter.testing.environment import Environment, environment

LABEL = "karpenter.kwok.sh/kwoknodeclass"
TYPES = tuple(some_instance_types())


async def _working(env: Environment) -> NodeClaim:
    """Return a claim whose machine works, with one pod on it."""
    await env.create(a_nodepool())
    await env.create(a_pod("first"))
    claim = (await env.expect_claims(1))[0]
    return await env.expect_condition(claim.name, "Initialized")


def test_a_smaller_machine_than_was_bought_is_told() -> None:
    """A node with too little memory gets its claim a condition and an event; nothing else happens to it."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.expect_condition(claim.name, "ConsistentStateFound")
            small = merge({"status": {"capacity": {"memory": "1Gi"}}})
            await env.client.patch(Node, claim.status.node_name, small, subresource="status")
            await env.wait(60)
            assert not await env.events("FailedConsistencyCheck"), "it looks every ten minutes, not always"
            claim = await env.expect_condition(claim.name, "ConsistentStateFound", "False", within=700)
            condition = get(claim.status.conditions, "ConsistentStateFound")
            assert condition is not None
            assert condition.reason == "ConsistencyCheckFailed"
            event = await env.expect_event("FailedConsistencyCheck")
            assert event.message == condition.message
            assert "of resource memory, but found 1Gi" in event.message
            assert not claim.deleting

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("found", "issues"),
    [
        ({"cpu": "4", "memory": "8Gi"}, 0),
        ({"cpu": "3600m", "memory": "8Gi"}, 0),
        ({"cpu": "3599m", "memory": "8Gi"}, 1),
        ({"memory": "8Gi"}, 1),
    ],
)
def test_a_tenth_less_is_tolerated(found: dict[str, str], issues: int) -> None:
    """The kernel keeps a little; less than 90 % of a requested resource is an issue."""
    claim = a_nodeclaim("c", capacity={"cpu": "4", "memory": "8Gi"}, requests={"cpu": "1", "memory": "1Gi"})
    node = a_node("n", capacity=found, allocatable=found)
    assert len(shape_issues(claim, node)) == issues


def test_a_resource_of_which_nothing_was_promised_is_no_issue() -> None:
    """Only what the cloud said the machine would have can be missing."""
    claim = a_nodeclaim("c", capacity={"cpu": "4"}, requests={"cpu": "1", "example.com/gpu": "1"})
    assert shape_issues(claim, a_node("n", capacity={"cpu": "4"}, allocatable={"cpu": "4"})) == []


def test_a_claim_from_before_gets_its_class_label() -> None:
    """A label that is missing is put back, with the name of the claim's node class."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            assert claim.metadata.labels[LABEL] == "default"
            await env.client.patch(NodeClaim, claim.name, merge({"metadata": {"labels": {LABEL: None}}}))
            await env.wait(5)
            claim = await env.client.get(NodeClaim, claim.name)
            assert claim.metadata.labels[LABEL] == "default"

    run_virtual(scenario())


def test_a_node_from_before_gets_its_class_label() -> None:
    """Its node class is that of its claim; a node of nobody's is left alone."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.create(a_node("stranger", provider_id="other://stranger"))
            name = claim.status.node_name
            assert (await env.client.get(Node, name)).metadata.labels[LABEL] == "default"
            await env.client.patch(Node, name, merge({"metadata": {"labels": {LABEL: None}}}))
            await env.wait(5)
            assert (await env.client.get(Node, name)).metadata.labels[LABEL] == "default"
            assert LABEL not in (await env.client.get(Node, "stranger")).metadata.labels

    run_virtual(scenario())


def test_pods_that_come_and_go_are_noted() -> None:
    """Each binding, ending and deletion moves the time, but not twice within ten seconds."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.wait(20)

            async def noted() -> float:
                found = await env.client.get(NodeClaim, claim.name)
                return parse_time(found.status.last_pod_event_time or "1970-01-01T00:00:00Z")

            bound = await noted()
            assert bound > 0
            pod = await env.create(a_pod("second", cpu="100m"))
            await env.expect_scheduled([pod])
            await env.wait(5)
            second = await noted()
            assert second > bound
            await env.client.delete(Pod, "second", namespace="default")
            await env.wait(3)
            assert await noted() == second, "within ten seconds"
            await env.wait(15)
            await env.client.delete(Pod, "first", namespace="default")
            await env.wait(5)
            assert await noted() > second

    run_virtual(scenario())


def _claim_of(name: str, **labels: str) -> NodeClaim:
    return replace(
        a_nodeclaim("c"), metadata=ObjectMeta(name="c", labels={known.INSTANCE_TYPE: name, **labels})
    )


def test_a_type_that_is_no_longer_sold_is_drift() -> None:
    """The type must be in the catalogue with an offering for the claim's place; sold out is not gone."""
    kind = TYPES[0]
    offering = kind.offerings[0]
    here = {known.ZONE: offering.zone, known.CAPACITY_TYPE: offering.capacity_type}
    assert instance_type_drift(_claim_of(kind.name, **here), TYPES) == ""
    sold_out = replace(kind, offerings=tuple(replace(o, available=False) for o in kind.offerings))
    assert instance_type_drift(_claim_of(kind.name, **here), (sold_out,)) == ""
    assert instance_type_drift(_claim_of("gone", **here), TYPES) == "InstanceTypeNotFound"
    elsewhere = {**here, known.ZONE: "zone-x"}
    assert instance_type_drift(_claim_of(kind.name, **elsewhere), TYPES) == "InstanceTypeNotFound"


def test_an_ended_reservation_is_no_drift() -> None:
    """A reserved machine goes on as an on-demand one when its reservation is over."""
    kind = TYPES[0]
    offering = next(o for o in kind.offerings if o.capacity_type == known.CAPACITY_ON_DEMAND)
    reserved = {known.ZONE: offering.zone, known.CAPACITY_TYPE: known.CAPACITY_RESERVED}
    assert instance_type_drift(_claim_of(kind.name, **reserved), TYPES) == ""


def test_drift_of_the_type_is_looked_for_after_an_hour() -> None:
    """Young claims are left alone; after an hour a vanished type marks the claim."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            name = claim.metadata.labels[known.INSTANCE_TYPE]
            env.cloud.types = tuple(t for t in env.cloud.types if t.name != name)
            await env.wait(3000)
            assert get((await env.client.get(NodeClaim, claim.name)).status.conditions, "Drifted") is None
            claim = await env.expect_condition(claim.name, "Drifted", within=1200)
            condition = get(claim.status.conditions, "Drifted")
            assert condition is not None
            assert condition.reason == "InstanceTypeNotFound"

    run_virtual(scenario())
