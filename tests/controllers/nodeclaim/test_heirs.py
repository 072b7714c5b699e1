"""A place that a pod left for another zone goes to one like it that could not be bound otherwise."""

from karpenter.apis import labels
from karpenter.apis.core import Node, Pod, PodTemplateSpec, TemplateMeta
from karpenter.apis.meta import ObjectMeta
from karpenter.apis.workloads import ReplicaSet, WorkloadSpec
from karpenter.base.virtualtime import run_virtual
from karpenter.state.reservations import planned_pods
from karpenter.testing.builders import a_node, a_nodepool, a_pod, an_instance_type
from karpenter.testing.company import of_app, spread
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import FakeCloud

ZONES = ("zone-a", "zone-b", "zone-c")


async def join(env: Environment, *zones: str) -> None:
    """Let the machines in these zones join the cluster."""
    for instance in env.cloud.instances.values():
        there = any(n.spec.provider_id == instance.claim.status.provider_id for n in await env.nodes())
        instance.joined = there or instance.claim.metadata.labels[labels.ZONE] not in zones
    env.cloud.join_seconds = 0.0
    await env.wait(20)


async def zone_of(env: Environment) -> dict[str, str]:
    """Return the zone of each bound pod, by name."""
    zones = {n.name: n.metadata.labels[labels.ZONE] for n in await env.client.list(Node)}
    return {p.name: zones[p.spec.node_name] for p in await env.client.list(Pod) if p.spec.node_name}


async def planned_zones(env: Environment) -> dict[str, str]:
    """Return the zone of the claim that each pod is expected on, by name."""
    return {
        key.removeprefix("default/"): claim.metadata.labels[labels.ZONE]
        for claim in await env.claims()
        for key in planned_pods(claim)
    }


def web(replicas: int) -> ReplicaSet:
    """Return a ReplicaSet whose pods are spread over zones."""
    return ReplicaSet(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=WorkloadSpec(
            replicas=replicas,
            selector=of_app("web"),
            template=PodTemplateSpec(
                metadata=TemplateMeta(labels={"app": "web"}),
                spec=a_pod(cpu="1", labels={"app": "web"}, spec=spread("web")).spec,
            ),
        ),
    )


async def stray(env: Environment) -> dict[str, str]:
    """Buy a machine in each zone for two of six pods, let b's come late; return the zones planned at first.

    A full node in b makes that a zone that counts from the start.
    """
    room = {"cpu": "100m", "memory": "64Mi", "pods": "1"}
    await env.create(a_node("full", labels={labels.ZONE: "zone-b"}, capacity=room, allocatable=room))
    await env.create(a_nodepool())
    env.cloud.join_seconds = None
    await env.create(web(6))
    await env.expect_claims(3)
    await env.wait(10)
    before = await planned_zones(env)
    assert sorted(before.values()) == sorted(2 * ZONES)
    await join(env, "zone-a", "zone-c")
    return before


def a_cloud() -> FakeCloud:
    """Return a cloud whose machines have room for three of the pods."""
    return FakeCloud([an_instance_type("medium", cpu="3500m", memory="16Gi", zones=ZONES)])


def test_who_would_have_to_wait_gets_the_place_that_was_left() -> None:
    """While b's machine is to come one of its pods goes to another zone: one planned there goes to b."""

    async def scenario() -> None:
        async with environment(cloud=a_cloud()) as env:
            before = await stray(env)
            bound, after = await zone_of(env), await planned_zones(env)
            gone = [name for name, zone in bound.items() if before[name] == "zone-b" and zone != "zone-b"]
            heirs = [name for name, zone in after.items() if zone == "zone-b" and before[name] != zone]
            assert len(gone) == 1
            assert gone[0] not in after
            assert [before[name] for name in heirs] == [bound[gone[0]]]
            nominated = {p.name: p.status.nominated_node_name for p in await env.client.list(Pod)}
            assert nominated[heirs[0]] == ""
            await join(env, "zone-b")
            await env.wait(60)
            where = await zone_of(env)
            assert sorted(where.values()) == sorted(2 * ZONES)
            assert where[heirs[0]] == "zone-b"
            assert len(env.cloud.created) == 3

    run_virtual(scenario())


def test_a_restart_in_between_does_not_buy_for_the_heir() -> None:
    """The claims remember who is expected where."""

    async def scenario() -> None:
        async with environment(cloud=a_cloud()) as env:
            await stray(env)
            after = await planned_zones(env)
            await env.restart()
            await env.wait(30)
            assert await planned_zones(env) == after
            assert len(env.cloud.created) == 3

    run_virtual(scenario())
