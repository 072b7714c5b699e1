"""A price below which no plan for the same pods can go."""

from collections.abc import Sequence

import highspy
import numpy as np

from karpenter.scheduling.catalogue import Amounts, Prices
from karpenter.scheduling.space import PoolSpace

_SLACK = 1e-9


def lower_bound(spaces: Sequence[PoolSpace], demand: Amounts, free: Amounts) -> float:
    """Return the USD per hour that `demand`, less all that is `free` on existing nodes, costs at least.

    Give every resource a price per unit, such that no type that any pool can buy has resources worth more
    than it costs. Then whatever is bought costs at least what the resources in need are worth. The best such
    prices are those of a linear program's resources; any prices give a valid bound, so its answer
    is scaled down to where rounding cannot hurt. What there is only so much of may be worth more
    than it costs: the difference is taken off, as often as there is some of it.
    """
    needed = np.maximum(demand - np.maximum(free, 0), 0).astype(np.float64)
    columns = np.flatnonzero(needed)
    rooms, prices = _purchasable(spaces)
    if not len(columns) or not len(prices):
        return 0.0
    rooms = rooms[:, columns]
    scale = np.maximum(rooms.max(axis=0), 1.0)
    worth = _unit_prices(rooms / scale, prices, needed[columns] / scale)
    # Each column counts only as far as some type has it: what nobody sells cannot be part of a plan.
    worth = np.where(rooms.max(axis=0) > 0, np.maximum(worth, 0.0), 0.0)
    worst = ((rooms / scale) @ worth / prices).max() if len(prices) else 1.0
    worth = worth / max(worst, 1.0) / scale
    gain = _gain_by_lots(spaces, columns, worth)
    return max(0.0, float(needed[columns] @ worth) - gain) * (1 - _SLACK)


def _gain_by_lots(spaces: Sequence[PoolSpace], columns: Amounts, worth: Prices) -> float:
    """Return by how much all that is scarce is worth more than it costs, USD per hour."""
    best: dict[str, float] = {}
    for space in spaces:
        if not space.catalogue.lots:
            continue
        of_type, _, usd = space.catalogue.open_offerings(0.0)
        here = space.catalogue.offerings_for(space.requirements, space.well_known) & space.usable[of_type]
        values = space.room[of_type][:, columns] @ worth - usd
        for lot, value, open_ in zip(
            space.catalogue.offering_lots(), values.tolist(), here.tolist(), strict=True
        ):
            if open_:
                best[lot] = max(value, best.get(lot, 0.0))
    offered = spaces[0].ledger.offered if spaces else {}
    return sum(value * offered.get(lot, 0) for lot, value in best.items())


def _purchasable(spaces: Sequence[PoolSpace]) -> tuple[Amounts, Prices]:
    """Return room and price of every type that any pool can buy and that is not beaten in both by another."""
    rooms: list[Amounts] = []
    prices: list[Prices] = []
    for space in spaces:
        offered = space.catalogue.evaluate(space.unlimited, space.well_known).usd
        usable = space.usable & np.isfinite(offered) & (offered > 0)
        rooms.append(space.room[usable])
        prices.append(offered[usable])
        if (space.usable & (offered == 0)).any():
            return np.zeros((0, space.room.shape[1]), dtype=np.int64), np.zeros(0)
    if not rooms:
        return np.zeros((0, 0), dtype=np.int64), np.zeros(0)
    return np.concatenate(rooms), np.concatenate(prices)


def _unit_prices(rooms: Prices, prices: Prices, needed: Prices) -> Prices:
    """Return the unit prices that make `needed` worth most, no row of `rooms` exceeding its price.

    They are the duals of buying fractions of types so that `needed` is there: few rows, which is quicker.
    """
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off")):
        solver.setOptionValue(option, value)
    types, count = rooms.shape
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = types, count
    program.col_cost_ = prices
    program.col_lower_, program.col_upper_ = np.zeros(types), np.full(types, highspy.kHighsInf)
    program.row_lower_, program.row_upper_ = needed, np.full(count, highspy.kHighsInf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.arange(types + 1, dtype=np.int32) * count
    program.a_matrix_.index_ = np.tile(np.arange(count, dtype=np.int32), types)
    program.a_matrix_.value_ = rooms.ravel()
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return np.zeros(count)
    return np.array(solver.getSolution().row_dual)
