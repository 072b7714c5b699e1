"""What users hear of consolidation: events on nodes, claims and pools, and counters, for every outcome."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import Budget, Disruption, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption, node, nodeclaim, nodepool, provisioning
from karpenter.controllers.context import Settings
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, disruption)
SEARCHES = pytest.mark.parametrize("search", ["sets", "upstream"])
METRIC = "karpenter_voluntary_disruption_"


def _settings(search: str) -> Settings:
    return Settings(consolidation_search=search)


def _a_pool(policy: str, budget: str = "100%") -> NodePool:
    pool = a_nodepool(requirements=[(labels.CAPACITY_TYPE, "In", ["on-demand"])])
    wanted = Disruption(consolidate_after="10s", consolidation_policy=policy, budgets=[Budget(nodes=budget)])
    return replace(pool, spec=replace(pool.spec, disruption=wanted))


async def _too_large_a_node(env: Environment, pool: NodePool) -> Pod:
    """Have a node for two pods, take the large one away, and return the small one."""
    await env.create(pool)
    large, small = await env.create_all([a_pod("large", cpu="6"), a_pod("small", cpu="1")])
    await env.expect_scheduled([large, small])
    (claim,) = await env.expect_claims(1)
    await env.expect_condition(claim.name, "Initialized")
    await env.wait(20)
    await env.client.delete(Pod, "large", namespace=large.namespace)
    return small


async def _told(env: Environment, reason: str) -> dict[str, str]:
    """Return what was said, by kind of the object."""
    await env.expect_event(reason, within=120)
    return {event.involved_object.kind: event.message for event in await env.events(reason)}


@SEARCHES
def test_a_consolidation_is_told_and_counted(search: str) -> None:
    """Node and claim get the command and what it saves; decisions count, also by pool."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=_settings(search)) as env:
            await _too_large_a_node(env, _a_pool("WhenEmptyOrUnderutilized"))
            told = await _told(env, "ConsolidationCandidate")
            assert sorted(told) == ["Node", "NodeClaim"]
            assert set(told.values()) == {
                f"Consolidation candidate: replace: [{(await env.nodes())[0].name}] -> [1 replacement(s)] "
                "(savings: $0.42)"
            }
            await env.wait(60)
            labels_ = {"decision": "replace", "reason": "underutilized", "consolidation_type": "single"}
            assert env.metric(f"{METRIC}decisions_total", **labels_) == 1
            assert env.metric(f"{METRIC}decisions_by_nodepool_total", nodepool="default", **labels_) == 1
            assert not await env.events("ConsolidationRejected")

    run_virtual(scenario())


@SEARCHES
def test_a_consolidation_that_does_not_hold_is_told_with_its_cause(search: str) -> None:
    """A pod is protected while the second look is waited for: churn, on node and claim, and counted."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=_settings(search)) as env:
            small = await _too_large_a_node(env, _a_pool("WhenEmptyOrUnderutilized"))
            await _told(env, "ConsolidationCandidate")
            protect = merge({"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}})
            await env.client.patch(Pod, small.name, protect, namespace=small.namespace)
            told = await _told(env, "ConsolidationRejected")
            assert sorted(told) == ["Node", "NodeClaim"]
            assert all("Consolidation rejected: replace: [" in text for text in told.values())
            assert all("reason: churn (savings: $0.42)" in text for text in told.values())
            assert env.metric(f"{METRIC}failed_validations_total", consolidation_type="single") == 1
            await env.expect_claims(1)

    run_virtual(scenario())


@SEARCHES
def test_a_pool_that_weighs_moves_tells_the_score(search: str) -> None:
    """A Balanced pool's approval is an event with the score and its parts, and is counted."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=_settings(search)) as env:
            await _too_large_a_node(env, _a_pool("Balanced"))
            told = await _told(env, "ConsolidationApproved")
            assert sorted(told) == ["Node", "NodeClaim"]
            assert all(
                text.startswith("score 0.75 >= threshold 0.50 (k: 2, savings 75.") for text in told.values()
            )
            moves = {"decision": "approved", "nodepool": "default", "policy": "Balanced"}
            assert env.metric("karpenter_consolidation_moves_total", **moves) >= 1

    run_virtual(scenario())


@SEARCHES
def test_a_budget_that_keeps_a_node_from_consolidation_is_told(search: str) -> None:
    """The pool hears for which reason it allows nothing; the node stays, and is looked at again later."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS, settings=_settings(search)) as env:
            await _too_large_a_node(env, _a_pool("WhenEmptyOrUnderutilized", budget="0"))
            told = await _told(env, "DisruptionBlocked")
            await env.wait(60)
            told = await _told(env, "DisruptionBlocked")
            text = "No allowed disruptions for disruption reason Underutilized due to blocking budget"
            assert told["NodePool"] == text
            assert env.metric(f"{METRIC}eligible_nodes", reason="underutilized") == 1
            (claim,) = await env.expect_claims(1)
            kept = env.cluster.verdicts.of(claim.status.node_name).values()
            assert "budget" in {each.verdict.code for each in kept}
            assert "nominated" not in {each.verdict.code for each in kept}  # as it was at first
            more = {"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}}
            await env.client.patch(NodePool, "default", merge(more))
            await _told(env, "ConsolidationCandidate")

    run_virtual(scenario())
