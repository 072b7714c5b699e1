"""How long a search may go on: so many steps, or so many seconds."""

from collections.abc import Callable

from karpenter.model.problem import Budget


class Patience:
    """One search's budget. Asked from the thread that searches."""

    def __init__(self, budget: Budget, monotonic: Callable[[], float]) -> None:
        """Begin now; a budget without limits never ends."""
        self._steps = budget.steps
        self._monotonic = monotonic
        self._ends = None if budget.seconds is None else monotonic() + budget.seconds
        self.ran_out = False
        """Whether the search was ever told to stop."""

    def more(self) -> bool:
        """Tell whether there is time for one more step, and count it."""
        if self._steps is not None:
            if self._steps <= 0:
                self.ran_out = True
                return False
            self._steps -= 1
        if self._ends is not None and self._monotonic() >= self._ends:
            self.ran_out = True
        return not self.ran_out
