"""How often searches for cheaper nodes are asked, and how much they take on."""

import asyncio

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers import node, nodeclaim, nodepool, provisioning
from karpenter.controllers.disruption.asking import Desk
from karpenter.controllers.disruption.books import Books
from karpenter.controllers.disruption.halts import Halts
from karpenter.controllers.disruption.loop import DisruptionLoop
from karpenter.controllers.disruption.pacing import GLANCE, THOROUGH, Pace
from karpenter.controllers.disruption.pauses import Pauses
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.controllers.disruption.reporting import Reporter
from karpenter.controllers.disruption.survey import Survey
from karpenter.disruption.budgets import Reason
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.verdicts import Method
from karpenter.testing.builders import a_nodepool, a_pod
from karpenter.testing.environment import Environment, environment

ROOMS = (provisioning, nodeclaim, node, nodepool)


class Fruitless:
    """Finds nothing, says that a budget stood in its way, and notes when it was asked for how much."""

    method: Method = "sets"
    reason: Reason = "Underutilized"

    def __init__(self) -> None:
        self.asked: list[tuple[float, int | None]] = []

    def __call__(self, a_round: Round) -> Decision:
        self.asked.append((a_round.snapshot.taken_at, a_round.attempts))
        complete = a_round.attempts is None
        return Decision(eligible=1, settled=False, bound=complete)


def _loop(env: Environment, search: Fruitless) -> DisruptionLoop:
    context = env.operator.context
    halts, pauses, books = Halts(context), Pauses(context.clock), Books(context)
    queue = CommandQueue(context, halts, pauses, books)
    survey = Survey(context, lambda: queue.underway)
    desk = Desk(context, survey, halts, pauses, books, context.executor.aside())
    reporter = Reporter(context, context.cluster.verdicts)
    return DisruptionLoop(
        context, "looking", [search], survey=survey, desk=desk, queue=queue, reporter=reporter
    )


async def _asked(*, restless: float, seconds: float) -> list[tuple[float, int | None]]:
    """Return when and for how much a search was asked in so many seconds, in which something changes every
    `restless` seconds (0: never)."""
    async with environment(rooms=ROOMS) as env:
        await env.create(a_nodepool())
        first = await env.create(a_pod())
        await env.expect_scheduled([first])
        await env.wait(60)
        search = Fruitless()
        running = asyncio.create_task(_loop(env, search).controller.run())
        began = env.clock.now()
        while env.clock.now() - began < seconds:
            await env.wait(restless or seconds)
            if restless:
                env.cluster.mark_unconsolidated()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [(round(at - began), attempts) for at, attempts in search.asked]


def test_a_calm_cluster_is_not_searched_again() -> None:
    """Though budgets stood in the way: they leave what they left. Only what nobody tells of is looked for,
    every five minutes."""
    asked = run_virtual(_asked(restless=0, seconds=900))
    assert len(asked) <= 4
    assert {attempts for _, attempts in asked} == {None}


def test_a_restless_cluster_is_mostly_glanced_at() -> None:
    """Every three minutes, and thoroughly every twenty, when nothing is ever found."""
    asked = run_virtual(_asked(restless=7, seconds=7200))
    later = [(at, attempts) for at, attempts in asked if at >= 1200]
    glances = [at for at, attempts in later if attempts is not None]
    thorough = [at for at, attempts in later if attempts is None]
    assert 25 <= len(glances) <= 35
    assert 4 <= len(thorough) <= 6


def test_a_find_lets_glances_go_on() -> None:
    """What looks best is tried again at once, and rests half as long; a thorough search stays put off."""
    pace = Pace()
    for _ in range(3):
        pace.fruitless("sets", THOROUGH, 0.0, 0.0)
    assert pace.effort("sets", 0.0, 79.0) is None
    assert pace.effort("multi", 0.0, 79.0) == THOROUGH
    pace.found("sets", 40.0)
    assert pace.effort("sets", 0.0, 40.0) == GLANCE
    pace.fruitless("sets", GLANCE, 0.0, 40.0)
    assert pace.effort("sets", 0.0, 79.0) is None
    assert pace.effort("sets", 0.0, 80.0) == THOROUGH


def test_a_minute_without_change_is_calm() -> None:
    """Then all is looked at thoroughly, once, however often that came to nothing."""
    pace = Pace()
    for _ in range(10):
        pace.fruitless("sets", THOROUGH, 0.0, 1000.0)
    assert pace.effort("sets", 1001.0, 1060.0) is None
    assert pace.effort("sets", 1001.0, 1061.0) == THOROUGH
    pace.fruitless("sets", THOROUGH, 1001.0, 1061.0)
    assert pace.effort("sets", 1001.0, 1200.0) is None
    assert pace.effort("sets", 1001.0, 1241.0) == GLANCE
