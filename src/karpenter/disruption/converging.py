"""Disruption to a fixed point without a cluster: commands are carried out at once until none is left.

Tells what consolidation comes to: which commands, in which order, and what the cluster costs in the end. The
fifteen seconds between decision and action, and all that may happen meanwhile, are left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from karpenter.base.quantity import add
from karpenter.disruption.aftermath import Aftermath, Types, after_command
from karpenter.disruption.budgets import UNLIMITED, Reason, pool_budget
from karpenter.disruption.candidates import Found, find_candidates
from karpenter.disruption.command import Command
from karpenter.disruption.ledger import Ledger, memories
from karpenter.disruption.memory import gathered, remembering
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.rounds import Policy, Round, Search
from karpenter.disruption.simulation import Simulator
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Budget, Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling.solver import spender

_REASONS: tuple[Reason, ...] = ("Empty", "Underutilized", "Drifted")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command, carried out."""

    command: Command
    launched: tuple[NodeView, ...]
    """Its replacements, in its order."""
    nodes_before: int
    nodes_after: int
    cost_before: float
    """USD per hour of all nodes."""
    cost_after: float
    seconds: float
    """What it took to find it: the whole round, methods that found nothing included."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are looked for."""

    policy: Policy = Policy()
    free_moves: bool = False
    """Whether pools' budgets and what restarts cost are put aside. By default each round keeps to budgets; a
    node that went in an earlier round is gone and counts no more."""
    restarts: Restarts = Restarts()
    """What moving pods costs."""
    remembered: bool = True
    """Whether what was moved is remembered, and not moved back for the payback time (`ledger`). Here no time
    goes by; without, it tells what things come to in the end, when such memories have lapsed."""
    most_commands: int | None = None
    """Stop after so many; None: only when nothing is found."""
    budget: Budget = Budget()
    """Of each round; none given: searches go on until they are done."""


_PLAIN = Rules()


class Converger:
    """Drives methods of disruption to a fixed point."""

    def __init__(
        self,
        state: Aftermath,
        ask: Callable[[Snapshot], Problem],
        catalogues: Mapping[str, Sequence[InstanceType]],
        searches: Sequence[Search],
        rules: Rules = _PLAIN,
        *,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Prepare.

        Args:
            state: the cluster to begin with.
            ask: returns the provisioner's problem for a cluster: pods that wait, what pools can buy and what
                is left of their limits.
            catalogues: the instance types of each pool, whether they can be bought now or not.
            searches: in the order in which they are asked.
            rules: what bounds them.
            monotonic: a clock, for budgets in seconds and for telling how long it took.
        """
        self.state = state
        self._ask: Final = ask
        self._catalogues: Final = catalogues
        self._types: Final = {pool: {kind.name: kind for kind in kinds} for pool, kinds in catalogues.items()}
        self._searches: Final = searches
        self._rules: Final = rules
        self._monotonic: Final = monotonic
        self.converged = False
        """Whether the last round found nothing."""
        self.settled = True
        """Whether the last round looked at everything: no budget or clock stood in the way."""
        self.verdicts: tuple[Verdict, ...] = ()
        """Why nodes stay, from the last round: by node, those of the methods in their order."""
        self.commands = 0
        self.seconds = 0.0
        """Of all rounds."""
        self.last_seconds = 0.0
        """Of the last round."""

    def steps(self) -> Iterator[Step]:
        """Yield the commands, each carried out when it is yielded; go on until there are none.

        Raises:
            Broken: a command does not come to what it announced.
        """
        most = self._rules.most_commands
        while most is None or self.commands < most:
            commands = self._decided()
            if not commands:
                self.converged = True
                return
            for command in commands:
                yield self._carried_out(command)

    def _decided(self) -> Sequence[Command]:
        """Return what the first method that finds something wants done."""
        started = self._monotonic()
        problem = self._ask(self.state.snapshot)
        problem = replace(problem, held=add(problem.held, self.state.held()))
        found: Sequence[Command] = ()
        nodes = self._nodes(problem)
        verdicts = list(nodes.blocked)
        self.settled = True
        a_round = self._round(problem, nodes)
        for search in self._searches:
            decision = search(a_round)
            verdicts += decision.verdicts
            self.settled = self.settled and decision.settled
            found = decision.commands
            if found:
                break
        self.verdicts = tuple(sorted(verdicts, key=lambda verdict: verdict.node))
        self.last_seconds = self._monotonic() - started
        self.seconds += self.last_seconds
        return found

    def _nodes(self, problem: Problem) -> Found:
        """Return which nodes may go, at the prices they were bought for."""
        found = find_candidates(
            self.state.snapshot,
            queued=frozenset(),
            catalogues=self._catalogues,
            reservation_label=problem.options.reservation_label,
        )
        prices = self.state.prices
        graceful, eventual = (
            tuple(replace(c, price=prices.get(c.name, c.price)) for c in each)
            for each in (found.candidates, found.eventual)
        )
        return found._replace(candidates=graceful, eventual=eventual)

    def _round(self, problem: Problem, nodes: Found) -> Round:
        """Return one look at the cluster as it is."""
        snapshot = self.state.snapshot
        return Round(
            snapshot=snapshot,
            candidates=nodes.candidates,
            eventual=nodes.eventual,
            remaining={reason: self._remaining(snapshot, reason) for reason in _REASONS},
            simulator=Simulator(problem, monotonic=self._monotonic),
            catalogues=self._catalogues,
            policy=self._rules.policy,
            restarts=self._restarts,
            remembered=gathered(snapshot.nodes),
            more=self._more(),
        )

    @property
    def _restarts(self) -> Restarts:
        return Restarts(hours=0.0) if self._rules.free_moves else self._rules.restarts

    def _more(self) -> Callable[[], bool]:
        budget = self._rules.budget
        if budget.steps is None and budget.seconds is None:
            return lambda: True
        return spender(budget, self._monotonic)

    def _remaining(self, snapshot: Snapshot, reason: Reason) -> Mapping[str, int]:
        if self._rules.free_moves:
            return {pool.name: UNLIMITED for pool in snapshot.nodepools}
        return {
            pool.name: pool_budget(pool, snapshot.nodes, reason, snapshot.taken_at).remaining
            for pool in snapshot.nodepools
        }

    def _carried_out(self, command: Command) -> Step:
        before = self.state
        self.state = after_command(before, command, self._types)
        self.commands += 1
        there = {node.name for node in before.snapshot.nodes}
        launched = [node.name for node in self.state.snapshot.nodes if node.name not in there]
        launched.sort(key=lambda name: int(name.rpartition("-")[2]))
        if self._rules.remembered:
            self._remember(before.snapshot, command, launched)
        nodes = {node.name: node for node in self.state.snapshot.nodes}
        return Step(
            command=command,
            launched=tuple(nodes[name] for name in launched),
            nodes_before=len(before.snapshot.nodes),
            nodes_after=len(self.state.snapshot.nodes),
            cost_before=before.cost,
            cost_after=self.state.cost,
            seconds=self.last_seconds,
        )

    def _remember(self, before: Snapshot, command: Command, launched: Sequence[str]) -> None:
        """Let nodes remember what a command has moved to them."""
        nodes = {node.name: node for node in before.nodes}
        found = memories(command, Ledger(before, self._restarts, gathered(before.nodes)), nodes)
        of_node = {**found.nodes, **dict(zip(launched, found.replacements, strict=True))}
        after = self.state.snapshot
        noted = tuple(remembering(node, of_node.get(node.name, {})) for node in after.nodes)
        self.state = replace(self.state, snapshot=replace(after, nodes=noted))


def types_of(problem: Problem) -> Types:
    """Return what each pool can buy, by name."""
    return {offer.pool.name: {kind.name: kind for kind in offer.instance_types} for offer in problem.pools}
