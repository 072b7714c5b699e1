"""The hash by which a changed template is seen, and its versions."""

import pytest

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.nodepool_hash import nodepool_hash
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.patch import merge
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

HASH, VERSION = known.NODEPOOL_HASH, known.NODEPOOL_HASH_VERSION


async def _working(env: Environment) -> NodeClaim:
    await env.create(a_nodepool())
    await env.create(a_pod())
    claim = (await env.expect_claims(1))[0]
    return await env.expect_condition(claim.name, "Initialized")


async def _notes(env: Environment, kind: type[NodeClaim] | type[NodePool], name: str) -> tuple[str, str]:
    found = (await env.client.get(kind, name)).metadata.annotations
    return found.get(HASH, ""), found.get(VERSION, "")


async def _note(env: Environment, obj: NodeClaim | NodePool, hash: str, version: str) -> None:
    note = {"metadata": {"annotations": {HASH: hash, VERSION: version}}}
    await env.client.patch(type(obj), obj.name, merge(note))


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"template": {"metadata": {"labels": {"team": "blue"}}}}, True),
        ({"template": {"metadata": {"annotations": {"note": "x"}}}}, True),
        ({"template": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}}, True),
        ({"template": {"spec": {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}}}, True),
        ({"template": {"spec": {"terminationGracePeriod": "5m"}}}, True),
        ({"template": {"spec": {"expireAfter": "5h"}}}, True),
        (
            {
                "template": {
                    "spec": {
                        "requirements": [
                            {"key": known.ARCH, "operator": "In", "values": ["amd64"]},
                        ]
                    }
                }
            },
            False,
        ),
        ({"disruption": {"consolidateAfter": "5m"}}, False),
        ({"limits": {"cpu": "100"}}, False),
        ({"weight": 7}, False),
    ],
)
def test_the_hash_is_of_what_only_new_machines_can_have(change: dict[str, object], differs: bool) -> None:
    """Requirements are compared otherwise; budgets, limits and weight make no machine drift."""

    async def scenario() -> None:
        async with environment() as env:
            pool = await env.create(a_nodepool())
            await env.wait(2)
            before = await _notes(env, NodePool, "default")
            await env.client.patch(NodePool, pool.name, merge({"spec": change}))
            await env.wait(2)
            after = await _notes(env, NodePool, "default")
            assert (after != before) == differs
            assert after == (nodepool_hash(await env.client.get(NodePool, "default")), "v3")

    run_virtual(scenario())


def test_a_changed_template_changes_no_claims_hash() -> None:
    """Claims keep the hash they were made with: that is how drift is seen."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            before = await _notes(env, NodeClaim, claim.name)
            assert before == await _notes(env, NodePool, "default")
            label = {"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}}
            await env.client.patch(NodePool, "default", merge(label))
            await env.wait(5)
            assert await _notes(env, NodeClaim, claim.name) == before

    run_virtual(scenario())


@pytest.mark.parametrize("drifted", [False, True])
def test_a_new_version_of_the_hash_makes_nothing_drift(drifted: bool) -> None:
    """After an upgrade claims are given the new hash, but for those that had drifted: they stay so."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            pool = await env.client.get(NodePool, "default")
            if drifted:
                await _note(env, claim, "old", "v3")
                await env.expect_condition(claim.name, "Drifted")
            await env.operator.kill()
            await _note(env, pool, "older", "v2")
            await _note(env, claim, "old" if drifted else "older", "v2")
            await env.restart()
            await env.wait(10)
            wanted = nodepool_hash(pool)
            assert await _notes(env, NodePool, "default") == (wanted, "v3")
            assert await _notes(env, NodeClaim, claim.name) == ("old" if drifted else wanted, "v3")
            types = [c.type for c in (await env.client.get(NodeClaim, claim.name)).status.conditions]
            assert ("Drifted" in types) == drifted

    run_virtual(scenario())


def test_a_claim_of_the_present_version_is_left_alone() -> None:
    """Only claims of another version are given another hash."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await env.operator.kill()
            await _note(env, claim, "mine", "v3")
            await _note(env, await env.client.get(NodePool, "default"), "older", "v2")
            await env.restart()
            await env.wait(10)
            assert await _notes(env, NodeClaim, claim.name) == ("mine", "v3")

    run_virtual(scenario())


def test_a_claim_of_an_older_version_is_left_alone_once_its_pool_is_up_to_date() -> None:
    """Nobody can tell whether it drifted; it neither gets another hash nor a mark."""

    async def scenario() -> None:
        async with environment() as env:
            claim = await _working(env)
            await _note(env, claim, "mine", "v2")
            await env.client.patch(NodePool, "default", merge({"spec": {"weight": 2}}))
            await env.wait(10)
            assert await _notes(env, NodeClaim, claim.name) == ("mine", "v2")
            types = [c.type for c in (await env.client.get(NodeClaim, claim.name)).status.conditions]
            assert "Drifted" not in types

    run_virtual(scenario())
