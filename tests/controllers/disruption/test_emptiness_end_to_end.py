"""The disruption loop over an embedded cluster: which empty nodes go, when, and what keeps the others."""

from typing import Any

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node, Pod, PodTemplateSpec, Taint, TemplateMeta
from karpenter.apis.karpenter import Budget, Disruption, NodeClaim, NodePool
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.apis.workloads import DaemonSet, WorkloadSpec
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption, metrics, node, nodeclaim, nodepool, provisioning
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, disruption, metrics)
DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")


def a_pool(*budgets: Budget, after: str = "30s", **fields: Any) -> NodePool:
    """Return a pool that takes empty nodes away after `after`."""
    pool = a_nodepool(**fields)
    wanted = Disruption(consolidate_after=after, budgets=list(budgets) or [Budget(nodes="100%")])
    return replace(pool, spec=replace(pool.spec, disruption=wanted))


async def _node_with_a_pod(env: Environment, pool: NodePool) -> tuple[Node, Pod]:
    """Create the pool and a pod, and return both the node that was bought for it and the pod."""
    await env.create(pool)
    pod = await env.create(a_pod())
    await env.expect_scheduled([pod])
    claim = (await env.expect_claims(1))[0]
    await env.expect_condition(claim.name, "Initialized")
    return (await env.nodes())[0], pod


async def _gone_after(env: Environment, name: str, *, within: float = 120.0) -> float:
    """Wait until a Node is gone and return how long it took."""
    began = env.clock.now()

    async def gone() -> bool:
        return name not in {node.name for node in await env.nodes()}

    await env.expect(f"node {name} is gone", gone, within=within)
    return env.clock.now() - began


async def _still_there(env: Environment, name: str, *, after: float) -> Node:
    await env.wait(after)
    found = await env.client.get(Node, name)
    assert not found.deleting
    return found


def test_an_empty_node_goes_after_consolidate_after_and_a_second_look() -> None:
    """Not before 30 s + 15 s, and not long after; claim, machine and series go with it, and it is counted."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _node_with_a_pod(env, a_pool())
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await _still_there(env, target.name, after=44)
            took = await _gone_after(env, target.name) + 44
            assert 45 <= took <= 75, took
            await env.expect_claims(0)
            assert env.cloud.instances == {}
            wanted = {"decision": "delete", "reason": "empty", "consolidation_type": "empty"}
            assert env.metric("karpenter_voluntary_disruption_decisions_total", **wanted) == 1
            disrupted = {
                "reason": "empty",
                "nodepool": "default",
                "capacity_type": "spot",
                "consolidation_policy": "when_empty_or_underutilized",
                "termination_mode": "graceful",
            }
            assert env.metric("karpenter_nodeclaims_disrupted_total", **disrupted) == 1

    run_virtual(scenario())


def test_a_node_with_only_daemons_is_empty() -> None:
    """Pods of DaemonSets do not keep a node."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            labelled = TemplateMeta(labels={"app": "agent"})
            template = PodTemplateSpec(metadata=labelled, spec=a_pod(cpu="10m", memory="1Mi").spec)
            selector = LabelSelector(match_labels=labelled.labels)
            await env.create(
                DaemonSet(
                    metadata=ObjectMeta(name="agent", namespace="default"),
                    spec=WorkloadSpec(selector=selector, template=template),
                )
            )
            target, pod = await _node_with_a_pod(env, a_pool())
            daemons = [p.spec.node_name for p in await env.client.list(Pod) if p.name != pod.name]
            assert daemons == [target.name]
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await _gone_after(env, target.name)

    run_virtual(scenario())


def test_a_budget_of_nothing_keeps_the_node_and_says_so() -> None:
    """With budget 0 the node stays, the pool has an event; when the budget opens, it goes."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _node_with_a_pod(env, a_pool(Budget(nodes="0")))
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await _still_there(env, target.name, after=120)
            event = await env.expect_event("DisruptionBlocked")
            told = {e.involved_object.kind: e.message for e in await env.events("DisruptionBlocked")}
            assert told["NodePool"] == (
                "No allowed disruptions for disruption reason Empty due to blocking budget"
            )
            assert event.type == "Normal"
            budgets = {"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}}
            await env.client.patch(NodePool, "default", merge(budgets))
            await _gone_after(env, target.name)

    run_virtual(scenario())


def test_a_pod_that_comes_during_the_second_look_saves_the_node() -> None:
    """Between decision and action a new pod lands on the node: it stays, and is counted as dropped."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _node_with_a_pod(env, a_pool(after="0s"))
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)

            async def chosen() -> bool:
                found = env.cluster.verdicts.of(target.name).get(None)
                return found is not None and found.verdict.code == "queued"

            await env.expect("the node is chosen", chosen)
            await env.wait(5)
            late = await env.create(a_pod("late"))
            await env.expect_scheduled([late], within=10)
            found = await _still_there(env, target.name, after=60)
            assert not any(t.key == labels.DISRUPTED_TAINT for t in found.spec.taints)
            name = "karpenter_voluntary_disruption_failed_validations_total"
            assert env.metric(name, consolidation_type="empty") == 1
            assert len(env.cloud.created) == 1

    run_virtual(scenario())


def test_never_means_never() -> None:
    """`consolidateAfter: Never` keeps empty nodes, and an event tells why."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _node_with_a_pod(env, a_pool(after="Never"))
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await _still_there(env, target.name, after=1200)
            event = await env.expect_event("Unconsolidatable")
            assert event.message == 'NodePool "default" has consolidation disabled'

    run_virtual(scenario())


def test_do_not_disrupt_on_the_node_keeps_it() -> None:
    """The annotation on the Node holds while it is there."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _node_with_a_pod(env, a_pool(after="0s"))
            hold = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}}
            await env.client.patch(Node, target.name, merge(hold))
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await _still_there(env, target.name, after=120)
            messages = {e.message for e in await env.events("DisruptionBlocked")}
            assert 'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation' in messages
            release = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: None}}}
            await env.client.patch(Node, target.name, merge(release))
            await _gone_after(env, target.name)

    run_virtual(scenario())


def test_a_nominated_node_is_left_alone() -> None:
    """Pods were promised to it: it stays while that holds."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _node_with_a_pod(env, a_pool(after="0s"))
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            for _ in range(12):
                env.operator.cluster.nominate(target.name)
                await _still_there(env, target.name, after=10)
            await _gone_after(env, target.name)

    run_virtual(scenario())


def test_what_a_dead_operator_left_behind_is_cleaned_up() -> None:
    """Our taint and the reason go off a node that nobody is disrupting, and it takes pods again."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, _ = await _node_with_a_pod(env, a_pool())
            await env.operator.kill()
            claim = (await env.claims())[0]
            await env.client.patch(Node, target.name, merge({"spec": {"taints": [DISRUPTED]}}))
            left = {
                "type": "DisruptionReason",
                "status": "True",
                "reason": "Empty",
                "message": "Empty",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            conditions = [*claim.status.conditions, left]
            await env.client.patch(
                NodeClaim, claim.name, merge({"status": {"conditions": conditions}}), subresource="status"
            )
            await env.restart()
            await env.wait(20)
            found = await env.client.get(Node, target.name)
            assert not any(t.key == labels.DISRUPTED_TAINT for t in found.spec.taints)
            claim = await env.client.get(NodeClaim, claim.name)
            assert not any(c.type == "DisruptionReason" for c in claim.status.conditions)

    run_virtual(scenario())


def test_a_machine_bought_for_pods_is_not_empty_while_they_are_on_their_way() -> None:
    """A node whose planned pod is not bound yet stays, however eager the pool is."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            env.cloud.join_seconds = 40.0
            await env.create(a_pool(after="0s"))
            pod = await env.create(a_pod())
            await env.expect_scheduled([pod], within=120)
            await env.wait(60)
            assert len(env.cloud.created) == 1
            assert len(await env.claims()) == 1

    run_virtual(scenario())


def _is_drained(claim: NodeClaim) -> bool:
    return is_true(claim.status.conditions, "InstanceTerminating")


def test_the_budget_holds_over_several_passes() -> None:
    """Of four empty nodes two drain at a time with budget 2, and in the end all are gone.

    Once its machine is being ended, a drained node counts no more.
    """

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            env.cloud.delete_seconds = 20.0
            await env.create(a_pool(Budget(nodes="2"), after="0s"))
            pods = [await env.create(a_pod(f"p{i}", cpu="9", memory="1Gi")) for i in range(4)]
            await env.expect_scheduled(pods)
            for claim in await env.expect_claims(4):
                await env.expect_condition(claim.name, "Initialized")
            for pod in pods:
                await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            most = 0
            for _ in range(600):
                nodes = await env.nodes()
                most = max(most, sum(c.deleting and not _is_drained(c) for c in await env.claims()))
                if not nodes:
                    break
                await env.wait(0.5)
            assert (await env.nodes(), most) == ([], 2)

    run_virtual(scenario())


def test_an_unknown_catalogue_leaves_nodes_alone() -> None:
    """While the cloud offers nothing for a pool, its nodes are not touched."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            target, pod = await _node_with_a_pod(env, a_pool(after="0s"))
            types, env.cloud.types = env.cloud.types, ()
            await env.client.delete(Pod, pod.name, namespace=pod.namespace)
            await _still_there(env, target.name, after=60)
            env.cloud.types = types
            await _gone_after(env, target.name)
            try:
                await env.client.get(Node, target.name)
            except NotFound:
                return
            raise AssertionError("the node is still there")

    run_virtual(scenario())
