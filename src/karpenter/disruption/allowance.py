"""What is left of the pools' budgets while a method takes one node after the other."""

from functools import cached_property

from karpenter.disruption.budgets import PoolBudget, Reason, pool_budget
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.rounds import Round
from karpenter.disruption.verdicts import Method, Verdict


class Allowance:
    """The budgets of all pools for one reason, in one round."""

    def __init__(self, a_round: Round, reason: Reason, method: Method) -> None:
        """Begin with what the round leaves."""
        self._round = a_round
        self._reason: Reason = reason
        self._method: Method = method
        self._left = dict(a_round.remaining.get(reason, {}))
        self.bound = False
        """Whether it ever refused a node."""

    def left(self, pool: str) -> int:
        """Return how many more nodes of a pool may go."""
        return max(0, self._left.get(pool, 0))

    def take(self, candidate: Candidate) -> Verdict | None:
        """Count a node as going; return why it may not when its pool's budget is used up."""
        refusal = self.refusal(candidate)
        if refusal is None:
            self._left[candidate.pool.name] -= 1
        return refusal

    def refusal(self, candidate: Candidate) -> Verdict | None:
        """Return why the node may not go; None when the budget of its pool allows it."""
        pool = candidate.pool.name
        if self.left(pool) > 0:
            return None
        self.bound = True
        return Verdict(
            node=candidate.node.name,
            method=self._method,
            code="budget",
            message=f'NodePool "{pool}" allows no more disruptions for reason {self._reason} now',
            remedy=self._remedies.get(pool, ""),
        )

    @cached_property
    def _remedies(self) -> dict[str, str]:
        snapshot = self._round.snapshot
        return {
            pool.name: self._remedy(
                pool.name, pool_budget(pool, snapshot.nodes, self._reason, snapshot.taken_at)
            )
            for pool in snapshot.nodepools
        }

    def _remedy(self, pool: str, budget: PoolBudget) -> str:
        """Return what would let one more node of the pool go."""
        more = f"let the budgets of nodepool/{pool} allow {budget.disrupting + 1} for reason {self._reason}"
        if not budget.allowed:
            return more
        return f"wait until fewer than {budget.allowed} of its nodes are going or not ready, or {more}"
