"""Filling many nodes at once: the kernels that pricing and repair are made of.

Rows are nodes to fill. A row has what is left of its room, [resource, row] plus one half, and how many more
pods of each ask it may take, [row, ask]; both are used up in place. Whole numbers are kept as floats.
"""

import numpy as np

from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.search.space import Matrix


def fill_in_order(wanted: Matrix, left: Matrix, cap: Matrix, order: Amounts, apart: Mask | None) -> Matrix:
    """Fill each row with as many pods as fit of each ask in turn; return [row, ask] pods placed.

    `order` is [place, row]: which ask a row turns to at each place; not all asks need be in it.
    """
    counts = np.zeros_like(cap)
    rows, asks = cap.shape
    base = np.arange(rows) * asks
    flat_cap, flat_counts = cap.reshape(-1), counts.reshape(-1)
    for turn in order:
        at = base + turn
        allowed = flat_cap[at]
        each = wanted[:, turn]
        pods = np.minimum(np.floor((left / each).min(axis=0)), allowed)
        left -= pods * each
        flat_counts[at] += pods
        flat_cap[at] = allowed - pods
        if apart is not None:
            cap[apart[turn] & (pods > 0)[:, None]] = 0.0
    return counts


def fill_adaptively(
    wanted: Matrix, left: Matrix, cap: Matrix, worth: Matrix, apart: Mask | None, portion: float = 0.34
) -> Matrix:
    """Fill each row with the ask worth most for its scarcest share of what is left; return pods placed.

    `worth` is [ask]. At most `portion` of what fits is taken at once, because shares change.
    """
    counts = np.zeros_like(cap)
    rows = np.arange(len(cap))
    while True:
        share = wanted[0][None, :] / left[0][:, None]
        for amounts, space in zip(wanted[1:], left[1:], strict=True):
            np.maximum(share, amounts[None, :] / space[:, None], out=share)
        score = np.where((cap > 0) & (share <= 1.0), worth / share, 0.0)
        turn = score.argmax(axis=1)
        good = score[rows, turn] > 0
        if not good.any():
            return counts
        fits = np.floor(1.0 / share[rows, turn])
        pods = np.minimum(np.maximum(np.floor(fits * portion), 1.0), cap[rows, turn]) * good
        counts[rows, turn] += pods
        cap[rows, turn] -= pods
        left -= pods * wanted[:, turn]
        if apart is not None:
            cap[apart[turn] & (pods > 0)[:, None]] = 0.0


def density_order(
    wanted: Matrix, room: Matrix, cap: Matrix, worth: Matrix, weight: Matrix, longest: int
) -> Amounts:
    """Return [place, row] the asks by falling worth per weighted share of the row's room.

    `worth` is [ask] or [row, ask], `weight` [resource, row]. Asks that a row may not take or that are worth
    nothing come last; at most `longest` places are returned.
    """
    density = densities(wanted, room, cap, worth, weight)
    last = min(int((density > 0).sum(axis=1).max(initial=0)), longest)
    return np.argsort(-density, axis=1, kind="stable")[:, :last].T


def densities(wanted: Matrix, room: Matrix, cap: Matrix, worth: Matrix, weight: Matrix) -> Matrix:
    """Return [row, ask] worth per weighted share of the room; 0 where the row may not take the ask."""
    share = (weight / room).T @ wanted
    found: Matrix = np.where(cap > 0, worth / np.maximum(share, 1e-30), 0.0)
    return found
