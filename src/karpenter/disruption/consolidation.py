"""Consolidation as upstream has it: for whom it is, in which order, and what taking nodes away comes to."""

from collections.abc import Sequence
from functools import cached_property

from karpenter.apis import labels
from karpenter.disruption import waiting
from karpenter.disruption.balanced import Balance
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.ledger import Ledger, without_returns
from karpenter.disruption.market import Market
from karpenter.disruption.replacement import replacement_of, without_same_types
from karpenter.disruption.rounds import Move, Round
from karpenter.disruption.simulation import Outcome, Rehearsal
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.model.problem import Budget

_AS_FEW_AS_CAN_BE = 1000.0
"""USD per hour that a new node counts besides its price, where there may be one only."""


def why_not(candidate: Candidate, method: Method, now: float) -> Verdict | None:
    """Return why consolidation is not for the node, in upstream's order and words; None when it is."""
    node, pool = candidate.node, candidate.pool

    def kept(code: Code, message: str, remedy: str = "") -> Verdict:
        return Verdict(node=node.name, method=method, code=code, message=message, remedy=remedy)

    if pool.static:
        return kept("static", f'NodePool "{pool.name}" keeps a fixed number of nodes', waiting.static(pool))
    if candidate.instance_type is None:
        name = node.labels.get(labels.INSTANCE_TYPE, "")
        return kept("unknownType", f'Instance Type "{name}" not found', "wait for drift to replace it")
    for key, value in ((labels.CAPACITY_TYPE, candidate.capacity_type), (labels.ZONE, candidate.zone)):
        if not value:
            text = f'Node does not have label "{key}"'
            return kept("unknownPlace", text, f"give node/{node.name} its label {key} back")
    if pool.spec.disruption.consolidate_after == "Never":
        return kept("never", f'NodePool "{pool.name}" has consolidation disabled', waiting.never(pool))
    if candidate.empty:
        return kept("empty", "Node is empty: it is taken for that")
    if pool.spec.disruption.consolidation_policy == "WhenEmpty":
        return kept(
            "policy",
            f'NodePool "{pool.name}" has consolidation policy WhenEmpty, but node is not empty',
            f"set consolidationPolicy of nodepool/{pool.name} to WhenEmptyOrUnderutilized",
        )
    if not waiting.is_consolidatable(node):
        after = pool.spec.disruption.consolidate_after
        text = f"Pods came or went less than consolidateAfter ({after}) ago"
        return kept("tooFresh", text, waiting.until(node, pool, now))
    return None


def by_worth(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return `candidates`, those first that save most for the disruption they cost (ties by name)."""
    return sorted(candidates, key=lambda c: (-c.savings_ratio, c.node.name))


def simulated(a_round: Round, candidates: Sequence[Candidate], closed: frozenset[str]) -> Outcome:
    """Return where the pods of `candidates` would go, on one new node if that is possible.

    The solver buys what is cheapest; several small nodes are no dearer than a large one, but here only one
    may be bought.
    """
    outcome = a_round.simulator.without(candidates, closed=closed)
    if len(outcome.claims) > 1:
        few = a_round.simulator.without(candidates, closed=closed, node_fee=_AS_FEW_AS_CAN_BE)
        if not few.stranded and len(few.claims) < len(outcome.claims):
            return few
    return outcome


class Probe:
    """What taking nodes away comes to, in one round: asked once for each set of nodes that is tried."""

    def __init__(self, a_round: Round, method: Method) -> None:
        """Prepare for one method."""
        self._round = a_round
        self._method: Method = method
        snapshot = a_round.snapshot
        self.market = Market.of(a_round.simulator.problem)
        self.closed = waiting.unsettled(snapshot.nodes, snapshot.nodepools, snapshot.taken_at)
        """Nodes that take no pods of others now, or their consolidateAfter would begin again."""
        self.balance = Balance(a_round)
        self.moves: list[Move] = []
        """Moves weighed so far."""

    @cached_property
    def ledger(self) -> Ledger:
        """What was moved lately; read when the first command asks."""
        return Ledger(self._round.snapshot, self._round.restarts, self._round.remembered)

    def eligible(self) -> tuple[list[Candidate], list[Verdict]]:
        """Return the nodes consolidation is for, most worth first, and why it is not for the others."""
        found, verdicts = [], []
        for candidate in self._round.candidates:
            why = why_not(candidate, self._method, self._round.snapshot.taken_at)
            if why is None:
                found.append(candidate)
            else:
                verdicts.append(why)
        return by_worth(found), verdicts

    def taking(
        self, candidates: Sequence[Candidate], *, most: int = 1, budget: Budget | None = None
    ) -> Command | Verdict:
        """Return the command that takes `candidates` away, approved by all, or why there is none.

        For all of them at most so many nodes are bought; `budget` is for finding cheaper ones.
        """
        if most == 1:
            outcome = simulated(self._round, candidates, self.closed)
        else:
            outcome = self._round.simulator.without(candidates, closed=self.closed, budget=budget)
        return self._final(candidates, outcome, most)

    def rehearsed(
        self, candidates: Sequence[Candidate], budget: Budget, first: Sequence[str]
    ) -> tuple[Command | Verdict, Rehearsal]:
        """Return what `taking` might, sooner, unchecked, and asking nobody for approval.

        Nodes named in `first` take pods before the others, in this order.
        """
        simulator = self._round.simulator
        rehearsal = simulator.rehearsed(candidates, closed=self.closed, budget=budget, first=first)
        outcome = rehearsal.outcome
        return self._command(candidates, outcome, len(outcome.claims)), rehearsal

    def confirmed(
        self, candidates: Sequence[Candidate], rehearsal: Rehearsal, *, most: int, budget: Budget
    ) -> Command | Verdict:
        """Return the command of a rehearsal for `candidates`, checked and approved, or why there is none."""
        return self._final(candidates, self._round.simulator.confirmed(rehearsal, budget), most)

    def _command(self, candidates: Sequence[Candidate], outcome: Outcome, most: int) -> Command | Verdict:
        return replacement_of(
            candidates, outcome, self.market, self._round.policy, method=self._method, most=most
        )

    def _final(self, candidates: Sequence[Candidate], outcome: Outcome, most: int) -> Command | Verdict:
        found = self._command(candidates, outcome, most)
        if isinstance(found, Command) and len(candidates) > 1:
            found = without_same_types(found, self.market)
        if isinstance(found, Command):
            found = without_returns(found, self.market, self.ledger)
        return found if isinstance(found, Verdict) else self._approved(found)

    def _approved(self, command: Command) -> Command | Verdict:
        """Return `command`, unless its pools' policies or what was done before speak against it."""
        first = command.candidates[0].node.name
        moves = self.balance.weigh(command)
        self.moves.extend(moves)
        rejected = next((move for move in moves if not move.approved), None)
        if rejected is not None:
            return self.balance.verdict(command, rejected)
        objection = self._round.objection(command)
        if objection is not None:
            return objection.about(first, self._method, saving=command.savings)
        return command
