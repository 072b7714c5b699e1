"""How much a search for cheaper nodes may take on in a cluster that does not come to rest.

In a large cluster pods come and go somewhere all the time, each change is a reason to search again, and most
searches find nothing. So a thorough search is followed by glances, which only try what looks best, and both
are put off for twice as long whenever they find nothing: three minutes and twenty in the end. A glance that
finds something is followed by another at once, and the next rest is half as long. When nothing has changed
for a minute, all is looked at thoroughly, once.
"""

from typing import NamedTuple

from karpenter.disruption.verdicts import Method

FEW = 3
"""How many sets of nodes a glance tries in full."""
CALM_SECONDS = 60.0
_FIRST_SECONDS = 20.0


class Effort(NamedTuple):
    """What a search may take on."""

    attempts: int | None
    """How many sets of nodes it may try in full; None: as many as it would."""
    longest_seconds: float
    """That it is put off."""


THOROUGH, GLANCE = Effort(None, 1200.0), Effort(FEW, 180.0)


class _Rest(NamedTuple):
    seconds: float
    until: float
    """Epoch seconds."""


class Pace:
    """Of all methods, by name. Times are epoch seconds."""

    def __init__(self) -> None:
        self._rests: dict[tuple[Method, Effort], _Rest] = {}
        self._looked: dict[Method, float] = {}
        """The change up to which all was looked at."""

    def effort(self, method: Method, changed_at: float, now: float) -> Effort | None:
        """Return what a method may take on now; None: it rests. `changed_at`: when something last changed."""
        calm = now - changed_at >= CALM_SECONDS and self._looked.get(method) != changed_at
        if calm or not self._is_resting(method, THOROUGH, now):
            return THOROUGH
        return None if self._is_resting(method, GLANCE, now) else GLANCE

    def fruitless(self, method: Method, effort: Effort, changed_at: float, now: float) -> None:
        """A method found nothing: put it off."""
        if effort == THOROUGH:
            self._looked[method] = changed_at
            self._put_off(method, THOROUGH, now)
        self._put_off(method, GLANCE, now)

    def found(self, method: Method, now: float) -> None:
        """A method found something: let it go on."""
        rest = self._rests.get((method, GLANCE))
        if rest is not None:
            self._rests[method, GLANCE] = _Rest(max(_FIRST_SECONDS, rest.seconds / 2), now)

    def _put_off(self, method: Method, effort: Effort, now: float) -> None:
        before = self._rests.get((method, effort))
        seconds = _FIRST_SECONDS if before is None else min(effort.longest_seconds, 2 * before.seconds)
        self._rests[method, effort] = _Rest(seconds, now + seconds)

    def _is_resting(self, method: Method, effort: Effort, now: float) -> bool:
        rest = self._rests.get((method, effort))
        return rest is not None and now < rest.until
