"""What any plan must cost: resource prices per offer, made as high as the offers' own prices allow.

Price the resources of each offer such that its room is worth no more than the node costs. Then a pod is
worth at least what its requests are worth on the offer where they are worth least, and any plan that places
all pods costs at least the sum. Any such prices give a bound; the best are the dual of the program in which
pods may be split over fractions of nodes. It is solved with few offers and few rows; more come as needed.
"""

from collections.abc import Callable

import highspy
import numpy as np

from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search.space import NOTHING, Matrix, Space

_ROUNDING = 1e-9
_TOLERANCE = 1e-6
_OFFERS_AT_ONCE = 6
_ROWS_PER_ASK = 2
_CELLS = 400_000


class ResourcePrices:
    """The dual program of a space, resumable between steps."""

    def __init__(self, space: Space) -> None:
        """Prepare with the offer on which each pod's even share of a node is cheapest."""
        self.space = space
        self._wanted = np.where(space.wanted <= NOTHING, 0.0, space.wanted)
        self._room = np.floor(space.room)
        self._holds: Mask = space.cap > 0
        even = even_prices(space)
        self.prices: Matrix = even
        """[resource, offer] The best found so far, USD per hour and unit."""
        self.bound = total(space, even)
        share = np.where(self._holds, even.T @ self._wanted, np.inf)
        self._active: list[int] = []
        self._rows: Mask = np.zeros(self._holds.shape, dtype=np.bool_)
        self._solver = self._empty()
        asks = np.flatnonzero(space.demand)
        self._activate(np.unique(share[:, asks].argmin(axis=0)) if len(asks) else np.zeros(0, dtype=np.int64))

    def run(self, more: Callable[[], bool]) -> bool:
        """Raise the bound until it is as high as it gets; return False when `more` ended it."""
        while self._active:
            self._solver.run()
            if not more():
                return False
            if self._solver.getModelStatus() == highspy.HighsModelStatus.kIterationLimit:
                continue
            if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return True
            solution = np.array(self._solver.getSolution().col_value)
            asks, resources = len(self.space.demand), len(self._room)
            worth = solution[:asks]
            prices = solution[asks:].reshape(len(self._active), resources)
            if self._add_rows(worth, prices):
                continue
            missed = self._evaluate(worth, prices)
            if not more():
                return False
            if not len(missed):
                return True
            self._activate(missed)
        return True

    def _empty(self) -> highspy.Highs:
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("simplex_iteration_limit", 300),
        ):
            solver.setOptionValue(option, value)
        alone = np.where(self._holds, self.space.price[:, None], np.inf).min(axis=0, initial=np.inf)
        count = len(self.space.demand)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = count, 0
        program.sense_ = highspy.ObjSense.kMaximize
        program.col_cost_ = self.space.demand.astype(np.float64)
        program.col_lower_ = np.zeros(count)
        program.col_upper_ = np.where(np.isfinite(alone), alone, 0.0)
        program.row_lower_, program.row_upper_ = np.zeros(0), np.zeros(0)
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = np.zeros(count + 1, dtype=np.int32)
        solver.passModel(program)
        return solver

    def _activate(self, offers: Amounts) -> None:
        """Give `offers` resource prices of their own in the program."""
        resources = len(self._room)
        for offer in offers.tolist():
            first = len(self.space.demand) + len(self._active) * resources
            none = np.zeros(0, dtype=np.int32)
            self._solver.addCols(
                resources,
                np.zeros(resources),
                np.zeros(resources),
                np.full(resources, highspy.kHighsInf),
                0,
                none,
                none,
                np.zeros(0),
            )
            room = self._room[:, offer]
            used = np.flatnonzero(room > 0)
            self._solver.addRow(
                -highspy.kHighsInf,
                float(self.space.price[offer]),
                len(used),
                (first + used).astype(np.int32),
                room[used],
            )
            self._active.append(offer)

    def _add_rows(self, worth: Matrix, prices: Matrix) -> bool:
        """Add rows that hold a pod's worth to what its requests are worth, where they don't; few per ask."""
        active = np.array(self._active)
        excess = worth[None, :] - prices @ self._wanted
        excess[~self._holds[active] | self._rows[active]] = 0.0
        excess[excess <= _TOLERANCE * np.maximum(worth, 1e-9)] = 0.0
        order = np.argsort(-excess, axis=0, kind="stable")[:_ROWS_PER_ASK]
        place, ask = order.ravel(), np.tile(np.arange(excess.shape[1]), len(order))
        wrong = excess[place, ask] > 0
        place, ask = place[wrong], ask[wrong]
        if not len(ask):
            return False
        resources, asks = len(self._room), len(self.space.demand)
        columns = asks + place[:, None] * resources + np.arange(resources)
        index = np.concatenate([ask[:, None], columns], axis=1).astype(np.int32)
        values = np.concatenate([np.ones((len(ask), 1)), -self._wanted[:, ask].T], axis=1)
        size = resources + 1
        self._solver.addRows(
            len(ask),
            np.full(len(ask), -highspy.kHighsInf),
            np.zeros(len(ask)),
            len(ask) * size,
            np.arange(len(ask), dtype=np.int32) * size,
            index.ravel(),
            values.ravel(),
        )
        self._rows[active[place], ask] = True
        return True

    def _evaluate(self, worth: Matrix, prices: Matrix) -> Amounts:
        """Extend `prices` to all offers, keep them if they are better; return offers that need their own."""
        space = self.space
        candidates = np.concatenate([prices, (self.prices / space.price).T])
        candidates = candidates[candidates.sum(axis=1) > 0]
        value = candidates @ self._wanted
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(worth > 0, value / worth, np.inf)
        lowest = np.stack([_lowest(ratio, kind) for kind in self._kinds()], axis=1)
        full = candidates @ self._room
        score = lowest[:, self._kind_of] * np.where(full > 0, space.price / np.maximum(full, 1e-30), 0.0)
        best = score.argmax(axis=0)
        offers = np.arange(len(space.price))
        chosen = candidates[best].T * (space.price / np.maximum(full[best, offers], 1e-30))
        bound = total(space, chosen)
        if bound > self.bound:
            self.bound, self.prices = bound, chosen
        short = score[best, offers]
        short[self._active] = 1.0
        worst = np.argsort(short, kind="stable")[:_OFFERS_AT_ONCE]
        missed: Amounts = worst[short[worst] < 1 - _TOLERANCE]
        return missed

    def _kinds(self) -> Mask:
        """Return [kind, ask] the distinct sets of asks that offers hold; `_kind_of` has each offer's."""
        if not hasattr(self, "_distinct"):
            packed = np.packbits(self._holds, axis=1)
            _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
            self._distinct: Mask = self._holds[first]
            self._kind_of: Amounts = inverse.ravel()
        return self._distinct


def _lowest(ratio: Matrix, kind: Mask) -> Matrix:
    found: Matrix = ratio[:, kind].min(axis=1, initial=1e100)
    return np.minimum(found, 1e100)


def even_prices(space: Space) -> Matrix:
    """Return [resource, offer] prices that share an offer's price evenly among the resources it has."""
    room = np.floor(space.room)
    has = room > 0
    share = np.where(has, space.price / np.maximum(has.sum(axis=0), 1), 0.0)
    return np.where(has, share / np.maximum(room, 1.0), 0.0)


def total(space: Space, prices: Matrix) -> float:
    """Return what all pods are worth by `prices` [resource, offer], which must be worth no node's price."""
    wanted = np.where(space.wanted <= NOTHING, 0.0, space.wanted)
    worth = 0.0
    step = max(1, _CELLS // max(len(space.price), 1))
    for first in range(0, len(space.demand), step):
        part = slice(first, first + step)
        least = np.where(space.cap[:, part] > 0, prices.T @ wanted[:, part], np.inf).min(
            axis=0, initial=np.inf
        )
        worth += float(np.where(np.isfinite(least), least, 0.0) @ space.demand[part])
    return worth * (1 - _ROUNDING)
