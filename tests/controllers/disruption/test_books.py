"""What the operator itself keeps of moves: what nodes said that have gone since, and the rules in force."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.disruption.books import Books
from karpenter.disruption.memory import Moved, remembering
from karpenter.testing.builders import a_problem, a_view
from karpenter.testing.environment import environment

NOW = 1_767_225_600.0
HOUR = 3600.0


def test_what_nodes_said_that_have_gone_is_known_until_it_has_paid() -> None:
    """Of what several say, the latest counts."""

    async def scenario() -> None:
        async with environment(rooms=()) as env:
            books = Books(env.operator.context)
            first = remembering(a_view("a"), {"web": {"small": Moved(NOW - 2 * HOUR, 3)}})
            second = remembering(
                a_view("b"),
                {"web": {"small": Moved(NOW - HOUR, 4)}, "db": {"large": Moved(NOW - 13 * HOUR, 1)}},
            )
            there = with_(a_problem([], nodes=[first, second]).snapshot, taken_at=NOW)
            known = {"web": {"small": Moved(NOW - HOUR, 4)}}
            assert books.remembered(there) == known
            gone = with_(there, nodes=())
            assert books.remembered(with_(gone, taken_at=NOW + 10 * HOUR)) == known
            assert books.remembered(with_(gone, taken_at=NOW + 11 * HOUR)) == {}

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("search", "cost", "kept"), [("sets", 3600.0, True), ("sets", 0.0, False), ("upstream", 3600.0, False)]
)
def test_the_ledger_can_be_turned_off(search: str, cost: float, kept: bool) -> None:
    """By moves that are free, or by upstream's searches: then nothing objects, and nothing is remembered."""

    async def scenario() -> None:
        async with environment(rooms=()) as env:
            context = env.operator.context
            settings = replace(context.settings, consolidation_search=search, restart_cost_seconds=cost)
            books = Books(replace(context, settings=settings))
            assert books.restarts().counted is kept

    run_virtual(scenario())
