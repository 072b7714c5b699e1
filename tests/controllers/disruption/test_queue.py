"""Commands that wait for their second look: when it comes, and who gives way to whom."""

import asyncio

from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.disruption.books import Books
from karpenter.controllers.disruption.halts import Halts
from karpenter.controllers.disruption.pauses import Pauses
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.testing.builders import a_nodepool, a_view
from karpenter.testing.environment import environment


def a_command(*names: str) -> Command:
    """Return the command to take away nodes of these names."""
    pool = a_nodepool()
    nodes = [Candidate(node=a_view(n), pool=pool, reschedulable=(), price=1.0) for n in names]
    return Command(reason="Empty", candidates=tuple(nodes))


def test_later_commands_give_way_to_earlier_ones() -> None:
    """Each is looked at again after fifteen seconds, as if only those decided before it were underway."""

    async def scenario() -> None:
        async with environment(rooms=()) as env:
            context = env.operator.context
            queue = CommandQueue(context, Halts(context), Pauses(context.clock), Books(context))
            looks: list[tuple[float, str, frozenset[str]]] = []
            began = env.clock.now()

            async def validate(command: Command, going: frozenset[str]) -> None:
                looks.append((env.clock.now() - began, command.candidates[0].node.name, going))

            queue.validate = validate
            running = asyncio.create_task(queue.controller.run())
            first, second = a_command("a", "b"), a_command("c")
            queue.accept(first, wait=True)
            await env.wait(5)
            queue.accept(second, wait=True)
            ids = [c.node.provider_id for c in (*first.candidates, *second.candidates)]
            assert queue.underway == frozenset(ids)
            await env.wait(9.9)
            assert looks == []
            await env.wait(0.2)
            assert [(round(at), name, going) for at, name, going in looks] == [(15, "a", frozenset())]
            assert queue.underway == {ids[2]}
            queue.accept(first, wait=True)  # once more: now it is the later one
            await env.wait(20)
            assert [(round(at), name, going) for at, name, going in looks[1:]] == [
                (20, "c", frozenset()),
                (30, "a", frozenset()),
            ]
            assert queue.underway == frozenset()
            queue.accept(first, wait=True)
            queue.accept(second, wait=True)
            await env.wait(15.5)
            assert [(name, going) for _, name, going in looks[3:]] == [
                ("a", frozenset()),
                ("c", frozenset()),
            ]
            running.cancel()

    run_virtual(scenario())


def test_an_earlier_command_that_waits_still_is_reckoned_with() -> None:
    """While the first one's second look takes its time, the second sees its nodes as going."""

    async def scenario() -> None:
        async with environment(rooms=()) as env:
            context = env.operator.context
            queue = CommandQueue(context, Halts(context), Pauses(context.clock), Books(context))
            seen: dict[str, frozenset[str]] = {}

            async def validate(command: Command, going: frozenset[str]) -> None:
                name = command.candidates[0].node.name
                seen[name] = going
                await env.clock.sleep(5.0 if name == "a" else 0.0)

            queue.validate = validate
            running = asyncio.create_task(queue.controller.run())
            first = a_command("a")
            queue.accept(first, wait=True)
            queue.accept(a_command("b"), wait=True)
            await env.wait(25)
            assert seen == {"a": frozenset(), "b": frozenset({first.candidates[0].node.provider_id})}
            running.cancel()

    run_virtual(scenario())
