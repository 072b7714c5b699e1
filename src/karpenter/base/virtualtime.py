"""An asyncio event loop whose clock jumps to the next timer.

Production coroutines run on it unmodified: whenever nothing is ready, the loop's time moves straight to
the earliest scheduled timer instead of waiting for it. A day of thirty controllers takes seconds, and, as
nothing else moves the clock, two runs of the same program take the same steps.

Only timers and ready callbacks make progress here: a coroutine that waits for a real socket or thread
would wait for ever, so the loop refuses to idle without a timer (`DeadlockError`).
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


_MOST_TURNS_AT_ONCE = 5_000_000


class DeadlockError(RuntimeError):
    """Every task waits and no timer is set, or tasks spin without time passing: nothing would ever happen."""


class _JumpingSelector(selectors.SelectSelector):
    """Turns the loop's wait for the next timer into a jump of its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            self._turns += 1
            if self._turns > _MOST_TURNS_AT_ONCE:
                raise DeadlockError(f"tasks spin at {self.time} without time passing")
            return ready
        self._turns = 0
        if timeout is None:
            raise DeadlockError("every task is waiting and no timer is set")
        self.time += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop under virtual time; `time()` starts at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.time

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run `func` at once, in this thread: under virtual time there is no "meanwhile"."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a fresh `VirtualLoop` and return its result.

    Raises:
        DeadlockError: when `main` can never finish.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
