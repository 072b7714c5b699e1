"""What any plan must cost: resource prices per offer, made as high as the offers' own prices allow.

Price the resources of each offer such that its room is worth no more than the node costs. Then a pod is
worth at least what its requests are worth on the offer where they are worth least, and any plan that places
all pods costs at least the sum. Any such prices give a bound. The best are the duals of a linear program:
pods may be split over fractions of nodes. It begins with few offers and few places for pods on them; more are
added while the prices show that they are missed.

Limits have prices too: what takes of a limit costs that much more, and the whole limit's worth is taken off.
"""

from collections.abc import Callable

import highspy
import numpy as np
import numpy.ma  # np.unique would load it in the middle of the first search, for a tenth of a second

from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search.space import NOTHING, Matrix, Space

_ROUNDING = 1e-9
_TOLERANCE = 1e-6
_OFFERS_AT_ONCE = 6
_PLACES_PER_ASK = 2
_ITERATIONS = 200
_CELLS = 400_000
_DEAR = 20.0
"""How much more than a node of its own a pod may cost where limits bind."""


class ResourcePrices:
    """The program of fractions of a space, resumable between steps."""

    def __init__(self, space: Space) -> None:
        """Prepare with the offer on which each pod's even share of a node is cheapest."""
        self.space = space
        self._wanted = np.where(space.wanted <= NOTHING, 0.0, space.wanted)
        self._room = np.floor(space.room)
        self._holds: Mask = space.cap > 0
        self._kind_of, self._kinds = _kinds(self._holds)
        self.prices: Matrix = even_prices(space)
        """[resource, offer] The best found so far, USD per hour and unit."""
        self.toll: Matrix = np.zeros(len(space.remaining))
        """[limit] USD per hour and unit that go with them."""
        self.bound = total(space, self.prices)
        self._tight = np.flatnonzero((space.usage > 0).any(axis=0) & (space.remaining > 0))
        self._usage = space.usage[:, self._tight] / np.maximum(space.remaining[self._tight], 1)
        """[offer, limit] Shares of what is left."""
        self._first = len(space.demand) + len(self._tight)
        self._kept: Matrix = np.zeros((0, len(space.room)))
        """[candidate, resource] Prices that were the best for some offer the last time."""
        self._active: list[int] = []
        self._placed: Mask = np.zeros(self._holds.shape, dtype=np.bool_)
        self._solver = self._empty()
        share = np.where(self._holds, self.prices.T @ self._wanted, np.inf)
        asks = np.flatnonzero(space.demand)
        if len(asks):
            self._activate(np.unique(share[:, asks].argmin(axis=0)))

    def run(self, more: Callable[[], bool]) -> bool:
        """Raise the bound until it is as high as it gets; return False when `more` ended it."""
        asks, resources = len(self.space.demand), len(self._room)
        while self._active:
            self._solver.run()
            if not more():
                return False
            status = self._solver.getModelStatus()
            if status == highspy.HighsModelStatus.kIterationLimit:
                continue
            if status != highspy.HighsModelStatus.kOptimal:
                return True
            duals = np.array(self._solver.getSolution().row_dual)
            worth = np.maximum(duals[:asks], 0.0)
            toll = np.maximum(-duals[asks : self._first], 0.0)
            active = np.array(self._active)
            room = self._room[:, active].T
            shares = np.maximum(duals[self._first :], 0.0)
            prices = np.where(room > 0, shares.reshape(-1, resources) / np.maximum(room, 1.0), 0.0)
            if self._place(worth, prices):
                continue
            missed = self._evaluate(worth, prices, toll)
            if not more():
                return False
            if not len(missed):
                return True
            self._activate(missed)
        return True

    def _empty(self) -> highspy.Highs:
        """Return the program without offers: every pod can be placed for the price of a node of its own."""
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("simplex_strategy", 4),  # primal: columns come, the basis stays feasible
            ("simplex_iteration_limit", _ITERATIONS),
        ):
            solver.setOptionValue(option, value)
        alone = np.where(self._holds, self.space.price[:, None], np.inf).min(axis=0, initial=np.inf)
        count, limits = len(self.space.demand), len(self._tight)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = count, count + limits
        program.col_cost_ = np.where(np.isfinite(alone), alone * (_DEAR if limits else 1.0), 0.0)
        program.col_lower_, program.col_upper_ = np.zeros(count), np.full(count, highspy.kHighsInf)
        program.row_lower_ = np.concatenate([self.space.demand, np.full(limits, -highspy.kHighsInf)])
        program.row_upper_ = np.concatenate([np.full(count, highspy.kHighsInf), np.ones(limits)])
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = np.arange(count + 1, dtype=np.int32)
        program.a_matrix_.index_ = np.arange(count, dtype=np.int32)
        program.a_matrix_.value_ = np.ones(count)
        solver.passModel(program)
        return solver

    def _activate(self, offers: Amounts) -> None:
        """Let the program buy `offers`: a row per resource, in shares of a node, and a column each."""
        resources, number = len(self._room), len(offers)
        first = self._first + len(self._active) * resources
        none = np.zeros(0, dtype=np.int32)
        rows = number * resources
        self._solver.addRows(
            rows, np.zeros(rows), np.full(rows, highspy.kHighsInf), 0, none, none, np.zeros(0)
        )
        own = np.arange(first, first + rows).reshape(number, resources)
        limits = np.arange(len(self.space.demand), self._first)
        entries = np.concatenate([np.tile(limits, (number, 1)), own], axis=1)
        amounts = np.concatenate([self._usage[offers], self._room[:, offers].T > 0], axis=1)
        size = entries.shape[1]
        self._solver.addCols(
            number,
            self.space.price[offers],
            np.zeros(number),
            np.full(number, highspy.kHighsInf),
            number * size,
            np.arange(number, dtype=np.int32) * size,
            entries.astype(np.int32).ravel(),
            amounts.astype(np.float64).ravel(),
        )
        self._active += offers.tolist()

    def _place(self, worth: Matrix, prices: Matrix) -> bool:
        """Let pods be on active offers where they are worth more than what they take; few per ask."""
        active = np.array(self._active)
        excess = worth[None, :] - prices @ self._wanted
        excess[~self._holds[active] | self._placed[active]] = 0.0
        excess[excess <= _TOLERANCE * np.maximum(worth, 1e-9)] = 0.0
        order = np.argsort(-excess, axis=0, kind="stable")[:_PLACES_PER_ASK]
        place, ask = order.ravel(), np.tile(np.arange(excess.shape[1]), len(order))
        wrong = excess[place, ask] > 0
        place, ask = place[wrong], ask[wrong]
        if not len(ask):
            return False
        resources = len(self._room)
        room = self._room[:, active[place]]
        share = np.where(room > 0, self._wanted[:, ask] / np.maximum(room, 1.0), 0.0).T
        rows = self._first + place[:, None] * resources + np.arange(resources)
        size = resources + 1
        self._solver.addCols(
            len(ask),
            np.zeros(len(ask)),
            np.zeros(len(ask)),
            np.full(len(ask), highspy.kHighsInf),
            len(ask) * size,
            np.arange(len(ask), dtype=np.int32) * size,
            np.concatenate([ask[:, None], rows], axis=1).astype(np.int32).ravel(),
            np.concatenate([np.ones((len(ask), 1)), -share], axis=1).ravel(),
        )
        self._placed[active[place], ask] = True
        return True

    def _evaluate(self, worth: Matrix, prices: Matrix, toll: Matrix) -> Amounts:
        """Extend `prices` to all offers, keep them if they are better; return offers that need their own."""
        space = self.space
        candidates = np.concatenate([prices, self._kept])
        candidates = candidates[candidates.sum(axis=1) > 0]
        if not len(candidates):
            return np.zeros(0, dtype=np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(worth > 0, candidates @ self._wanted / worth, np.inf)
        lowest = np.stack([_lowest(ratio, kind) for kind in self._kinds], axis=1)
        full = candidates @ self._room
        price = space.price + self._usage @ toll
        score = lowest[:, self._kind_of] * np.where(full > 0, price / np.maximum(full, 1e-30), 0.0)
        best = score.argmax(axis=0)
        offers = np.arange(len(space.price))
        chosen = candidates[best].T * (price / np.maximum(full[best, offers], 1e-30))
        bound = total(space, chosen) - float(toll.sum())
        self._kept = candidates[np.unique(best)]
        if bound > self.bound:
            self.bound, self.prices = bound, chosen
            self.toll = np.zeros(len(space.remaining))
            self.toll[self._tight] = toll / np.maximum(space.remaining[self._tight], 1)
        short = score[best, offers]
        short[self._active] = 1.0
        worst = np.argsort(short, kind="stable")[:_OFFERS_AT_ONCE]
        missed: Amounts = worst[short[worst] < 1 - _TOLERANCE]
        return missed


def _kinds(holds: Mask) -> tuple[Amounts, Mask]:
    """Return the distinct rows of `holds` [offer, ask], and which of them each offer has."""
    packed = np.packbits(holds, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return inverse.reshape(-1), holds[first]


def _lowest(ratio: Matrix, kind: Mask) -> Matrix:
    found: Matrix = ratio[:, kind].min(axis=1, initial=1e100)
    return np.minimum(found, 1e100)


def even_prices(space: Space) -> Matrix:
    """Return [resource, offer] prices that share an offer's price evenly among the resources it has."""
    room = np.floor(space.room)
    has = room > 0
    share = np.where(has, space.price / np.maximum(has.sum(axis=0), 1), 0.0)
    return np.where(has, share / np.maximum(room, 1.0), 0.0)


def least_worth(space: Space, prices: Matrix) -> Matrix:
    """Return [ask] what a pod is worth by `prices` [resource, offer] where it is worth least."""
    wanted = np.where(space.wanted <= NOTHING, 0.0, space.wanted)
    worth = np.zeros(len(space.demand))
    step = max(1, _CELLS // max(len(space.price), 1))
    for first in range(0, len(space.demand), step):
        part = slice(first, first + step)
        least = np.where(space.cap[:, part] > 0, prices.T @ wanted[:, part], np.inf).min(
            axis=0, initial=np.inf
        )
        worth[part] = np.where(np.isfinite(least), least, 0.0)
    return worth


def total(space: Space, prices: Matrix) -> float:
    """Return what all pods are worth by `prices` [resource, offer], which must be worth no node's price."""
    return float(least_worth(space, prices) @ space.demand) * (1 - _ROUNDING)
