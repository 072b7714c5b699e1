"""Whether a NodePool's machines have lately become nodes: the last four outcomes per pool uid."""

from collections import deque

_REMEMBERED = 4
_UNHEALTHY_AT = 2


class PoolHealth:
    """Outcomes of registrations. A verdict is True (healthy), False, or None (nothing is known)."""

    def __init__(self) -> None:
        self._outcomes: dict[str, deque[bool]] = {}

    def verdict(self, uid: str) -> bool | None:
        """Return how the pool does: unhealthy when two or more of the last four failed."""
        return _verdict(self._outcomes.get(uid, ()))

    def record(self, uid: str, outcome: bool) -> None:
        """Note whether a claim became a node."""
        self._outcomes.setdefault(uid, deque(maxlen=_REMEMBERED)).append(outcome)

    def set(self, uid: str, verdict: bool | None) -> None:
        """Start anew from a verdict (read back from a condition after a restart, or None to forget)."""
        outcomes = {True: [True], False: [False, False], None: []}[verdict]
        self._outcomes[uid] = deque(outcomes, maxlen=_REMEMBERED)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a pool that is gone."""
        self._outcomes.pop(uid, None)


def _verdict(outcomes: "deque[bool] | tuple[bool, ...]") -> bool | None:
    if not outcomes:
        return None
    return sum(not outcome for outcome in outcomes) < _UNHEALTHY_AT
