"""Chance for generated test data: thrown by a seeded generator, or by hypothesis, which then shrinks it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from karpenter.base.randomness import seeded

T = TypeVar("T")


class Dice:
    """Everything is drawn as an integer; towards 0 and the first choice it gets simpler."""

    def __init__(self, integer: Callable[[int, int], int]) -> None:
        """Draw with `integer(low, high)`, both included."""
        self.integer = integer

    @staticmethod
    def of_seed(seed: int | str) -> "Dice":
        """Return dice whose every throw follows from `seed`."""
        return Dice(seeded(seed).randint)

    @staticmethod
    def of_draw(draw: st.DrawFn) -> "Dice":
        """Return dice that hypothesis throws."""
        return Dice(lambda low, high: draw(st.integers(low, high)))

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of all cases; False is the simpler one."""
        return self.integer(0, 99) >= 100 - percent

    def choice(self, options: Sequence[T]) -> T:
        """Return one of `options`; the first is the simplest."""
        return options[self.integer(0, len(options) - 1)]

    def some(self, options: Sequence[T], at_least: int = 1) -> list[T]:
        """Return at least `at_least` different ones of `options`, in their order."""
        count = self.integer(at_least, len(options))
        left = list(range(len(options)))
        taken = sorted(left.pop(self.integer(0, len(left) - 1)) for _ in range(count))
        return [options[i] for i in taken]
