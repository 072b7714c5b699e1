"""Whether a NodePool's machines have lately become nodes: the last four outcomes per pool uid."""

from collections import deque

_REMEMBERED = 4
_UNHEALTHY_AT = 2

DOUBTED_SECONDS = 60 * 60.0
"""How long after its last failure an unhealthy pool comes after all others."""


class PoolHealth:
    """Outcomes of registrations. A verdict is True (healthy), False, or None (nothing is known)."""

    def __init__(self) -> None:
        self._outcomes: dict[str, deque[bool]] = {}
        self._failed: dict[str, float] = {}
        """When the last failure was, epoch seconds."""

    def verdict(self, uid: str) -> bool | None:
        """Return how the pool does: unhealthy when two or more of the last four failed."""
        return _verdict(self._outcomes.get(uid, ()))

    def is_doubted(self, uid: str, now: float) -> bool:
        """Tell whether other pools had better buy: it is unhealthy, and was tried not long ago."""
        return self.verdict(uid) is False and now - self._failed.get(uid, 0.0) < DOUBTED_SECONDS

    def record(self, uid: str, outcome: bool, now: float) -> None:
        """Note whether a claim became a node, at `now` (epoch seconds)."""
        if not outcome:
            self._failed[uid] = now
        self._outcomes.setdefault(uid, deque(maxlen=_REMEMBERED)).append(outcome)

    def set(self, uid: str, verdict: bool | None, since: float = 0.0) -> None:
        """Start anew from a verdict (read back from a condition after a restart, or None to forget).

        `since` (epoch seconds) is when a pool was found to be unhealthy.
        """
        self._failed[uid] = since
        outcomes = {True: [True], False: [False, False], None: []}[verdict]
        self._outcomes[uid] = deque(outcomes, maxlen=_REMEMBERED)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a pool that is gone."""
        self._outcomes.pop(uid, None)
        self._failed.pop(uid, None)


def _verdict(outcomes: "deque[bool] | tuple[bool, ...]") -> bool | None:
    if not outcomes:
        return None
    return sum(not outcome for outcome in outcomes) < _UNHEALTHY_AT
