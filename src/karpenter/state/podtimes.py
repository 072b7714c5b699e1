"""When pods were seen, decided about and found a place: the clockwork behind the pods' timing metrics."""

from collections.abc import Iterable

import msgspec


class PodTimes(msgspec.Struct):
    """Milestones of one pod on its way to a node, epoch seconds; None until reached."""

    acked: float
    """First seen as provisionable."""
    attempted: float | None = None
    """First decision about it, whatever it was."""
    schedulable: float | None = None
    """First decision of the present row of good ones; forgotten when a later one fails."""
    healthy_pool: float | None = None
    """As `schedulable`, counted only while its pool registers nodes successfully."""


class PodLedger:
    """The milestones of all pods that wait, by pod key."""

    def __init__(self) -> None:
        self._times: dict[str, PodTimes] = {}

    def get(self, key: str) -> PodTimes | None:
        """Return the milestones of one pod, if it was ever acknowledged."""
        return self._times.get(key)

    def acknowledge(self, key: str, now: float) -> None:
        """Note that a pod wants a node; only the first time counts."""
        self._times.setdefault(key, PodTimes(acked=now))

    def decided(self, key: str, now: float, *, placed: bool, healthy_pool: bool = False) -> float | None:
        """Note a decision; return the seconds since the acknowledgement if it was the first, else None."""
        times = self._times.setdefault(key, PodTimes(acked=now))
        if placed:
            times.schedulable = now if times.schedulable is None else times.schedulable
            if healthy_pool:
                times.healthy_pool = now if times.healthy_pool is None else times.healthy_pool
            else:
                times.healthy_pool = None
        else:
            times.schedulable = times.healthy_pool = None
        if times.attempted is not None:
            return None
        times.attempted = now
        return now - times.acked

    def undecided(self, now: float) -> dict[str, float]:
        """Return, by pod key, for how many seconds acknowledged pods have waited for a first decision."""
        return {key: now - t.acked for key, t in sorted(self._times.items()) if t.attempted is None}

    def schedulable(self) -> list[tuple[str, float]]:
        """Return the pods that a place was found for, and since when (epoch seconds), by key."""
        return [(key, t.schedulable) for key, t in sorted(self._times.items()) if t.schedulable is not None]

    def forget(self, keys: Iterable[str]) -> None:
        """Drop pods that are gone."""
        for key in keys:
            self._times.pop(key, None)
