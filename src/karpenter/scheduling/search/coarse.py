"""Many asks as few: clusters of alike asks for the linear program, and the way back.

A cluster stands for its asks with their mean request. Nodes made of clusters are filled with real pods so
that each takes its share of every ask, then cut or topped up to what really fits.
"""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from karpenter.base.draws import Draws
from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.search.plan import Plan, patterns_of
from karpenter.scheduling.search.problem import NodePattern
from karpenter.scheduling.search.repair import menu_of, repair
from karpenter.scheduling.search.rounding import menu_offers
from karpenter.scheduling.search.scales import Scales
from karpenter.scheduling.search.space import NOTHING, Matrix, Space

_OFFERS = 40
_BATCH = 8
_TOP_UPS = 6


def coarse(space: Space, worth: Matrix, number: int) -> Space:
    """Return `space` with its asks in about `number` clusters; `worth` [ask] weighs what matters."""
    clusters = _clusters(space, worth, number)
    wanted = np.where(space.wanted <= NOTHING, 0.0, space.wanted)
    demand = np.array([space.demand[c].sum() for c in clusters], dtype=np.int64)
    mean = np.stack([wanted[:, c] @ space.demand[c] for c in clusters], axis=1)
    mean = np.ceil(mean / np.maximum(demand, 1) - 1e-9)
    request: Matrix = np.where(mean > 0, mean, NOTHING)
    cap = np.stack(
        [space.cap[:, c].sum(axis=1) * (space.cap[:, c] > 0).all(axis=1) for c in clusters], axis=1
    )
    for row, room in zip(request, space.room, strict=True):
        np.minimum(cap, np.floor(room[:, None] / row[None, :]), out=cap)
    first = np.array([c[0] for c in clusters], dtype=np.int64)
    return space._replace(
        wanted=request,
        cap=np.minimum(cap, demand),
        demand=np.where((cap > 0).any(axis=0), demand, 0),
        apart=None if space.apart is None else space.apart[np.ix_(first, first)],
        whole=demand,
        kind=space.kind[first],
        penalty=0.0,
        offers=np.arange(len(space.cost)),
        members=tuple(clusters),
    )


def _clusters(space: Space, worth: Matrix, number: int) -> list[Amounts]:
    """Split the asks of each kind where they differ most, weighed by cost, until there are enough."""
    size = np.log(np.where(space.wanted <= NOTHING, 1.0, space.wanted + 1.0))
    weight = space.demand * worth + 1e-12
    alone = space.demand == 0
    heap: list[tuple[float, int, Amounts]] = []
    for asks in _alike(space, np.flatnonzero(~alone)):
        heapq.heappush(heap, (-_spread(size, weight, asks)[0], int(asks[0]), asks))
    done = [np.array([a]) for a in np.flatnonzero(alone)]
    while heap and len(heap) < number and heap[0][0] < 0:
        _, _, asks = heapq.heappop(heap)
        _, row = _spread(size, weight, asks)
        asks = asks[np.argsort(size[row, asks], kind="stable")]
        total = np.cumsum(weight[asks])
        cut = int(np.searchsorted(total, total[-1] / 2))
        for part in (asks[: max(cut, 1)], asks[max(cut, 1) :]):
            part = np.sort(part)
            heapq.heappush(heap, (-_spread(size, weight, part)[0], int(part[0]), part))
    return sorted([asks for _, _, asks in heap] + done, key=lambda c: int(c[0]))


def _alike(space: Space, asks: Amounts) -> list[Amounts]:
    """Split `asks` into those that may be in the same places, beside the same others."""
    groups: dict[object, list[int]] = {}
    apart = None if space.apart is None else np.packbits(space.apart, axis=1)
    for ask in asks.tolist():
        key = (int(space.kind[ask]), b"" if apart is None else apart[ask].tobytes())
        groups.setdefault(key, []).append(ask)
    return [np.array(group, dtype=np.int64) for group in groups.values()]


def _spread(size: Matrix, weight: Matrix, asks: Amounts) -> tuple[float, int]:
    """Return how much `asks` differ and in which resource most."""
    if len(asks) < 2:
        return 0.0, 0
    part, mass = size[:, asks], weight[asks]
    mean = (part @ mass) / mass.sum()
    variance = ((part - mean[:, None]) ** 2) @ mass
    return float(variance.sum()), int(variance.argmax())


class Realisation:
    """Turning nodes of clusters into nodes of asks."""

    def __init__(self, space: Space, clusters: Sequence[Amounts], worth: Matrix) -> None:
        """Begin with all pods to place; `worth` [ask] says what to keep and what to top up with."""
        self._space = space
        self._clusters = clusters
        self._worth = np.maximum(worth, 1e-12)
        self.need: Amounts = space.demand.copy()
        self._credit = np.zeros(len(space.demand))
        self.limits: Amounts = space.remaining.copy()

    def node(self, pattern: NodePattern) -> NodePattern | None:
        """Return one node like `pattern` filled with pods still to place, None without any."""
        space = self._space
        if (space.usage[pattern.offer] > self.limits).any():
            return None
        counts = np.zeros(len(space.demand), dtype=np.int64)
        most = space.cap[pattern.offer].astype(np.int64)
        for cluster, pods in pattern.counts:
            self._share(self._clusters[cluster], pods, counts, most)
        used = np.flatnonzero(counts)
        left = space.room[:, pattern.offer] - space.wanted[:, used] @ counts[used]
        while (left < 0).any():
            guilty = (space.wanted[left < 0][:, used] > NOTHING).any(axis=0)
            over = used[guilty & (counts[used] > 0)]
            ask = over[self._worth[over].argmin()]
            counts[ask] -= 1
            left += space.wanted[:, ask]
        self._top_up(pattern.offer, counts, left)
        used = np.flatnonzero(counts)
        if not len(used):
            return None
        self.need[used] -= counts[used]
        self._credit[used] -= counts[used]
        self.limits -= space.usage[pattern.offer]
        return NodePattern(pattern.offer, tuple((int(a), int(counts[a])) for a in used), 1)

    def _share(self, asks: Amounts, pods: int, counts: Amounts, most: Amounts) -> None:
        """Let a node have `pods` of a cluster, of each ask its share as far as it goes, at most `most`."""
        need = self.need[asks] - counts[asks]
        total = int(need.sum())
        if not total:
            return
        self._credit[asks] += pods * need / total
        need = np.minimum(need, most[asks])
        pods = min(pods, int(need.sum()))
        taken = np.minimum(np.maximum(np.floor(self._credit[asks]), 0), need).astype(np.int64)
        excess = int(taken.sum()) - pods
        order = np.argsort(-(self._credit[asks] - taken), kind="stable")
        if excess > 0:
            for place in order[::-1]:
                cut = min(excess, int(taken[place]))
                taken[place] -= cut
                excess -= cut
        while excess < 0:
            for place in order:
                if excess < 0 and taken[place] < need[place]:
                    taken[place] += 1
                    excess += 1
        counts[asks] += taken

    def _top_up(self, offer: int, counts: Amounts, left: Matrix) -> None:
        """Add pods that still fit, those worth most first."""
        space = self._space
        for _ in range(_TOP_UPS):
            fits = (space.wanted <= left[:, None]).all(axis=0) & (self.need > counts)
            fits &= space.cap[offer] > counts
            if space.apart is not None:
                fits &= ~space.apart[counts > 0].any(axis=0)
            if not fits.any():
                return
            ask = int(np.where(fits, self._worth, -1.0).argmax())
            counts[ask] += 1
            left -= space.wanted[:, ask]


def realised(
    space: Space,
    clusters: Sequence[Amounts],
    patterns: Sequence[NodePattern],
    scales: Scales,
    worth: Matrix,
    rng: Draws,
    more: Callable[[], bool],
) -> Plan | None:
    """Return the plan over `space` that `patterns` over `clusters` stand for, None when `more` ended it."""
    state = Realisation(space, clusters, worth)
    nodes: list[NodePattern] = []
    made = 0
    for pattern in patterns:
        for _ in range(pattern.copies):
            node = state.node(pattern)
            made += 1
            if made % _BATCH == 0 and not more():
                return None
            if node is None:
                break
            nodes.append(node)
    asks = np.flatnonzero(state.need)
    if len(asks):
        known = np.unique([p.offer for p in patterns]).astype(np.int64)
        offers = menu_offers(space, scales, worth, asks, known, _OFFERS)
        menu = menu_of(space, scales, worth, asks, offers)
        found = repair(space, menu, state.need[asks], state.limits, rng, 2, more)
        if found is None:
            return None
        nodes += patterns_of(found, asks)
    return Plan(space, nodes)
