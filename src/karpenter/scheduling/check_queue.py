"""In which order can these pods be bound? First by rules of thumb, then by trying."""

from collections.abc import Callable, Sequence

from karpenter.scheduling.check_tallies import Group

_MOST_STATES = 4000
"""How many combinations of bound pods are looked at before no order is taken to exist."""
_MOST_SEARCHED = 200
"""How many pods may wait for all orders to be tried; the rules of thumb must do for more."""


def bind_all(groups: Sequence[Group]) -> list[Group]:
    """Bind the pods of all groups; return the groups for which no order lets that happen.

    Pods without constraints of their own may be left waiting at the end: they can always follow.
    """
    left: list[Group] = []
    for pick in (_owners_first, _least_crowded):
        bound = [g.left for g in groups]
        left = _bind_by(groups, pick)
        if not left:
            return []
        if pick is _owners_first:
            first = [g.left for g in groups]
        for group, before in zip(groups, bound, strict=True):
            group.bind(group.left - before)
    if sum(g.left for g in groups) <= _MOST_SEARCHED and _Search(groups).succeeds():
        return []
    for group, rest in zip(groups, first, strict=True):
        group.bind(group.left - rest)
    return [g for g in groups if g.left and not g.kind.free]


Pick = Callable[[Sequence[Group]], Sequence[Group]]
"""Chooses among groups of whom one could be bound now those who go first; empty when nobody should."""


def _owners_first(ready: Sequence[Group]) -> Sequence[Group]:
    """Pods without constraints wait till nobody else can go on, lest they crowd a domain too early."""
    return [g for g in ready if not g.kind.free] or ready


def _least_crowded(ready: Sequence[Group]) -> Sequence[Group]:
    return ready


def _bind_by(groups: Sequence[Group], pick: Pick) -> list[Group]:
    """Bind one after the other, the least crowded domain first; return the groups that cannot go on."""
    waiting = [g for g in groups if g.left]
    while any(not g.kind.free for g in waiting):
        ready = pick([g for g in waiting if not g.refusal()])
        if not ready:
            break
        calm = [g for g in ready if not g.own and not g.swells]
        for group in calm:
            # Once one of them is bound the others are wanted there all the more; but it may be the first of
            # those that attract themselves, after which the first of another group is refused.
            while group.left and not group.refusal():
                group.bind()
        if not calm:
            min(ready, key=lambda g: (g.crowding(), g.kind.free)).bind()
        waiting = [g for g in waiting if g.left]
    return [g for g in waiting if not g.kind.free]


class _Search:
    """Every order, depth first; what has been tried is known by how many of each group are still waiting."""

    def __init__(self, groups: Sequence[Group]) -> None:
        """Search the orders of `groups`, which are left as they are unless one is found."""
        self._groups = groups
        self._tried: set[tuple[int, ...]] = set()

    def succeeds(self) -> bool:
        """Bind everybody and return True, or nobody and return False."""
        waiting = [g for g in self._groups if g.left]
        if all(g.kind.free for g in waiting):
            return True
        state = tuple(g.left for g in self._groups)
        if state in self._tried or len(self._tried) >= _MOST_STATES:
            return False
        self._tried.add(state)
        ready = [g for g in waiting if not g.refusal()]
        for group in sorted(ready, key=lambda g: (g.crowding(), g.kind.free)):
            group.bind()
            if self.succeeds():
                return True
            group.bind(-1)
        return False
