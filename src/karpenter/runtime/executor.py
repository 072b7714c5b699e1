"""Where long computations run: inline under virtual time, else beside the event loop.

A solve may take a second; leases must be renewed and watches read meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from karpenter.base.collector import uncollected

T = TypeVar("T")


class Executor(Protocol):
    """Runs a pure function somewhere and returns its result."""

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return `function(*arguments)`; what it raises is raised here."""
        ...

    def aside(self) -> "Executor":
        """Return another one of its kind, for work that nobody else's should wait for."""
        ...


class InlineExecutor:
    """Runs at once, in the loop: deterministic."""

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    def aside(self) -> "InlineExecutor":
        return self


class ThreadExecutor:
    """Runs in one thread beside the loop, one thing at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="solver")

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        def compute() -> T:
            with uncollected():
                return function(*arguments)

        return await asyncio.get_running_loop().run_in_executor(self._pool, compute)

    def aside(self) -> "ThreadExecutor":
        return ThreadExecutor()
