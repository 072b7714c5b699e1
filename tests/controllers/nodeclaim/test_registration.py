"""How a node that joined is tied to its claim, and who may keep it from taking pods."""

import pytest

from karpenter.apis import labels as known
from karpenter.apis.conditions import get
from karpenter.apis.core import Node, NodeSpec, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import Condition, ObjectMeta
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import CreateError, HookAnswer
from karpenter.kube.patch import merge
from karpenter.model import taints
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment
from karpenter.testing.fakeprovider import FakeCloud

OWN, STARTUP = Taint("example.com/own", "", "NoSchedule"), Taint("example.com/start", "", "NoSchedule")


class Hook:
    """Pending until told otherwise; `error` is raised instead of an answer."""

    def __init__(self, name: str, *, seconds: float | None = None) -> None:
        self.name = name
        self.seconds = seconds
        self.pending = True
        self.error: Exception | None = None
        self.labels: dict[str, str] = {}
        self.asked: list[str] = []

    async def on_registration(self, claim: NodeClaim, node: Node) -> HookAnswer:
        self.asked.append(node.name)
        if self.error is not None:
            raise self.error
        return HookAnswer(self.pending, self.seconds, labels=self.labels)


def _cloud(*hooks: Hook) -> FakeCloud:
    cloud = FakeCloud()
    cloud.hooks = list(hooks)
    return cloud


async def _claim(env: Environment, **pool: object) -> NodeClaim:
    await env.create(a_nodepool(**pool))  # type: ignore[arg-type]
    await env.create(a_pod(tolerations=[]))
    return (await env.expect_claims(1))[0]


async def _registered(env: Environment, claim: NodeClaim) -> Condition:
    found = get((await env.client.get(NodeClaim, claim.name)).status.conditions, "Registered")
    assert found is not None
    return found


async def _joined(env: Environment, claim: NodeClaim) -> Node:
    """Return the claim's node once it has our finalizer."""

    async def holds() -> bool:
        nodes = await env.nodes()
        return any(known.TERMINATION_FINALIZER in n.metadata.finalizers for n in nodes)

    await env.expect("the node is synced", holds)
    return await env.client.get(Node, claim.name)


def _keys(node: Node) -> list[str]:
    return sorted(t.key for t in node.spec.taints if not t.key.startswith("node.kubernetes.io/"))


def test_a_registered_node_has_what_its_claim_says() -> None:
    """Labels, annotations, taints, owner and finalizer; the unregistered taint is gone."""

    async def scenario() -> None:
        async with environment() as env:
            pool = {"labels": {"team": "blue"}, "annotations": {"note": "x"}, "startup_taints": [STARTUP]}
            claim = await _claim(env, **pool)
            await env.expect_condition(claim.name, "Registered")
            node = await env.client.get(Node, claim.name)
            assert node.metadata.labels["team"] == "blue"
            assert node.metadata.labels[known.REGISTERED] == "true"
            assert node.metadata.annotations["note"] == "x"
            assert node.metadata.owner_references[0].uid == claim.metadata.uid
            assert node.metadata.owner_references[0].block_owner_deletion
            assert known.TERMINATION_FINALIZER in node.metadata.finalizers
            assert _keys(node) == [STARTUP.key]

    run_virtual(scenario())


def test_a_startup_taint_that_was_taken_off_stays_off() -> None:
    """Taints are given once."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env, startup_taints=[STARTUP])
            await env.expect_condition(claim.name, "Registered")
            await env.client.patch(Node, claim.name, merge({"spec": {"taints": None}}))
            await env.expect_condition(claim.name, "Initialized")
            await env.wait(60)
            assert _keys(await env.client.get(Node, claim.name)) == []

    run_virtual(scenario())


@pytest.mark.parametrize("label", ["true", "false"])
def test_nodes_may_say_that_their_taints_are_their_own(label: str) -> None:
    """With karpenter.sh/do-not-sync-taints=true a node gets none of its claim's taints."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = None
            claim = await _claim(env, startup_taints=[STARTUP])
            claim = await env.expect_condition(claim.name, "Launched")
            meta = ObjectMeta(name=claim.name, labels={known.DO_NOT_SYNC_TAINTS: label})
            spec = NodeSpec(provider_id=claim.status.provider_id, taints=[taints.UNREGISTERED])
            await env.create(Node(metadata=meta, spec=spec))
            await env.expect_condition(claim.name, "Registered")
            found = _keys(await env.client.get(Node, claim.name))
            assert found == ([] if label == "true" else [STARTUP.key])

    run_virtual(scenario())


def test_a_node_without_the_unregistered_taint_is_told_and_registered() -> None:
    """Pods may have come too early: the claim gets an event."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.join_seconds = None
            claim = await _claim(env)
            claim = await env.expect_condition(claim.name, "Launched")
            spec = NodeSpec(provider_id=claim.status.provider_id)
            await env.create(Node(metadata=ObjectMeta(name=claim.name), spec=spec))
            await env.expect_condition(claim.name, "Registered")
            event = await env.expect_event("UnregisteredTaintMissing")
            assert event.involved_object.name == claim.name

    run_virtual(scenario())


def test_a_hook_keeps_pods_off_a_node_until_it_is_done() -> None:
    """The condition names who is waited for; the node has everything but leave to take pods."""

    async def scenario() -> None:
        first, second = Hook("first", seconds=5.0), Hook("second", seconds=5.0)
        async with environment(cloud=_cloud(first, second)) as env:
            claim = await _claim(env, startup_taints=[STARTUP])
            node = await _joined(env, claim)
            assert _keys(node) == [STARTUP.key, known.UNREGISTERED_TAINT]
            assert known.REGISTERED not in node.metadata.labels
            await env.wait(1)
            waiting = await _registered(env, claim)
            assert (waiting.status, waiting.reason) == ("Unknown", "RegistrationHookPending")
            assert waiting.message == "first, second"
            first.pending = False
            await env.wait(6)
            assert (await _registered(env, claim)).message == "second"
            second.pending = False
            await env.expect_condition(claim.name, "Registered", within=6)
            assert _keys(await env.client.get(Node, claim.name)) == [STARTUP.key]
            asked = len(second.asked)
            await env.wait(100)
            assert len(second.asked) == asked, "nobody is asked about a registered node"

    run_virtual(scenario())


def test_a_hook_that_fails_is_tried_again() -> None:
    """Its error is no leave; the others answer all the same."""

    async def scenario() -> None:
        bad, good = Hook("bad"), Hook("good")
        bad.error, good.pending = CreateError("Broken", "no"), False
        async with environment(cloud=_cloud(bad, good)) as env:
            claim = await _claim(env)
            await _joined(env, claim)
            await env.wait(1)
            assert (await _registered(env, claim)).message == "bad"
            bad.error, bad.pending = None, False
            await env.expect_condition(claim.name, "Registered", within=70)

    run_virtual(scenario())


def test_labels_of_a_hook_reach_claim_and_node() -> None:
    """What a hook finds out about a machine is known from the moment it takes pods."""

    async def scenario() -> None:
        hook = Hook("rack")
        hook.pending, hook.labels = False, {"example.com/rack": "r7"}
        async with environment(cloud=_cloud(hook)) as env:
            claim = await _claim(env)
            claim = await env.expect_condition(claim.name, "Registered")
            assert claim.metadata.labels["example.com/rack"] == "r7"
            node = await env.client.get(Node, claim.name)
            assert node.metadata.labels["example.com/rack"] == "r7"

    run_virtual(scenario())


def test_a_startup_taint_taken_off_while_a_hook_is_pending_stays_off() -> None:
    """The node is given its taints once, not at every look."""

    async def scenario() -> None:
        hook = Hook("slow", seconds=2.0)
        async with environment(cloud=_cloud(hook)) as env:
            claim = await _claim(env, startup_taints=[STARTUP])
            node = await _joined(env, claim)
            kept = [{"key": t.key, "effect": t.effect} for t in node.spec.taints if t.key != STARTUP.key]
            await env.client.patch(Node, node.name, merge({"spec": {"taints": kept}}))
            await env.wait(10)
            hook.pending = False
            await env.expect_condition(claim.name, "Registered", within=10)
            assert STARTUP.key not in _keys(await env.client.get(Node, claim.name))

    run_virtual(scenario())


def test_a_hook_that_never_ends_is_a_machine_that_never_registered() -> None:
    """The claim is given up after fifteen minutes, and its node and machine go with it."""

    async def scenario() -> None:
        async with environment(cloud=_cloud(Hook("stuck", seconds=60.0))) as env:
            claim = await _claim(env)
            await _joined(env, claim)
            await env.wait(910)
            assert (await env.client.get(NodeClaim, claim.name)).deleting
            assert (await env.client.get(Node, claim.name)).deleting

    run_virtual(scenario())


@pytest.mark.parametrize("initialized", [True, False])
def test_a_node_that_was_removed_by_force_and_comes_back_is_registered_again(initialized: bool) -> None:
    """It has its claim's labels, taints and finalizer again; startup taints only if it was still starting."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env, startup_taints=[STARTUP], labels={"team": "blue"})
            claim = await env.expect_condition(claim.name, "Registered")
            if initialized:
                await env.client.patch(Node, claim.name, merge({"spec": {"taints": None}}))
                claim = await env.expect_condition(claim.name, "Initialized")
            await env.client.patch(Node, claim.name, merge({"metadata": {"finalizers": None}}))
            await env.client.delete(Node, claim.name)
            spec = NodeSpec(provider_id=claim.status.provider_id, taints=[taints.UNREGISTERED])
            await env.create(Node(metadata=ObjectMeta(name="anew"), spec=spec))
            await env.wait(5)
            node = await env.client.get(Node, "anew")
            assert node.metadata.labels["team"] == "blue"
            assert node.metadata.labels[known.REGISTERED] == "true"
            assert (known.INITIALIZED in node.metadata.labels) == initialized
            assert known.TERMINATION_FINALIZER in node.metadata.finalizers
            assert _keys(node) == ([] if initialized else [STARTUP.key])
            assert (await env.client.get(NodeClaim, claim.name)).status.node_name == "anew"

    run_virtual(scenario())


def test_what_changes_on_a_claim_after_registration_stays_with_the_claim() -> None:
    """A registered node is its users': labels and annotations of the claim are not given to it again."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _claim(env)
            claim = await env.expect_condition(claim.name, "Initialized")
            change = {"metadata": {"labels": {"late": "x"}, "annotations": {"late": "x"}}}
            await env.client.patch(NodeClaim, claim.name, merge(change))
            await env.wait(10)
            node = await env.client.get(Node, claim.name)
            assert "late" not in node.metadata.labels
            assert "late" not in node.metadata.annotations

    run_virtual(scenario())
