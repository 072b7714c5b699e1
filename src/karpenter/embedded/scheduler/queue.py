"""Which pod is next: kube-scheduler's queue, by groups instead of single pods.

Pods of one class with the same promised node succeed and fail alike, so they wait as one group. When the
head of a group finds no place the whole group is parked and costs nothing until something happens that could
help its class; then it comes back after its back-off.
"""

import heapq
from collections.abc import Collection, Iterable
from typing import NamedTuple

GroupKey = tuple[bytes, str]
"""Class signature and promised node ("" for none)."""

INITIAL_BACKOFF = 1.0
MAX_BACKOFF = 10.0


class Waiting(NamedTuple):
    """One pod's place in the order: more important first, then older, then by key."""

    rank: int  # minus priority
    since: float
    key: str


class _Group:
    __slots__ = ("attempts", "heap", "members", "parked", "ready_at", "ticket")

    def __init__(self) -> None:
        self.heap: list[Waiting] = []
        self.members: dict[str, Waiting] = {}
        self.parked = False
        self.attempts = 0
        self.ready_at = 0.0
        self.ticket = 0

    def head(self) -> Waiting | None:
        while self.heap and self.members.get(self.heap[0].key) is not self.heap[0]:
            heapq.heappop(self.heap)
        return self.heap[0] if self.heap else None


class SchedulingQueue:
    """Groups of unscheduled pods: ready, backing off, or parked."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, _Group] = {}
        self._where: dict[str, GroupKey] = {}
        self._ready: list[tuple[Waiting, GroupKey, int]] = []
        self._delayed: list[tuple[float, GroupKey, int]] = []
        self._by_class: dict[bytes, dict[GroupKey, None]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: str) -> bool:
        return key in self._where

    def add(self, key: str, group: GroupKey, priority: int, since: float) -> None:
        """Let a pod wait in `group`; a pod that waits elsewhere is moved."""
        if self._where.get(key) == group:
            return
        self.discard(key)
        entry = self._groups.get(group)
        if entry is None:
            entry = self._groups[group] = _Group()
            self._by_class.setdefault(group[0], {})[group] = None
        waiting = Waiting(-priority, since, key)
        entry.members[key] = waiting
        heapq.heappush(entry.heap, waiting)
        self._where[key] = group
        if not entry.parked and entry.ready_at == 0.0 and entry.head() is waiting:
            self._offer(group, entry)

    def discard(self, key: str) -> None:
        """Forget a pod: it is bound, gone, or not ours."""
        group = self._where.pop(key, None)
        if group is None:
            return
        entry = self._groups[group]
        was_head = entry.head()
        del entry.members[key]
        if entry.members:
            if was_head is not None and was_head.key == key and not entry.parked and entry.ready_at == 0.0:
                self._offer(group, entry)
        else:
            del self._groups[group]
            siblings = self._by_class[group[0]]
            del siblings[group]
            if not siblings:
                del self._by_class[group[0]]

    def pop(self, now: float) -> tuple[str, GroupKey] | None:
        """Return the pod that is next at `now`; None when none is ready.

        The caller must `discard` the pod (it has a node) or `park` its group before it asks again.
        """
        self._wake(now)
        while self._ready:
            waiting, group, ticket = heapq.heappop(self._ready)
            entry = self._groups.get(group)
            if entry is None or entry.ticket != ticket or entry.head() is None:
                continue
            head = entry.head()
            assert head is not None
            if head is not waiting:
                self._offer(group, entry)
                continue
            return head.key, group
        return None

    def park(self, group: GroupKey, now: float) -> list[str]:
        """Put a group aside until `activate`; returns its members in order."""
        entry = self._groups.get(group)
        if entry is None:
            return []
        if not entry.parked:
            entry.attempts += 1
            entry.parked = True
            entry.ready_at = now + min(MAX_BACKOFF, INITIAL_BACKOFF * 2 ** (entry.attempts - 1))
            entry.ticket += 1
        return [w.key for w in sorted(entry.members.values())]

    def activate(self, signature: bytes, now: float, *, at_once: bool = False) -> None:
        """Something happened that could help the class: its groups come back when their back-off is over."""
        for group in self._by_class.get(signature, ()):
            if self._groups[group].parked:
                self._revive(group, now, at_once=at_once)

    def activate_for(self, signature: bytes, nodes: Collection[str], now: float) -> None:
        """Nodes changed so that the class could fit there: wake who is promised one, and one of the others.

        Where the one finds no place the others would not either; when it does, `activate_next` goes on.
        """
        for group in self._by_class.get(signature, ()):
            if group[1] in nodes and self._groups[group].parked:
                self._revive(group, now)
        self.activate_next(signature, now)

    def activate_next(self, signature: bytes, now: float) -> None:
        """Wake the parked group of a class that may be tried first."""
        best: tuple[float, Waiting, GroupKey] | None = None
        for group in self._by_class.get(signature, ()):
            entry = self._groups[group]
            head = entry.head() if entry.parked else None
            if head is not None:
                rank = (max(now, entry.ready_at), head, group)
                best = rank if best is None else min(best, rank)
        if best is not None:
            self._revive(best[2], now)

    def _revive(self, group: GroupKey, now: float, *, at_once: bool = False) -> None:
        entry = self._groups[group]
        entry.parked = False
        if at_once or entry.ready_at <= now:
            entry.ready_at = 0.0
            self._offer(group, entry)
        else:
            heapq.heappush(self._delayed, (entry.ready_at, group, entry.ticket))

    def is_parked(self, group: GroupKey) -> bool:
        """Tell whether the group waits for something to happen."""
        entry = self._groups.get(group)
        return entry is not None and entry.parked

    def parked_classes(self) -> list[bytes]:
        """Return the classes that have a parked group, in order of arrival."""
        return [
            signature
            for signature, groups in self._by_class.items()
            if any(self._groups[group].parked for group in groups)
        ]

    def next_wake(self) -> float | None:
        """Return when the next back-off ends (None: nobody is backing off)."""
        while self._delayed:
            at, group, ticket = self._delayed[0]
            entry = self._groups.get(group)
            if entry is not None and entry.ticket == ticket and not entry.parked:
                return at
            heapq.heappop(self._delayed)
        return None

    def groups(self) -> Iterable[GroupKey]:
        """Return all groups."""
        return list(self._groups)

    def _wake(self, now: float) -> None:
        while (at := self.next_wake()) is not None and at <= now:
            _, group, _ = heapq.heappop(self._delayed)
            entry = self._groups[group]
            entry.ready_at = 0.0
            self._offer(group, entry)

    def _offer(self, group: GroupKey, entry: _Group) -> None:
        head = entry.head()
        if head is not None:
            entry.ticket += 1
            heapq.heappush(self._ready, (head, group, entry.ticket))
