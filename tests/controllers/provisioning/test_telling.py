"""What users read: reasons and remedies in events, and how often."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis.core import Event, PodResourceClaim, Taint, TopologySpreadConstraint
from karpenter.apis.karpenter import NodePool, NodePoolStatus
from karpenter.apis.meta import Condition, LabelSelector
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.provisioning.words import failure_text, idle_text
from karpenter.kube.patch import merge
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.testing.builders import a_nodepool, a_pod, some_pods
from karpenter.testing.environment import environment
from karpenter.testing.fakeprovider import FakeCloud

ZONE = "topology.kubernetes.io/zone"
SPREAD = TopologySpreadConstraint(
    max_skew=1,
    topology_key=ZONE,
    when_unsatisfiable="DoNotSchedule",
    label_selector=LabelSelector(match_labels={"app": "web"}),
)


async def _failure(pools: list[NodePool], **pod: Any) -> str:
    """Return the message that a pod gets from an operator with these pools."""
    async with environment() as env:
        await env.create_all(pools)
        await env.create(a_pod(**pod))
        event = await env.expect_event("FailedScheduling")
        assert event.involved_object.kind == "Pod"
        assert event.type == "Warning"
        prefix = "Failed to schedule pod, "
        assert event.message.startswith(prefix)
        return event.message.removeprefix(prefix)


@pytest.mark.parametrize(
    ("pools", "pod", "words"),
    [
        pytest.param(
            [a_nodepool()],
            {"cpu": "1000"},
            [
                "nodepool/default: no instance type has enough resources",
                "cpu=1000",
                "(to fix: request at most",
            ],
            id="too large",
        ),
        pytest.param(
            [a_nodepool(), a_nodepool("second")],
            {"memory": "10Ti"},
            ["nodepool/second, nodepool/default: no instance type has enough resources", "memory, or allow"],
            id="too large for both pools, said once",
        ),
        pytest.param(
            [a_nodepool()],
            {"node_selector": {"team": "blue"}},
            [
                'nodepool/default: incompatible requirements, label "team"',
                "let the NodePool define the label",
            ],
            id="a selector nobody satisfies",
        ),
        pytest.param(
            [a_nodepool(taints=[Taint(key="dedicated", value="x", effect="NoSchedule")])],
            {},
            ["nodepool/default: did not tolerate taint dedicated=x:NoSchedule", "(to fix: add a toleration"],
            id="a taint",
        ),
        pytest.param(
            [a_nodepool(limits={"cpu": "1"})],
            {"cpu": "2"},
            ["nodepool/default: all available instance types exceed limits", "(to fix: raise limits.cpu by"],
            id="limits",
        ),
        pytest.param(
            [a_nodepool()],
            {
                "labels": {"app": "web"},
                "node_selector": {ZONE: "zone-z"},
                "spec": {"topology_spread_constraints": [SPREAD]},
            },
            [ZONE],
            id="a spread over a zone that is not there",
        ),
        pytest.param(
            [a_nodepool()],
            {"node_selector": {ZONE: "zone-z"}},
            [f"(to fix: change {ZONE} in the pod's node selection, there are: zone-a, zone-b)"],
            id="a zone that is not there",
        ),
        pytest.param(
            [a_nodepool()],
            {"requests": {"nvidia.com/gpu": "1"}},
            ["(to fix: allow instance types that have nvidia.com/gpu: none of these has)"],
            id="a resource that no type has",
        ),
        pytest.param([], {}, ["no nodepools found"], id="no pool at all"),
    ],
)
def test_a_failure_names_pool_reason_and_remedy(
    pools: list[NodePool], pod: dict[str, Any], words: list[str]
) -> None:
    """Each kind of failure is told in words a user can act on."""
    message = run_virtual(_failure(pools, **pod))
    for each in words:
        assert each in message, message
    assert "nodepool: '" not in message, "a pool is named once"


def test_a_pool_that_is_not_ready_is_named() -> None:
    """A pool whose node class is missing explains itself in the pod's event."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            missing = {"spec": {"template": {"spec": {"nodeClassRef": {"name": "nowhere"}}}}}
            await env.client.patch(NodePool, "default", merge(missing))
            await env.create(a_pod())
            message = (await env.expect_event("FailedScheduling")).message
            assert message == (
                "Failed to schedule pod, nodepool/default: is not ready, NodeClassReady is False "
                "(NodeClassNotFound: NodeClass not found on cluster)"
            )

    run_virtual(scenario())


def test_nominations_are_limited_and_failures_are_not_repeated() -> None:
    """Ten nominations at once and five a second are enough; a failure is said again after five minutes."""

    async def scenario() -> list[Event]:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.create_all(some_pods(60))
            lost = await env.create(a_pod("lost", cpu="1000"))
            await env.wait(200)
            nominated = await env.events("Nominated")
            assert 10 <= len(nominated) <= 20
            assert len({e.involved_object.name for e in nominated}) == len(nominated)
            assert len(await env.events("FailedScheduling")) == 1
            await env.wait(150)
            again = await env.events("FailedScheduling")
            assert [e.involved_object.name for e in again] == [lost.name] * 2
            return again

    run_virtual(scenario())


def test_a_pool_without_any_type_says_so_once_a_minute() -> None:
    """The pool gets an event of its own when its requirements leave nothing to buy."""

    async def scenario() -> None:
        async with environment() as env:
            nothing = [("node.kubernetes.io/instance-type", "In", ["no-such-type"])]
            await env.create(a_nodepool(requirements=nothing))
            await env.create(a_pod())
            event = await env.expect_event("NoCompatibleInstanceTypes")
            assert (event.involved_object.kind, event.involved_object.name) == ("NodePool", "default")
            await env.wait(90)
            assert len(await env.events("NoCompatibleInstanceTypes")) == 2

    run_virtual(scenario())


def test_text_of_mixed_refusals() -> None:
    """Refusals keep their order; equal ones share a line; pools that may not buy come last."""
    failure = Unschedulable(
        pod="default/pod",
        refusals=(
            Refusal(place="nodepool/a", constraint="taints", message="no", remedy="tolerate"),
            Refusal(place="nodepool/b", constraint="resources", message="too large"),
            Refusal(place="nodepool/c", constraint="taints", message="no", remedy="tolerate"),
        ),
    )
    condition = Condition(type="ValidationSucceeded", status="False", reason="Bad", message="label x")
    broken = replace(a_nodepool("d"), status=NodePoolStatus(conditions=[condition]))
    assert failure_text(failure, [broken]) == (
        "nodepool/a, nodepool/c: no (to fix: tolerate); nodepool/b: too large; "
        "nodepool/d: is not ready, ValidationSucceeded is False (Bad: label x)"
    )


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (a_nodepool("a"), ""),
        (
            a_nodepool("a", replicas=3),
            "nodepool/a: is static (spec.replicas is set), it buys nothing for pods",
        ),
        (a_nodepool("a", ready=False), "nodepool/a: is not ready yet"),
    ],
)
def test_why_a_pool_is_not_asked(pool: NodePool, text: str) -> None:
    """Ready pools need no excuse; the others have one each."""
    assert idle_text(pool) == text


def test_a_pool_whose_cloud_offers_nothing_is_named() -> None:
    """An empty catalogue is told as what it is, not as if there were no pool."""

    async def scenario() -> None:
        async with environment(cloud=FakeCloud(types=[])) as env:
            await env.create(a_nodepool())
            await env.create(a_pod())
            message = (await env.expect_event("FailedScheduling")).message
            assert message.endswith("nodepool/default: its cloud offers no instance types at present")

    run_virtual(scenario())


def test_a_pool_whose_cloud_fails_is_named() -> None:
    """A cloud that cannot tell what it sells is not mistaken for a missing pool; it is asked again."""

    async def scenario() -> None:
        async with environment() as env:
            ask = env.operator.provider.instance_types

            async def fails(pool: NodePool) -> Any:
                raise RuntimeError("throttled")

            env.operator.provider.instance_types = fails  # type: ignore[method-assign]
            await env.create(a_nodepool())
            pod = await env.create(a_pod())
            message = (await env.expect_event("FailedScheduling")).message
            assert message.endswith("nodepool/default: its cloud offers no instance types at present")
            env.operator.provider.instance_types = ask  # type: ignore[method-assign]
            await env.expect_scheduled([pod])

    run_virtual(scenario())


def test_pods_with_resource_claims_are_told_so_and_get_no_machine() -> None:
    """Dynamic resource allocation is not planned for: an event says so, and pods beside it are served."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            claims = [PodResourceClaim(name="gpu", resource_claim_name="gpu")]
            (odd,) = await env.create_all([a_pod("odd", spec={"resource_claims": claims})])
            plain = await env.create_all(some_pods(1))
            await env.expect_provisioned(plain, claims=1)
            event = await env.expect_event("FailedScheduling")
            assert event.involved_object.name == "odd"
            assert "Dynamic Resource Allocation requirements that are not yet supported" in event.message
            await env.expect_not_scheduled([odd])
            assert len(await env.claims()) == 1

    run_virtual(scenario())


def test_whether_a_pod_was_meant_for_a_healthy_pool_is_noted() -> None:
    """When it was first placed is noted always; when in a healthy pool, once nodes of it register."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            noted = []
            for name in ("before", "after"):
                pod = await env.create(a_pod(name, cpu="7"))
                await env.wait(2)
                times = env.cluster.pod_times.get(pod.key)
                assert times is not None
                assert times.schedulable is not None
                noted.append(times.healthy_pool is not None)
                await env.expect_scheduled([pod])
            assert noted == [False, True]

    run_virtual(scenario())
