"""How much a search for cheaper nodes may take on in a cluster that does not come to rest.

In a large cluster pods come and go somewhere all the time, each change is a reason to search again, and most
searches find nothing. So after a thorough search without success the next ones only try what looks best, and
they are put off for longer and longer: a minute in the end. Thorough ones are put off up to ten minutes, or
until nothing has changed for a minute. In a calm cluster the next change is looked at thoroughly, at once.
"""

from typing import NamedTuple

from karpenter.disruption.verdicts import Method

FEW = 3
"""How many sets of nodes a glance tries in full."""
CALM_SECONDS = 60.0
_FIRST_SECONDS = 20.0
_MOST_GLANCE_SECONDS = 60.0
_MOST_THOROUGH_SECONDS = 600.0


class _Rest(NamedTuple):
    seconds: float
    until: float
    """Epoch seconds."""


class Effort(NamedTuple):
    """What a search may take on."""

    attempts: int | None
    """How many sets of nodes it may try in full; None: as many as it would."""

    @property
    def thorough(self) -> bool:
        return self.attempts is None


THOROUGH, GLANCE = Effort(None), Effort(FEW)


class Pace:
    """Of all methods, by name. Times are epoch seconds."""

    def __init__(self) -> None:
        self._rests: dict[tuple[Method, Effort], _Rest] = {}

    def effort(self, method: Method, changed_at: float, now: float) -> Effort | None:
        """Return what a method may take on now; None: it rests. `changed_at`: when something last changed."""
        if not self._is_resting(method, THOROUGH, now) or now - changed_at >= CALM_SECONDS:
            return THOROUGH
        return None if self._is_resting(method, GLANCE, now) else GLANCE

    def rest(self, method: Method, effort: Effort, now: float) -> None:
        """A method found nothing: put the next search off, for twice as long as the last time."""
        for kind, most in ((THOROUGH, _MOST_THOROUGH_SECONDS), (GLANCE, _MOST_GLANCE_SECONDS)):
            if kind == effort or effort.thorough:
                before = self._rests.get((method, kind))
                seconds = _FIRST_SECONDS if before is None else min(most, 2 * before.seconds)
                self._rests[method, kind] = _Rest(seconds, now + seconds)

    def found(self, method: Method, effort: Effort) -> None:
        """A method found something: let it go on with as much effort."""
        self._rests.pop((method, effort), None)
        self._rests.pop((method, GLANCE), None)

    def forget(self, method: Method) -> None:
        """Nothing has changed since all was looked at: let the next change be looked at at once."""
        self._rests.pop((method, THOROUGH), None)
        self._rests.pop((method, GLANCE), None)

    def _is_resting(self, method: Method, effort: Effort, now: float) -> bool:
        rest = self._rests.get((method, effort))
        return rest is not None and now < rest.until
