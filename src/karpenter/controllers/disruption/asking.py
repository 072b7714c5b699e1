"""Putting a question to a method: everything it may look at, as one round, beside the event loop."""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from karpenter.controllers.context import Context
from karpenter.controllers.disruption.books import Books
from karpenter.controllers.disruption.halts import Halts
from karpenter.controllers.disruption.patience import Patience
from karpenter.controllers.disruption.pauses import Pauses
from karpenter.controllers.disruption.survey import Survey, View
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.drift import drifted_since
from karpenter.disruption.rounds import Decision, Objection, Policy, Round, Search
from karpenter.disruption.simulation import Simulator
from karpenter.disruption.validation import Validity, validated
from karpenter.disruption.verdicts import Verdict
from karpenter.runtime import Executor

"""Why a command should not be carried out although rules would allow it."""


class Answer(NamedTuple):
    """What a method said, and whether it had the time to look at everything."""

    decision: Decision
    ran_out: bool


class Desk:
    """Builds rounds from views, and asks methods. One simulator serves all methods of a view."""

    def __init__(
        self,
        context: Context,
        survey: Survey,
        halts: Halts,
        pauses: Pauses,
        books: Books,
        executor: Executor,
    ) -> None:
        """Prepare; `executor` is where searches run."""
        self._context = context
        self._survey = survey
        self._halts = halts
        self._pauses = pauses
        self._books = books
        self._executor = executor
        self._simulator: tuple[View, Simulator] | None = None
        gates = context.settings.feature_gates
        self._policy = Policy(
            spot_to_spot=gates.get("SpotToSpotConsolidation", False),
            min_values_strict=context.settings.min_values_policy != "BestEffort",
        )

    async def ask(self, search: Search, view: View, *, attempts: int | None = None) -> Answer:
        """Let `search` decide on `view`; see `Round.attempts`."""
        a_round, patience = await self.round(view)
        a_round = a_round._replace(attempts=attempts)
        a_round, held = self._without_halted(search, a_round)
        a_round, awaited = await self._without_awaited(search.reason, a_round)
        decision: Decision = await self._executor.run(search, a_round)
        verdicts = sorted((*decision.verdicts, *held, *awaited), key=lambda v: v.node)
        replaced = Decision(
            commands=tuple(c for c in decision.commands if c.candidates),
            verdicts=tuple(verdicts),
            moves=decision.moves,
            eligible=decision.eligible + len(held),
            settled=decision.settled and not held and not patience.ran_out,
            bound=decision.bound and not held and not patience.ran_out,
        )
        return Answer(replaced, patience.ran_out)

    async def validate(self, command: Command, view: View) -> Validity:
        """Return what holds of `command` by what `view` shows."""
        a_round, _ = await self.round(view)
        a_round, _ = await self._without_awaited(command.reason, a_round)
        budget = self._context.settings.solve_budget if command.method == "sets" else None
        validity: Validity = await self._executor.run(partial(validated, budget=budget), command, a_round)
        return validity

    async def round(self, view: View) -> tuple[Round, Patience]:
        """Return the question that `view` comes to, and the time there is for it."""
        simulator = self._simulator_of(view)
        settings = self._context.settings
        patience = Patience(settings.consolidation_budget, self._context.clock.monotonic)
        return (
            Round(
                snapshot=view.snapshot,
                candidates=view.candidates,
                eventual=view.eventual,
                remaining=view.remaining,
                simulator=simulator,
                catalogues=self._survey.catalogues,
                policy=self._policy,
                objection=_first_of(self._pauses.objection(), self._books.objection(view.snapshot)),
                restarts=self._books.restarts(),
                remembered=self._books.remembered(view.snapshot),
                more=patience.more,
            ),
            patience,
        )

    def _simulator_of(self, view: View) -> Simulator:
        if self._simulator is not None and self._simulator[0] is view:
            return self._simulator[1]
        problem = self._survey.problem(view)
        simulator = Simulator(problem, monotonic=self._context.clock.monotonic)
        self._simulator = view, simulator
        return simulator

    def _without_halted(self, search: Search, a_round: Round) -> tuple[Round, list[Verdict]]:
        """Keep nodes out of drift whose pool has trouble with replacements; return the verdicts on them."""
        if search.reason != "Drifted":
            return a_round, []
        why = {pool.name: self._halts.held(pool) for pool in a_round.snapshot.nodepools}
        if not any(why.values()):
            return a_round, []
        held = [
            Verdict(
                node=candidate.node.name,
                method=search.method,
                code="halted",
                message=why[candidate.pool.name],
                remedy=f"see condition DriftHalted of nodepool/{candidate.pool.name}",
            )
            for candidate in a_round.eventual
            if why.get(candidate.pool.name) and drifted_since(candidate) is not None
        ]
        free = a_round._replace(
            candidates=_kept(a_round.candidates, why), eventual=_kept(a_round.eventual, why)
        )
        return free, held

    async def _without_awaited(self, reason: Reason, a_round: Round) -> tuple[Round, list[Verdict]]:
        """Keep nodes out of emptiness that pods in need of a place will go to."""
        if reason != "Empty" or not any(c.empty for c in a_round.candidates):
            return a_round, []
        coming = await self._executor.run(attrgetter("coming"), a_round.simulator)
        awaited = [c for c in a_round.candidates if c.empty and coming.get(c.node.name)]
        verdicts = [
            Verdict(
                node=c.node.name,
                method="emptiness",
                code="nominated",
                message=f"{len(coming[c.node.name])} pod(s) in need of a place are expected here",
            )
            for c in awaited
        ]
        names = {c.node.name for c in awaited}
        kept = tuple(c for c in a_round.candidates if c.node.name not in names)
        return a_round._replace(candidates=kept), verdicts


def _first_of(*objections: Objection) -> Objection:
    def said(command: Command) -> Verdict | None:
        return next(filter(None, (objection(command) for objection in objections)), None)

    return said


def _kept(candidates: Sequence[Candidate], why: dict[str, str]) -> tuple[Candidate, ...]:
    return tuple(c for c in candidates if not why.get(c.pool.name))
