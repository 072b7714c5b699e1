"""Which claims are marked Drifted, why, and which Consolidatable."""

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from karpenter.apis import labels as known
from karpenter.apis.annotations import REPLACE_BEFORE_EXPIRY
from karpenter.apis.conditions import get
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import Condition, ObjectMeta
from karpenter.base.timestamps import format_time
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError, NodeClaimNotFound
from karpenter.controllers.nodeclaim.drift import (
    expires_soon_at,
    hash_drift,
    instance_type_drift,
    requirements_drift,
)
from karpenter.kube.patch import Patch, merge
from karpenter.model.instancetype import Offering
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.testing.builders import (
    NODE_CLASS,
    a_nodeclaim,
    a_nodepool,
    a_pod,
    an_instance_type,
    an_offering,
    some_instance_types,
)
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import RESERVATION

HASH, VERSION = known.NODEPOOL_HASH, known.NODEPOOL_HASH_VERSION
NOTES = {HASH: "1", VERSION: "v3"}
OD, SPOT, RESERVED = known.CAPACITY_ON_DEMAND, known.CAPACITY_SPOT, known.CAPACITY_RESERVED


def _noted(notes: dict[str, str]) -> tuple[NodeClaim, NodePool]:
    """Return a claim with the notes of a pool, and the pool with `NOTES`."""
    pool = a_nodepool()
    meta = replace(pool.metadata, annotations=NOTES)
    return a_nodeclaim("c", annotations=notes), replace(pool, metadata=meta)


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        (NOTES, ""),
        ({HASH: "2", VERSION: "v3"}, "NodePoolDrifted"),
        ({HASH: "2", VERSION: "v2"}, ""),
        ({HASH: "2"}, ""),
        ({VERSION: "v3"}, ""),
        ({}, ""),
    ],
    ids=["same", "other hash", "other version", "no version", "no hash", "nothing"],
)
def test_another_hash_of_the_same_version_is_drift(notes: dict[str, str], reason: str) -> None:
    """Hashes of another version, or that are missing, say nothing."""
    assert hash_drift(*_noted(notes)) == reason
    claim, pool = _noted(notes)
    bare = replace(pool, metadata=ObjectMeta(name="default"))
    assert hash_drift(claim, bare) == ""


@pytest.mark.parametrize(
    ("requirement", "labels", "reason"),
    [
        (("zone", "In", ["a", "b"]), {"zone": "a"}, ""),
        (("zone", "In", ["b"]), {"zone": "a"}, "RequirementsDrifted"),
        (("zone", "NotIn", ["a"]), {"zone": "a"}, "RequirementsDrifted"),
        (("zone", "NotIn", ["a"]), {}, ""),
        (("zone", "In", ["a"]), {}, "RequirementsDrifted"),
        (("cores", "Gt", ["4"]), {"cores": "8"}, ""),
        (("cores", "Lt", ["4"]), {"cores": "8"}, "RequirementsDrifted"),
        (("gpu", "Exists", []), {}, "RequirementsDrifted"),
        (("gpu", "DoesNotExist", []), {"gpu": "x"}, "RequirementsDrifted"),
        (("cores", "Gt", ["many"]), {"cores": "8"}, ""),
    ],
)
def test_labels_that_the_pool_no_longer_allows_are_drift(
    requirement: tuple[str, str, list[str]], labels: dict[str, str], reason: str
) -> None:
    """A claim must be one that the pool could have asked for today; an invalid pool says nothing."""
    assert (
        requirements_drift(a_nodeclaim("c", labels=labels), a_nodepool(requirements=[requirement])) == reason
    )


@pytest.mark.parametrize(
    ("life", "ahead", "at"),
    [
        ("10h", "2h", 8 * 3600.0),
        ("10h", "9h", 5 * 3600.0),
        ("10h", "0s", None),
        ("10h", "", None),
        ("10h", "soon", None),
        ("Never", "2h", None),
    ],
)
def test_a_machine_is_to_be_replaced_before_it_expires(life: str, ahead: str, at: float | None) -> None:
    """As long before as the pool says, and never before half of its life; not where it does not say."""
    claim = a_nodeclaim("c", created=format_time(1_000_000.0))
    claim = replace(claim, spec=replace(claim.spec, expire_after=life))
    pool = a_nodepool()
    if ahead:
        notes = {REPLACE_BEFORE_EXPIRY: ahead}
        pool = replace(pool, metadata=replace(pool.metadata, annotations=notes))
    expected = float("inf") if at is None else 1_000_000.0 + at
    assert expires_soon_at(claim, pool) == expected


def _reserved(id: str) -> Offering:
    return an_offering("zone-a", RESERVED, labels={RESERVATION: id})


@pytest.mark.parametrize(
    ("capacity", "offered", "drifted"),
    [
        (RESERVED, [_reserved("r-1")], False),
        (RESERVED, [_reserved("r-2")], False),
        (RESERVED, [an_offering("zone-a", OD)], False),
        (RESERVED, [an_offering("zone-a", SPOT)], True),
        (RESERVED, [an_offering("zone-b", OD)], True),
        (RESERVED, [], True),
        (OD, [an_offering("zone-a", OD)], False),
        (OD, [an_offering("zone-a", OD, available=False)], False),
        (OD, [_reserved("r-1")], True),
        (OD, [an_offering("zone-a", SPOT)], True),
        (SPOT, [an_offering("zone-a", SPOT)], False),
        (SPOT, [an_offering("zone-a", OD), _reserved("r-1")], True),
    ],
)
def test_an_offering_that_is_gone_is_drift(capacity: str, offered: list[Offering], drifted: bool) -> None:
    """Reserved machines may go on as on-demand ones, or in another reservation; others must be as bought."""
    labels = {known.INSTANCE_TYPE: "medium", known.ZONE: "zone-a", known.CAPACITY_TYPE: capacity}
    if capacity == RESERVED:
        labels[RESERVATION] = "r-1"
    kind = replace(an_instance_type("medium"), offerings=tuple(offered))
    reason = instance_type_drift(a_nodeclaim("c", labels=labels), (kind,), RESERVATION)
    assert reason == ("InstanceTypeNotFound" if drifted else "")


async def _working(env: Environment) -> NodeClaim:
    """Return a claim whose machine works, with one pod on it."""
    await env.create(a_nodepool())
    await env.create(a_pod())
    claim = (await env.expect_claims(1))[0]
    return await env.expect_condition(claim.name, "Initialized")


async def _condition(env: Environment, claim: NodeClaim, type: str) -> Condition | None:
    return get((await env.client.get(NodeClaim, claim.name)).status.conditions, type)


async def _reason(env: Environment, claim: NodeClaim) -> str:
    found = await _condition(env, claim, "Drifted")
    return found.reason if found is not None and found.status == "True" else ""


def test_the_first_reason_for_drift_is_the_one_given() -> None:
    """Template before requirements before instance type before what the cloud finds."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.wait(3700)
            env.cloud.drift[claim.name] = "ImageDrifted"
            await env.wait(310)
            assert await _reason(env, claim) == "ImageDrifted"
            bought = claim.metadata.labels[known.INSTANCE_TYPE]
            env.cloud.types = tuple(t for t in env.cloud.types if t.name != bought)
            await env.wait(2150)
            assert await _reason(env, claim) == "InstanceTypeNotFound"
            other = [{"key": known.INSTANCE_TYPE, "operator": "NotIn", "values": [bought]}]
            change = {"spec": {"template": {"spec": {"requirements": other}}}}
            await env.client.patch(NodePool, "default", merge(change))
            await env.wait(5)
            assert await _reason(env, claim) == "RequirementsDrifted"
            label = {"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}}
            await env.client.patch(NodePool, "default", merge(label))
            await env.wait(5)
            assert await _reason(env, claim) == "NodePoolDrifted"

    with capture_logs() as logs:
        run_virtual(scenario())
    assert [line["reason"] for line in logs if line["event"] == "marking drifted"] == ["ImageDrifted"]


def test_a_type_that_was_found_is_believed_in_for_half_an_hour() -> None:
    """The catalogue is not searched for each claim each five minutes."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.wait(3610)
            await env.wait(320)  # by now it was looked for, and found
            env.cloud.types = tuple(some_instance_types()[-1:])
            await env.wait(900)
            assert await _reason(env, claim) == ""
            await env.wait(1300)
            assert await _reason(env, claim) == "InstanceTypeNotFound"

    run_virtual(scenario())


@pytest.mark.parametrize("error", [NodeClaimNotFound("gone"), CreateError("Throttled", "slow down")])
def test_a_cloud_that_cannot_tell_drift_marks_nothing_and_holds_nothing_up(error: Exception) -> None:
    """Its error leaves Drifted alone; the claim becomes Consolidatable all the same."""

    async def scenario() -> None:
        async with environment() as env:

            async def fails(claim: NodeClaim) -> str:
                raise error

            env.operator.provider.drift_reason = fails  # type: ignore[method-assign]
            claim = await _working(env)
            await env.wait(120)
            assert await _reason(env, claim) == ""
            assert await _condition(env, claim, "Consolidatable") is not None

    run_virtual(scenario())


def test_a_claim_that_is_not_launched_is_not_drifted() -> None:
    """A mark from before is taken back."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.next_errors = [CreateError("No", "no")] * 1000
            await env.create(a_nodepool())
            await env.create(a_pod())
            claim = (await env.expect_claims(1))[0]
            env.cloud.drift[claim.name] = "ImageDrifted"
            drifted = {"type": "Drifted", "status": "True", "reason": "X", "message": ""}
            drifted["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            await env.client.patch(
                NodeClaim, claim.name, merge({"status": {"conditions": [drifted]}}), subresource="status"
            )
            await env.wait(10)
            assert await _condition(env, claim, "Drifted") is None

    run_virtual(scenario())


def test_claims_of_a_pool_that_is_gone_keep_their_marks() -> None:
    """Nothing is known of them any more, so nothing is changed."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            env.cloud.drift[claim.name] = "ImageDrifted"
            await env.expect_condition(claim.name, "Drifted", within=310)
            hold = {"metadata": {"finalizers": ["example.com/hold"], "ownerReferences": None}}
            await env.client.patch(NodeClaim, claim.name, merge(hold))
            await env.client.delete(NodePool, "default")
            env.cloud.drift.clear()
            await env.wait(400)
            assert await _reason(env, claim) == "ImageDrifted"

    run_virtual(scenario())


def _after(wait: str) -> Patch:
    return merge({"spec": {"disruption": {"consolidateAfter": wait}}})


@pytest.mark.parametrize(
    ("wait", "at_ten", "at_hundred"),
    [("0s", True, True), ("1m", False, True), ("Never", False, False)],
)
def test_consolidatable_follows_consolidate_after(wait: str, at_ten: bool, at_hundred: bool) -> None:
    """It counts from the last time a pod came or went; never means never."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.client.patch(NodePool, "default", _after(wait))
            await env.wait(10)
            assert (await _condition(env, claim, "Consolidatable") is not None) == at_ten
            await env.wait(90)
            assert (await _condition(env, claim, "Consolidatable") is not None) == at_hundred

    run_virtual(scenario())


def test_without_any_pod_event_consolidate_after_counts_from_initialization() -> None:
    """A node that nobody ever used has been idle since it was ready."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = 60.0
            await env.create(a_nodepool())
            await env.client.patch(NodePool, "default", _after("5m"))
            pod = await env.create(a_pod())
            claim = (await env.expect_claims(1))[0]
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            claim = await env.expect_condition(claim.name, "Initialized", within=90)
            assert claim.status.last_pod_event_time is None
            await env.wait(290)
            assert await _condition(env, claim, "Consolidatable") is None
            await env.wait(15)
            assert await _condition(env, claim, "Consolidatable") is not None

    run_virtual(scenario())


def test_drift_of_the_node_class_is_asked_for_when_that_changes() -> None:
    """Not only five minutes later."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.wait(2)
            env.cloud.drift[claim.name] = "ImageDrifted"
            note = merge({"metadata": {"annotations": {"image": "new"}}})
            await env.client.patch(KwokNodeClass, NODE_CLASS.name, note)
            await env.wait(2)
            assert await _reason(env, claim) == "ImageDrifted"

    run_virtual(scenario())


def test_a_pod_that_comes_takes_the_mark_away() -> None:
    """So does a longer wait that the pool is given; both are read from the pool as it is now."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.client.patch(NodePool, "default", _after("1m"))
            await env.wait(70)
            assert await _condition(env, claim, "Consolidatable") is not None
            pod = await env.create(a_pod("second", cpu="100m"))
            await env.expect_scheduled([pod])
            await env.wait(3)
            assert await _condition(env, claim, "Consolidatable") is None
            await env.expect_condition(claim.name, "Consolidatable", within=70)
            await env.client.patch(NodePool, "default", _after("1h"))
            await env.wait(3)
            assert await _condition(env, claim, "Consolidatable") is None
            await env.client.delete(Pod, "second", namespace="default")
            await env.client.patch(NodePool, "default", _after("0s"))
            await env.wait(3)
            assert await _condition(env, claim, "Consolidatable") is not None

    run_virtual(scenario())
