"""Python's garbage collector, kept out of the way of short computations.

It looks for cycles among all objects there are, the caches of the whole cluster included, each time enough
new ones were made. What is computed within a second or two and makes no cycles is better off without.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not look for garbage cycles during the block, in any thread; afterwards all is as it was."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
