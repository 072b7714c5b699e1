"""The linear program over fillings: how many nodes of each, and what a pod is worth.

Minimise the cost of nodes such that all pods are placed and no limit is exceeded. Rows are asks, then limits;
columns are fillings. A dear column per ask for leaving pods out keeps it solvable. HiGHS's simplex goes on
from the last basis when columns are added.
"""

import highspy
import numpy as np

from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search.space import Matrix, Space

_INFINITE = highspy.kHighsInf
_ITERATIONS = 400
"""Simplex iterations per call: keeps a step short on large programs."""


class Master:
    """The program and its columns; columns are numbered in the order they were added."""

    def __init__(self, space: Space, leaving_out: Matrix) -> None:
        """Start without fillings. `leaving_out` [ask] is what a pod on no node costs, USD per hour."""
        self._space = space
        self._asks = len(space.demand)
        self._seen: set[bytes] = set()
        self.offer = np.zeros(0, dtype=np.int64)
        self.counts: Matrix = np.zeros((0, self._asks))
        self.cost: Matrix = np.zeros(0)
        self.amount: Matrix = np.zeros(0)
        """[column] How many nodes of each filling the last solution has."""
        self.worth: Matrix = leaving_out.copy()
        """[ask] USD per hour that a pod is worth."""
        self.limit_worth: Matrix = np.zeros(len(space.remaining))
        """[limit] USD per hour that a unit of the limit is worth, 0 or more."""
        self.objective = np.inf
        self._solver = self._empty(leaving_out)

    def _empty(self, leaving_out: Matrix) -> highspy.Highs:
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("simplex_strategy", 4),
            ("simplex_iteration_limit", _ITERATIONS),
        ):
            solver.setOptionValue(option, value)
        limits = len(self._space.remaining)
        rows = self._asks + limits
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = self._asks, rows
        program.col_cost_ = leaving_out
        program.col_lower_, program.col_upper_ = np.zeros(self._asks), np.full(self._asks, _INFINITE)
        program.row_lower_ = np.concatenate([self._space.demand, np.full(limits, -_INFINITE)])
        program.row_upper_ = np.concatenate([np.full(self._asks, _INFINITE), self._space.remaining])
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = np.arange(self._asks + 1, dtype=np.int32)
        program.a_matrix_.index_ = np.arange(self._asks, dtype=np.int32)
        program.a_matrix_.value_ = np.ones(self._asks)
        solver.passModel(program)
        return solver

    def add(self, offers: Amounts, counts: Matrix, cost: Matrix) -> int:
        """Add fillings that are not there yet; return how many were new."""
        new = self._unseen(offers, counts)
        if not new.any():
            return 0
        offers, counts, cost = offers[new], counts[new], cost[new]
        usage = self._space.usage[offers].astype(np.float64)
        block = np.concatenate([counts, usage], axis=1)
        column, row = np.nonzero(block)
        starts = np.searchsorted(column, np.arange(len(offers))).astype(np.int32)
        self._solver.addCols(
            len(offers),
            cost,
            np.zeros(len(offers)),
            np.full(len(offers), _INFINITE),
            len(row),
            starts,
            row.astype(np.int32),
            block[column, row],
        )
        self.offer = np.concatenate([self.offer, offers])
        self.counts = np.concatenate([self.counts, counts])
        self.cost = np.concatenate([self.cost, cost])
        return len(offers)

    def _unseen(self, offers: Amounts, counts: Matrix) -> Mask:
        packed = np.concatenate([offers[:, None], counts], axis=1).astype(np.int32)
        new = np.zeros(len(offers), dtype=np.bool_)
        for place, row in enumerate(packed):
            key = row.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                new[place] = True
        return new

    def solve(self) -> bool:
        """Go on solving; return whether an optimum was reached, and then take over amounts and worths."""
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return False
        solution = self._solver.getSolution()
        duals = np.array(solution.row_dual)
        self.worth = np.maximum(duals[: self._asks], 0.0)
        self.limit_worth = np.maximum(-duals[self._asks :], 0.0)
        self.amount = np.array(solution.col_value)[self._asks :]
        self.objective = float(self._solver.getInfo().objective_function_value)
        return True

    def effective_cost(self, limit_worth: Matrix) -> Matrix:
        """Return [offer] what a node costs, what it takes of scarce limits included."""
        found: Matrix = self._space.cost + self._space.usage @ limit_worth
        return found
