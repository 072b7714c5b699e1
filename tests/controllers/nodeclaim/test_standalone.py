"""NodeClaims that users make themselves, without a NodePool."""

from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.conditions import get
from karpenter.apis.core import Node, Taint
from karpenter.apis.karpenter import NodeClaim, NodeClassRef
from karpenter.apis.meta import ObjectMeta
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption, metrics, node, nodeclaim, nodepool, provisioning
from karpenter.kube.errors import NotFound
from karpenter.testing.builders import a_nodeclaim, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool, disruption, metrics)


def _own(name: str = "mine", **fields: object) -> NodeClaim:
    wanted = [(known.INSTANCE_TYPE, "In", ["general-4"]), (known.CAPACITY_TYPE, "In", ["on-demand"])]
    claim = a_nodeclaim(name, requirements=wanted, **fields)  # type: ignore[arg-type]
    return replace(claim, metadata=ObjectMeta(name=name, labels={"team": "blue"}))


async def _is_gone(env: Environment, name: str) -> bool:
    try:
        await env.client.get(NodeClaim, name)
    except NotFound:
        return True
    return False


def test_a_claim_of_ones_own_becomes_a_node_and_ends_with_it() -> None:
    """Launched as asked for, with its labels and taints; disruption leaves it alone; deleted, all goes."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            taint = Taint("example.com/own", "", "NoSchedule")
            await env.create(_own(taints=[taint]))
            claim = await env.expect_condition("mine", "Initialized")
            assert claim.metadata.labels[known.INSTANCE_TYPE] == "general-4"
            assert claim.metadata.labels[known.CAPACITY_TYPE] == "on-demand"
            found = await env.client.get(Node, claim.status.node_name)
            assert found.metadata.labels["team"] == "blue"
            assert [t.key for t in found.spec.taints] == [taint.key]
            await env.wait(1200)
            claim = await env.client.get(NodeClaim, "mine")
            assert not claim.deleting, "empty, but nobody's to take"
            assert get(claim.status.conditions, "Consolidatable") is None
            await env.client.delete(NodeClaim, "mine")
            await env.expect("it is gone", lambda: _is_gone(env, "mine"), within=60)
            assert not await env.nodes()
            assert env.cloud.deleted == [claim.status.provider_id]

    run_virtual(scenario())


def test_pods_may_use_the_node_of_such_a_claim() -> None:
    """It counts as capacity: nothing is bought for a pod that fits there."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            await env.create(_own())
            await env.expect_condition("mine", "Initialized")
            pod = await env.create(a_pod(cpu="1"))
            await env.expect_scheduled([pod])
            assert len(env.cloud.created) == 1

    run_virtual(scenario())


def test_claims_for_other_operators_are_not_touched() -> None:
    """A node class of a kind that is not ours: no finalizer, no condition, no machine, no end."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            other = NodeClassRef(group="cloud.example.com", kind="OtherNodeClass", name="default")
            theirs = _own(node_class=other)
            await env.create(replace(theirs, spec=replace(theirs.spec, expire_after="10m")))
            await env.wait(700)
            claim = await env.client.get(NodeClaim, "mine")
            assert claim.metadata.finalizers == []
            assert claim.status.conditions == []
            assert not env.cloud.created

    run_virtual(scenario())
