"""In which order can these pods be bound? First by rules of thumb, then by trying."""

from collections.abc import Callable, Sequence

from karpenter.scheduling.check_groups import Group
from karpenter.scheduling.check_tallies import Spread

MOST_STATES = 4000
"""How many combinations of bound pods are looked at before no order is taken to exist."""
_MOST_SEARCHED = 200
"""How many pods may wait for all orders to be tried; the rules of thumb must do for more."""


def bind_all(groups: Sequence[Group], most_states: int = MOST_STATES) -> list[Group]:
    """Bind the pods of all groups; return the groups for which no order is found that lets that happen.

    Pods without constraints of their own may be left waiting at the end: they can always follow.
    """
    first: list[int] = []
    for turn in (_owners_first, _least_crowded):
        before = [g.left for g in groups]
        if _bind_by(groups, turn):
            return []
        first = first or [g.left for g in groups]
        for group, left in zip(groups, before, strict=True):
            group.bind(group.left - left)
    if sum(g.left for g in groups) <= _MOST_SEARCHED and _Search(groups, most_states).succeeds():
        return []
    for group, rest in zip(groups, first, strict=True):
        group.bind(group.left - rest)
    return [g for g in groups if g.left and not g.free]


class _Crowd:
    """Groups that are counted in the same domains, and either all free or all not, all calm or all not."""

    def __init__(self, like: Group) -> None:
        """Start without groups; all will be like this one."""
        self.swells, self.free, self.calm = like.ties.swells, like.free, _calm(like)
        self.groups: list[Group] = []
        self.crowding = -1
        self.look()

    def look(self) -> None:
        """Find out how near binding one more brings any constraint to its maxSkew; the lower the better."""
        self.crowding = max((s.crowding(domain) - s.max_skew for s, domain in self.swells), default=-1)


def _calm(group: Group) -> bool:
    """No spread constraint has to do with them."""
    return not group.ties.own and not group.ties.swells


Turn = Callable[[_Crowd], tuple[object, ...]]
"""Whoever has the lowest goes first."""


def _owners_first(crowd: _Crowd) -> tuple[bool, bool, int]:
    """Pods without constraints wait till nobody else can go on, lest they crowd a domain too early."""
    return crowd.free, not crowd.calm, crowd.crowding


def _least_crowded(crowd: _Crowd) -> tuple[bool, int, bool]:
    return not crowd.calm, crowd.crowding, crowd.free


def _bind_by(groups: Sequence[Group], turn: Turn) -> bool:
    """Bind one after the other, the least crowded domain first; tell whether all could be that must."""
    crowds: dict[tuple[object, bool, bool], _Crowd] = {}
    for group in groups:
        mark = group.ties.swells, group.free, _calm(group)
        if mark not in crowds:
            crowds[mark] = _Crowd(group)
        crowds[mark].groups.append(group)
    counted: dict[Spread, list[_Crowd]] = {}
    for crowd in crowds.values():
        for spread in dict.fromkeys(s for s, _ in crowd.swells):
            counted.setdefault(spread, []).append(crowd)
    queue = list(crowds.values())
    must = sum(g.left for g in groups if not g.free)
    while must:
        queue.sort(key=turn)
        found = next(((c, g) for c in queue for g in c.groups if g.left and g.ready()), None)
        if found is None:
            return False
        chosen, group = found
        if chosen.calm:
            must -= sum(_bind_what_can_be(g) for g in chosen.groups)
            continue
        group.bind()
        must -= not group.free
        for spread, _ in chosen.swells:
            for crowd in counted[spread]:
                crowd.look()
    return True


def _bind_what_can_be(group: Group) -> int:
    """Bind as many as can be; return how many of them had to be."""
    before = group.left
    # Once one of them is bound the others are wanted there all the more; but it may be the first of those
    # that attract themselves, after which the first of another group is refused.
    while group.left and group.ready():
        group.bind()
    return 0 if group.free else before - group.left


class _Search:
    """Every order, depth first; what has been tried is known by how many of each group are still waiting."""

    def __init__(self, groups: Sequence[Group], most_states: int) -> None:
        """Search the orders of `groups`, which are left as they are unless one is found."""
        self._groups, self._most_states = groups, most_states
        self._tried: set[tuple[int, ...]] = set()

    def succeeds(self) -> bool:
        """Bind everybody and return True, or nobody and return False."""
        waiting = [g for g in self._groups if g.left]
        if all(g.free for g in waiting):
            return True
        state = tuple(g.left for g in self._groups)
        if state in self._tried or len(self._tried) >= self._most_states:
            return False
        self._tried.add(state)
        ready = [g for g in waiting if g.ready()]
        for group in sorted(ready, key=_haste):
            group.bind()
            if self.succeeds():
                return True
            group.bind(-1)
        return False


def _haste(group: Group) -> tuple[int, bool]:
    crowding = max((s.crowding(domain) - s.max_skew for s, domain in group.ties.swells), default=-1)
    return crowding, group.free
