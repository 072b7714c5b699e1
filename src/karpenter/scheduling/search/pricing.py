"""Finding nodes that are worth more than they cost, for many offers at once."""

import numpy as np

from karpenter.base.draws import Draws
from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.search.fills import densities, density_order, fill_adaptively, fill_in_order
from karpenter.scheduling.search.scales import Scales
from karpenter.scheduling.search.space import Matrix, Space

_LONGEST = 96
_PAIRED = 20


class Found:
    """Fillings found, all offers and moves together: offer [row] and pods [row, ask]."""

    def __init__(self) -> None:
        """Start with none."""
        self._offers: list[Amounts] = []
        self._counts: list[Matrix] = []

    def add(self, offers: Amounts, counts: Matrix) -> None:
        """Add fillings."""
        self._offers.append(offers)
        self._counts.append(counts)

    def all(self) -> tuple[Amounts, Matrix]:
        """Return offers and counts of all fillings."""
        return np.concatenate(self._offers), np.concatenate(self._counts)


def fill_by_density(space: Space, scales: Scales, offers: Amounts, worth: Matrix) -> Matrix:
    """Fill a node of each of `offers` by density."""
    cap = space.cap[offers]
    room = space.room[:, offers]
    order = density_order(space.wanted, room, cap, worth, scales.weight[:, offers], _LONGEST)
    return fill_in_order(space.wanted, room.copy(), cap, order, space.apart)


def fill_greedily(space: Space, offers: Amounts, worth: Matrix) -> Matrix:
    """Fill a node of each of `offers` adaptively."""
    return fill_adaptively(space.wanted, space.room[:, offers].copy(), space.cap[offers], worth, space.apart)


def fill_pairs(
    space: Space, scales: Scales, offers: Amounts, worth: Matrix, kept: int
) -> tuple[Amounts, Matrix]:
    """Fill nodes of each of `offers` with the best pairs of asks first; return offers and counts.

    A pair fills the offer's two scarcest resources exactly; it is rounded down and the rest
    filled by density. `kept` pairs per offer, by their rounded worth, are filled up.
    """
    cap, room, weight = space.cap[offers], space.room[:, offers], scales.weight[:, offers]
    if len(room) < 2 or cap.shape[1] < 2:
        return offers[:0], cap[:0]
    density = densities(space.wanted, room, cap, worth, weight)
    number = min(_PAIRED, density.shape[1])
    best = np.argsort(-density, axis=1, kind="stable")[:, :number]
    left, right = np.triu_indices(number, 1)
    first, second = best[:, left], best[:, right]
    scarce = np.argsort(-weight, axis=0, kind="stable")[:2]
    rows = np.arange(len(offers))[:, None]
    one, two = _crossing(space, room, scarce, first, second)
    one = np.minimum(one, cap[rows, first])
    two = np.minimum(two, cap[rows, second])
    # What the crossing forgets: the other resources.
    fits = np.ones(one.shape, dtype=np.bool_)
    for amounts, limit in zip(space.wanted, room, strict=True):
        fits &= one * amounts[first] + two * amounts[second] <= limit[:, None]
    if space.apart is not None:
        fits &= ~space.apart[first, second]
    value = np.where(fits, one * worth[first] + two * worth[second], -1.0)
    chosen = np.argsort(-value, axis=1, kind="stable")[:, :kept]
    good = (value[rows, chosen] > 0).ravel()
    row = np.repeat(np.arange(len(offers)), chosen.shape[1])[good]
    place = chosen.ravel()[good]
    return _filled_up(
        space,
        offers[row],
        row,
        cap,
        density,
        ((first[row, place], one[row, place]), (second[row, place], two[row, place])),
    )


def _crossing(
    space: Space, room: Matrix, scarce: Amounts, first: Amounts, second: Amounts
) -> tuple[Matrix, Matrix]:
    """Return how many of each pair fill the two scarce resources exactly, rounded down and not below 0."""
    columns = np.arange(room.shape[1])
    high, low = room[scarce[0], columns][:, None], room[scarce[1], columns][:, None]
    a, b = space.wanted[scarce[0][:, None], first], space.wanted[scarce[0][:, None], second]
    c, d = space.wanted[scarce[1][:, None], first], space.wanted[scarce[1][:, None], second]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        det = a * d - b * c
        one, two = (high * d - low * b) / det, (low * a - high * c) / det
    sane = np.isfinite(one) & np.isfinite(two) & (one >= 0) & (two >= 0)
    return np.where(sane, np.floor(one), 0.0), np.where(sane, np.floor(two), 0.0)


def _filled_up(
    space: Space,
    offers: Amounts,
    row: Amounts,
    cap: Matrix,
    density: Matrix,
    placed: tuple[tuple[Amounts, Matrix], ...],
) -> tuple[Amounts, Matrix]:
    """Return fillings that begin with `placed`, (ask, pods) by row, and go on by density."""
    counts = np.zeros((len(row), cap.shape[1]))
    for asks, pods in placed:
        counts[np.arange(len(row)), asks] += pods
    return offers, topped_up(space, offers, counts, density[row], cap[row])


def topped_up(space: Space, offers: Amounts, counts: Matrix, density: Matrix, cap: Matrix) -> Matrix:
    """Return `counts` with more pods by falling `density`, as far as room and `cap` [row, ask] allow."""
    left = space.room[:, offers] - space.wanted @ counts.T
    cap = cap - counts
    if space.apart is not None:
        cap[(counts > 0).astype(np.float64) @ space.apart.astype(np.float64) > 0] = 0.0
    last = min(int((density > 0).sum(axis=1).max(initial=0)), _LONGEST)
    order = np.argsort(-density, axis=1, kind="stable")[:, :last].T
    return counts + fill_in_order(space.wanted, left, cap, order, space.apart)


def ruin_and_refill(
    space: Space,
    scales: Scales,
    offers: Amounts,
    counts: Matrix,
    worth: Matrix,
    rng: Draws,
) -> Matrix:
    """Take part of the pods off each filling and fill up again by densities that are off by chance."""
    share = rng.random((len(offers), 1)) * 0.8
    thinned = np.where(rng.random(counts.shape) < share, np.floor(counts * rng.random(counts.shape)), counts)
    noise = np.exp(rng.normal(scale=0.12, size=counts.shape))
    cap, room = space.cap[offers], space.room[:, offers]
    density = densities(space.wanted, room, cap, worth * noise, scales.weight[:, offers])
    return topped_up(space, offers, thinned, density, cap)
