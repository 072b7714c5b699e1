"""Running something beside a block of code, as part of the same tree of tasks."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run `work` for the length of the block, then cancel it and wait for its end.

    Raises:
        ExceptionGroup: when `work` fails; the block is cancelled first.
    """
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work, name=name)
        try:
            yield
        finally:
            task.cancel()
