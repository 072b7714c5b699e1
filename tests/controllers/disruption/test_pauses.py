"""Consolidation that buys machines in vain: slower after each failure, and deletes go on."""

import asyncio

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import Disruption
from karpenter.base.clock import LoopClock
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import disruption, node, nodeclaim, nodepool, provisioning
from karpenter.controllers.disruption.pauses import FIRST_SECONDS, LONGEST_SECONDS, Pauses
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.model.problem import PlannedClaim
from karpenter.model.requirements import Requirements
from karpenter.testing.builders import a_nodepool, a_pod, a_view
from karpenter.testing.environment import environment

ROOMS = (provisioning, nodeclaim, node, nodepool, disruption)


def _command(reason: Reason, *buys_from: str) -> Command:
    candidate = Candidate(node=a_view("n"), pool=a_nodepool(), reschedulable=(), price=1.0)
    claims = tuple(
        PlannedClaim(
            pool=a_nodepool(name),
            requirements=Requirements.from_labels({}),
            instance_types=(),
            requests={},
            pods=(),
            price=0.5,
        )
        for name in buys_from
    )
    return Command(reason=reason, method="sets", candidates=(candidate,), replacements=claims)


def test_only_what_buys_from_the_pool_for_consolidation_waits() -> None:
    """Drift has a pause of its own, other pools are not to blame, and taking nodes away costs nothing."""

    async def scenario() -> None:
        pauses = Pauses(LoopClock())
        pauses.failed(["a"], "no capacity")
        objection = pauses.objection()
        said = objection(_command("Underutilized", "b", "a"))
        assert said is not None
        assert (said.code, "no capacity" in said.message) == ("halted", True)
        for other in (
            _command("Underutilized"),
            _command("Underutilized", "b"),
            _command("Drifted", "a"),
        ):
            assert objection(other) is None
        pauses.succeeded(["a"])
        assert pauses.objection()(_command("Underutilized", "a")) is None

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, FIRST_SECONDS), (2, 2 * FIRST_SECONDS), (4, 8 * FIRST_SECONDS), (30, LONGEST_SECONDS)],
)
def test_pauses_double_up_to_an_hour(failures: int, seconds: float) -> None:
    """Until then the pool waits, and not a moment longer."""

    async def scenario() -> None:
        pauses = Pauses(LoopClock())
        for _ in range(failures):
            pauses.failed(["a"], "no capacity")
        await asyncio.sleep(seconds - 1)
        assert pauses.objection()(_command("Underutilized", "a")) is not None
        await asyncio.sleep(1)
        assert pauses.objection()(_command("Underutilized", "a")) is None

    run_virtual(scenario())


def test_a_replacement_that_never_works_is_not_bought_for_ever() -> None:
    """In four hours a handful of machines come up in vain, not one every eleven minutes; the pod runs on."""

    async def scenario() -> None:
        async with environment(rooms=ROOMS) as env:
            pool = a_nodepool(requirements=[(labels.CAPACITY_TYPE, "In", [labels.CAPACITY_ON_DEMAND])])
            wanted = Disruption(consolidate_after="0s")
            await env.create(replace(pool, spec=replace(pool.spec, disruption=wanted)))
            big, small = await env.create_all([a_pod("big", cpu="9"), a_pod("small", cpu="1")])
            await env.expect_scheduled([big, small])
            await env.wait(30)
            bought = len(env.cloud.created)
            env.cloud.join_seconds = None
            await env.client.delete(Pod, big.name, namespace=big.namespace)
            await env.wait(4 * 3600)
            assert 3 <= len(env.cloud.created) - bought <= 9
            assert (await env.client.get(Pod, small.name, small.namespace)).spec.node_name

    run_virtual(scenario())
