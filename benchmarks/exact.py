"""How much of a gap is slack of the bound: a higher bound, by exact pricing.

The planner's bound lets pods be split over fractions of nodes. This one takes whole fillings of nodes only:
column generation as in the search, then the best filling of every offer at its prices by integer programming
(HiGHS), until none is worth more than its node or the time is over. Prices scaled down such that no filling
is worth more than its node prove a bound (Farley). `python benchmarks/gap.py --exact 60` prints it.
"""

from collections.abc import Callable
from time import process_time

import highspy
import numpy as np
import numpy.typing as npt

from karpenter.base.draws import seeded_draws
from karpenter.scheduling.search import PackingProblem
from karpenter.scheduling.search.bounds import ResourcePrices, least_worth
from karpenter.scheduling.search.generation import Generation
from karpenter.scheduling.search.proof import proof_of
from karpenter.scheduling.search.space import NOTHING, Space, space_of

Floats = npt.NDArray[np.float64]
_GAIN = 1e-6
_GENERATING = 0.5
"""Share of the time for column generation by the search's own moves."""
_MIP_SECONDS = 2.0
_SMOOTH = 0.7


def exact_bound(problem: PackingProblem, seconds: float) -> float:
    """Return the best bound found in so many CPU seconds, at least that of fractions; limits are left out."""
    end = process_time() + seconds
    space = space_of(problem)
    if not len(space.demand) or not len(space.price):
        return 0.0
    prices = ResourcePrices(space)
    prices.run(lambda: process_time() < end)
    best = proof_of(space, prices).usd
    unlimited = space._replace(usage=space.usage[:, :0], remaining=space.remaining[:0], cost=space.price)
    generation = Generation(unlimited, seeded_draws(0), prices.prices)
    half = process_time() + seconds * _GENERATING
    generation.run(lambda: process_time() < half, 10_000, 12)
    centre = least_worth(space, prices.prices)
    while process_time() < end and generation.master.solve():
        # Prices near those of the best bound so far swing less from round to round.
        worth = _SMOOTH * centre + (1 - _SMOOTH) * generation.master.worth
        bound, proven, found = _priced(unlimited, generation, worth, lambda: process_time() < end)
        if bound > best:
            best, centre = bound, proven
        if not found:
            bound, proven, found = _priced(
                unlimited, generation, generation.master.worth, lambda: process_time() < end
            )
            if bound > best:
                best, centre = bound, proven
            if not found:
                break
    return best


def _priced(
    space: Space, generation: Generation, worth: Floats, more: Callable[[], bool]
) -> tuple[float, Floats, bool]:
    """Price every offer exactly by `worth` [ask].

    Return the bound that this proves, the prices that prove it, and whether fillings were added.
    """
    offers = np.arange(len(space.price))
    ratio = generation.scales.refine(worth, offers, seeded_draws(1), 40) / space.price
    worst, added = 1.0, 0
    for offer in np.argsort(-ratio, kind="stable").tolist():
        if ratio[offer] <= worst:
            break  # not even by the fractional bound is it worth more
        if not more():
            worst = max(worst, float(ratio[offer]))
            break
        most, counts = _best_filling(space, offer, worth)
        worst = max(worst, most / float(space.price[offer]))
        if counts @ generation.master.worth > space.price[offer] * (1 + _GAIN):
            added += generation.learn(np.array([offer]), counts[None, :])
    value = float(worth @ space.demand) * (1 - 1e-9)
    return value / worst, worth / worst, added > 0


def _best_filling(space: Space, offer: int, worth: Floats) -> tuple[float, Floats]:
    """Return what a filling of the offer is worth at most, and the best one found."""
    asks = np.flatnonzero((space.cap[offer] > 0) & (worth > 0))
    wanted = np.where(space.wanted[:, asks] <= NOTHING, 0.0, space.wanted[:, asks])
    rows = np.flatnonzero(wanted.any(axis=1))
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("mip_rel_gap", 1e-5),
        ("time_limit", _MIP_SECONDS),
    ):
        solver.setOptionValue(option, value)
    program = highspy.HighsLp()
    count = len(asks)
    program.num_col_, program.num_row_ = count, len(rows)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = worth[asks]
    program.col_lower_ = np.zeros(count)
    program.col_upper_ = np.minimum(space.cap[offer, asks], space.demand[asks])
    program.row_lower_ = np.full(len(rows), -highspy.kHighsInf)
    scale = np.maximum(np.floor(space.room[rows, offer]), 1.0)
    program.row_upper_ = np.floor(space.room[rows, offer]) / scale
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.arange(len(rows) + 1, dtype=np.int32) * count
    program.a_matrix_.index_ = np.tile(np.arange(count, dtype=np.int32), len(rows))
    program.a_matrix_.value_ = (wanted[rows] / scale[:, None]).ravel()
    program.integrality_ = [highspy.HighsVarType.kInteger] * count
    solver.passModel(program)
    solver.run()
    info = solver.getInfo()
    counts = np.zeros(len(space.demand))
    solution = np.array(solver.getSolution().col_value)
    if len(solution) == count:
        counts[asks] = np.floor(solution + 1e-6)
    over = (np.where(space.wanted <= NOTHING, 0.0, space.wanted) @ counts > space.room[:, offer]).any()
    return float(info.mip_dual_bound) * (1 + 1e-7), counts * 0 if over else counts
