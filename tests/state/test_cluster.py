"""The cluster in memory: what rows say, and that nothing depends on the order in which news came."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.core import Node, Pod, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import ObjectMeta, OwnerReference
from karpenter.apis.workloads import (
    CSINode,
    CSINodeAllocatable,
    CSINodeDriver,
    CSINodeSpec,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
)
from karpenter.base.clock import ManualClock
from karpenter.base.quantity import resources_of
from karpenter.base.randomness import seeded
from karpenter.kube.client import Client
from karpenter.kube.informer import Cache
from karpenter.kube.transport import TransportError
from karpenter.state.cluster import Cluster
from karpenter.state.reservations import PLANNED_PODS
from karpenter.testing.builders import a_node, a_nodeclaim, a_pod, some_instance_types
from karpenter.testing.fakeprovider import FakeCloud, FakeProvider


class Nowhere:
    """A transport that reaches nothing: these tests feed the informers themselves."""

    async def request(self, *_: Any, **__: Any) -> Any:
        raise TransportError("not reachable")

    async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        raise TransportError("not reachable")
        yield b""

    async def close(self) -> None:
        return None


class World:
    """A cluster and the informers that feed it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        client = Client(Nowhere())
        self.cache = Cache(client, clock=self.clock, rng=seeded(1))
        self.provider = FakeProvider(FakeCloud(), client, self.clock)
        self.cluster = Cluster(self.cache, clock=self.clock, provider=self.provider)

    def put(self, *objects: Any) -> None:
        for obj in objects:
            self.cache.informer(type(obj)).apply("MODIFIED", obj)

    def drop(self, obj: Any) -> None:
        self.cache.informer(type(obj)).apply("DELETED", obj)

    def fresh(self) -> Cluster:
        """Return a cluster that learns everything at once."""
        return Cluster(self.cache, clock=self.clock, provider=self.provider)


def test_a_claim_speaks_until_its_node_is_registered() -> None:
    """Before, its labels and taints count; afterwards, the node's."""
    world = World()
    claim = a_nodeclaim(
        labels={"team": "claim"},
        provider_id="p",
        taints=[Taint(key="dedicated", effect="NoSchedule")],
        allocatable={"cpu": "4"},
    )
    node = a_node(labels={"team": "node"}, provider_id="p", taints=[Taint(key="other", effect="NoSchedule")])
    world.put(claim, node)
    row = world.cluster.nodes()[0]
    assert (row.name, row.labels["team"], [t.key for t in row.taints]) == ("node", "claim", ["dedicated"])
    registered = {**node.metadata.labels, known.REGISTERED: "true", known.NODEPOOL: "default"}
    world.put(replace(node, metadata=replace(node.metadata, labels=registered)))
    row = world.cluster.nodes()[0]
    assert (row.labels["team"], [t.key for t in row.taints]) == ("node", ["other"])
    assert row.registered
    assert not row.initialized


@pytest.mark.parametrize(
    ("initialized", "cpu", "gpu"), [(False, 4000, 2), (True, 4000, 0)], ids=["starting", "initialized"]
)
def test_a_claim_fills_in_what_its_node_does_not_have_yet(initialized: bool, cpu: int, gpu: int) -> None:
    """Devices that have not shown up count until the node is initialized."""
    world = World()
    size = {"cpu": "4", "gpu": "2"}
    labels = {known.REGISTERED: "true", **({known.INITIALIZED: "true"} if initialized else {})}
    world.put(
        a_nodeclaim(provider_id="p", capacity=size, allocatable=size),
        a_node(provider_id="p", labels=labels, capacity={"cpu": "4", "gpu": "0"}),
    )
    row = world.cluster.nodes()[0]
    assert (row.allocatable["cpu"], row.allocatable["gpu"], row.capacity["nodes"]) == (cpu, gpu, 1)


def test_startup_and_ephemeral_taints_do_not_count_until_initialized() -> None:
    """They will go by themselves."""
    world = World()
    startup = Taint(key="starting", effect="NoSchedule")
    unready = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
    stays = Taint(key="stays", effect="NoSchedule")
    world.put(
        a_nodeclaim(provider_id="p", startup_taints=[startup]),
        a_node(provider_id="p", labels={known.REGISTERED: "true"}, taints=[startup, unready, stays]),
    )
    assert world.cluster.nodes()[0].taints == (stays,)


def _planned(*pods: str, **more: Any) -> NodeClaim:
    expressions = [(known.INSTANCE_TYPE, "In", ["general-4", "general-8"])]
    return a_nodeclaim(
        annotations={PLANNED_PODS: ",".join(pods)},
        requirements=expressions,
        requests={"cpu": "3"},
        **more,
    )


def test_a_created_claim_counts_before_the_watch_tells() -> None:
    """It is a row, sized by the least of its types, its pods are on it and not pending."""
    world = World()
    pods = [a_pod(f"p{i}") for i in range(4)]
    world.put(*pods)
    world.cluster.note_catalogue("default", tuple(some_instance_types()))
    world.cluster.note_claim_created(_planned("default/p0", "default/p1"))
    snapshot = world.cluster.snapshot()
    row = snapshot.nodes[0]
    assert row.allocatable["cpu"] == 4000
    assert [p.name for p in row.pods] == ["p0", "p1"]
    assert row.requested["cpu"] == 2000
    assert [p.name for p in snapshot.pending] == ["p2", "p3"]
    assert world.cluster.pool_commitment("default")["cpu"] == 8000
    assert world.cluster.pool_resources("default")["cpu"] == 4000


def test_without_a_catalogue_a_claim_is_as_big_as_what_it_asks_for() -> None:
    """So it serves its own pods only."""
    world = World()
    world.cluster.note_claim_created(_planned())
    assert world.cluster.nodes()[0].allocatable == {"cpu": 3000}


@pytest.mark.parametrize("how", ["deleting", "deleted", "forgotten"])
def test_pods_are_pending_again_when_their_claim_fails(how: str) -> None:
    """At once, whichever way the claim goes."""
    world = World()
    claim = _planned("default/p0")
    world.put(a_pod("p0"))
    world.cluster.note_claim_created(claim)
    assert not world.cluster.snapshot().pending
    if how == "forgotten":
        world.cluster.forget_created(claim.name)
    else:
        world.put(claim)
        gone = replace(claim, metadata=replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
        world.put(gone)
        if how == "deleted":
            world.drop(gone)
    assert [p.name for p in world.cluster.snapshot().pending] == ["p0"]


def test_a_reservation_ends_when_its_pod_runs_elsewhere() -> None:
    """Then the machine on its way has room for others."""
    world = World()
    other = a_node("other", labels={known.INITIALIZED: "true"})
    world.put(other, a_pod("p0"), _planned("default/p0"))
    world.put(a_pod("p0", node_name="other"))
    by_name = {row.name: row for row in world.cluster.nodes()}
    assert [p.name for p in by_name["other"].pods] == ["p0"]
    assert by_name["claim"].pods == ()


def test_a_reservation_ends_some_time_after_the_node_is_ready() -> None:
    """The scheduler had its chance; the pod is planned for again."""
    world = World()
    claim = _planned("default/p0", provider_id="p", conditions=["Launched", "Registered", "Initialized"])
    stamped = [replace(c, last_transition_time="2026-01-01T00:00:00Z") for c in claim.status.conditions]
    world.put(a_pod("p0"), replace(claim, status=replace(claim.status, conditions=stamped)))
    assert not world.cluster.snapshot().pending
    world.clock.advance(world.cluster.nomination_seconds + 1)
    assert len(world.cluster.snapshot().pending) == 1


def test_a_node_that_is_here_before_its_claim_is_told_to_be_launched_is_not_another_machine() -> None:
    """Unregistered, its claim stands for it; registered, they are one row."""
    world = World()
    claim = _planned()
    labels = {known.NODEPOOL: "default", known.INSTANCE_TYPE: "m"}
    young = a_node(
        provider_id="p", labels=labels, taints=[Taint(key=known.UNREGISTERED_TAINT, effect="NoExecute")]
    )
    world.put(claim, young)
    assert [(row.name, row.node) for row in world.cluster.nodes()] == [("claim", None)]
    owner = OwnerReference(kind="NodeClaim", name="claim", uid=claim.metadata.uid)
    grown = a_node(provider_id="p", labels={**labels, known.REGISTERED: "true"})
    grown = replace(grown, metadata=replace(grown.metadata, owner_references=[owner]))
    world.put(grown)
    assert [(row.node, row.claim) for row in world.cluster.nodes()] == [(grown, claim)]
    launched = replace(claim, status=replace(claim.status, provider_id="p"))
    world.put(launched)
    assert [(row.node, row.claim) for row in world.cluster.nodes()] == [(grown, launched)]
    world.drop(grown)
    assert [(row.node, row.claim) for row in world.cluster.nodes()] == [(None, launched)]


def test_a_mark_takes_capacity_out_and_back() -> None:
    """Marked machines count neither for their pool nor as capacity."""
    world = World()
    world.put(a_nodeclaim(provider_id="p", capacity={"cpu": "4"}, allocatable={"cpu": "4"}))
    assert world.cluster.pool_resources("default") == {**resources_of({"cpu": "4"}), "nodes": 1}
    world.cluster.mark_for_deletion(["p"])
    assert world.cluster.nodes()[0].marked_for_deletion
    assert world.cluster.pool_resources("default") == {}
    world.cluster.unmark_for_deletion(["p"])
    assert not world.cluster.nodes()[0].marked_for_deletion


def test_a_nomination_follows_the_machine_from_claim_to_node() -> None:
    """A promise made to the claim holds for its node."""
    world = World()
    claim = _planned()
    world.put(claim)
    world.cluster.nominate("claim")
    until = world.cluster.nodes()[0].nominated_until
    assert until == world.clock.now() + 20.0
    world.put(replace(claim, status=replace(claim.status, provider_id="p")), a_node(provider_id="p"))
    assert [(row.name, row.nominated_until) for row in world.cluster.nodes()] == [("node", until)]


def test_consolidation_looks_again_every_five_minutes() -> None:
    """And whenever something changed."""
    world = World()
    first = world.cluster.unconsolidated_at
    world.clock.advance(100)
    assert world.cluster.unconsolidated_at == first
    world.put(a_node())
    assert world.cluster.unconsolidated_at == first + 100
    world.clock.advance(301)
    assert world.cluster.unconsolidated_at == world.clock.now()


_NAMES = ("a", "b", "c")
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["pod", "node", "owned", "claim", "launch", "drop-pod", "drop-node", "drop-claim", "look"]
        ),
        st.sampled_from(_NAMES),
        st.sampled_from(["", *_NAMES]),
    ),
    max_size=40,
)


def _step(world: World, what: str, name: str, other: str) -> None:
    match what:
        case "pod":
            world.put(a_pod(name, node_name=other))
        case "node":
            world.put(a_node(name, provider_id=other, labels={known.REGISTERED: "true"} if other else {}))
        case "owned":
            owner = OwnerReference(kind="NodeClaim", name=f"claim-{name}", uid=f"uid-nodeclaim-claim-{name}")
            node = a_node(name, provider_id=name, labels={known.REGISTERED: "true"})
            world.put(replace(node, metadata=replace(node.metadata, owner_references=[owner])))
        case "claim":
            world.put(a_nodeclaim(f"claim-{name}", annotations={PLANNED_PODS: f"default/{other or name}"}))
        case "launch":
            world.put(
                a_nodeclaim(
                    f"claim-{name}",
                    annotations={PLANNED_PODS: f"default/{other or name}"},
                    provider_id=name,
                    allocatable={"cpu": "4"},
                )
            )
        case "look":
            world.cluster.nodes()
        case _:
            kind: Any = {"drop-pod": Pod, "drop-node": Node, "drop-claim": NodeClaim}[what]
            key = f"claim-{name}" if kind is NodeClaim else name
            found = world.cache.informer(kind).get(key, "default" if kind is Pod else "")
            if found is not None:
                world.drop(found)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS)
def test_rows_made_step_by_step_are_those_made_at_once(steps: list[tuple[str, str, str]]) -> None:
    """After any history, the rows equal those of a cluster that sees only its end, but for who holds a pod
    that two claims name; and no unbound pod is on two rows, or both placed and pending."""
    world = World()
    for step in steps:
        _step(world, *step)
    snapshot, fresh = world.cluster.snapshot(), world.fresh().snapshot()
    bare = [(r.name, r.provider_id, r.labels, r.allocatable, r.registered) for r in snapshot.nodes]
    assert bare == [(r.name, r.provider_id, r.labels, r.allocatable, r.registered) for r in fresh.nodes]
    bound = [[p.key for p in r.pods if p.spec.node_name] for r in snapshot.nodes]
    assert bound == [[p.key for p in r.pods if p.spec.node_name] for r in fresh.nodes]
    expected = [p.key for r in snapshot.nodes for p in r.pods if not p.spec.node_name]
    pending = [p.key for p in snapshot.pending]
    assert len(set(expected)) == len(expected)
    assert not set(expected) & set(pending)
    assert sorted(p.key for p in fresh.pending) == sorted(pending)
    unbound = {p.key for p in world.cache.informer(Pod).items() if not p.spec.node_name}
    assert set(pending) | set(expected) <= unbound


def test_a_row_knows_how_many_volumes_its_drivers_attach() -> None:
    """From the CSINode of the node's name, whichever comes first, and anew whenever it changes."""

    def csi_node(**limits: int | None) -> CSINode:
        drivers = [
            CSINodeDriver(name=name, allocatable=None if count is None else CSINodeAllocatable(count=count))
            for name, count in limits.items()
        ]
        return CSINode(metadata=ObjectMeta(name="node"), spec=CSINodeSpec(drivers=drivers))

    world = World()
    world.put(csi_node(ebs=25, efs=None))
    world.put(a_node())
    assert world.cluster.nodes()[0].volume_limits == {"ebs": 25}
    world.put(csi_node(ebs=24, disk=8))
    assert world.cluster.nodes()[0].volume_limits == {"disk": 8, "ebs": 24}
    world.drop(csi_node())
    assert world.cluster.nodes()[0].volume_limits == {}


def test_a_row_knows_what_is_attached() -> None:
    """By the VolumeAttachments of the node, until they are gone; those of other nodes do not count."""

    def attachment(name: str, node: str, volume: str | None) -> VolumeAttachment:
        source = VolumeAttachmentSource(persistent_volume_name=volume)
        spec = VolumeAttachmentSpec(node_name=node, attacher="ebs", source=source)
        return VolumeAttachment(metadata=ObjectMeta(name=name), spec=spec)

    world = World()
    world.put(a_node(), attachment("x", "node", "pv-2"), attachment("y", "node", "pv-1"))
    world.put(attachment("z", "other", "pv-3"), attachment("inline", "node", None))
    assert world.cluster.nodes()[0].attached_volumes == (("ebs", "pv-1"), ("ebs", "pv-2"))
    world.drop(attachment("x", "node", "pv-2"))
    assert world.cluster.nodes()[0].attached_volumes == (("ebs", "pv-1"),)
