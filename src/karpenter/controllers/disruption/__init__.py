"""Taking nodes away on our own initiative: what is empty, has drifted, or costs more than it must."""

from karpenter.controllers.context import Context
from karpenter.controllers.disruption import searches
from karpenter.controllers.disruption.asking import Desk
from karpenter.controllers.disruption.books import Books
from karpenter.controllers.disruption.halts import Halts
from karpenter.controllers.disruption.leftovers import Leftovers
from karpenter.controllers.disruption.loop import DisruptionLoop
from karpenter.controllers.disruption.pauses import Pauses
from karpenter.controllers.disruption.queue import CommandQueue
from karpenter.controllers.disruption.reporting import Reporter
from karpenter.controllers.disruption.survey import Survey
from karpenter.controllers.disruption.validating import SecondLook
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return the two loops of disruption, the queue they share, and what watches over drift."""
    quick, thorough = searches.quick(), searches.thorough(context.settings)
    halts, pauses, books = Halts(context), Pauses(context.clock), Books(context)
    queue = CommandQueue(context, halts, pauses, books)
    survey = Survey(context, lambda: queue.underway)
    desk = Desk(context, survey, halts, pauses, books, context.executor.aside())
    queue.validate = SecondLook(context, survey, desk)
    reporter = Reporter(context, context.cluster.verdicts)
    first = DisruptionLoop(
        context,
        "disruption",
        quick,
        survey=survey,
        desk=desk,
        queue=queue,
        reporter=reporter,
        leftovers=Leftovers(context, queue),
    )
    aside = Survey(context, lambda: queue.underway)
    second = DisruptionLoop(
        context,
        "disruption.consolidation",
        thorough,
        survey=aside,
        desk=Desk(context, aside, halts, pauses, books, context.executor.aside()),
        queue=queue,
        reporter=reporter,
    )
    return [first.controller, second.controller, queue.controller, halts.controller]
