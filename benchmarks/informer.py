"""Time for an informer to take a list and then watch events of realistic pods, indexes and handler included.

python benchmarks/informer.py [--pods 10000] [--smoke]
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping

import msgspec
from benchmarks.list_decode import pages, pods_asked_for, realistic_pod

from karpenter.apis.core import Pod
from karpenter.base.background import background
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.kube.client import Client
from karpenter.kube.informer import Cache, Change
from karpenter.kube.transport import JSON, Response


class Recorded:
    """A transport that plays encoded pages and events."""

    def __init__(self, bodies: list[bytes], events: list[bytes]) -> None:
        self._bodies = bodies
        self._events = events
        self.go = asyncio.Event()
        self.done = asyncio.Event()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response:
        number = int((query or {}).get("continue", "0"))
        more = str(number + 1) if number + 1 < len(self._bodies) else ""
        head = b'{"metadata":{"resourceVersion":"9","continue":"' + more.encode() + b'"},'
        return Response(200, head + self._bodies[number].split(b",", 1)[1], {})

    async def watch(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        await self.go.wait()
        for event in self._events:
            yield event
        self.done.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        return None


async def run(count: int) -> None:
    events = [msgspec.json.encode({"type": "MODIFIED", "object": realistic_pod(i)}) for i in range(count)]
    transport = Recorded(pages(count), events)
    cache = Cache(Client(transport), clock=SystemClock(), rng=seeded(1))
    informer = cache.informer(Pod)
    informer.add_index("node", lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])
    heard = 0

    def note(change: Change[Pod]) -> None:
        nonlocal heard
        heard += 1

    informer.subscribe(note)
    started = time.perf_counter()
    async with background(cache.run(), "cache"):
        await cache.wait_synced()
        listed = time.perf_counter() - started
        started = time.perf_counter()
        transport.go.set()
        await transport.done.wait()
        watched = time.perf_counter() - started
        started = time.perf_counter()
        held = len(informer.items())
        sorting = time.perf_counter() - started
    print(f"{held} pods held, {heard} changes told")
    for name, seconds in (
        ("list, index, tell", listed),
        ("watch events", watched),
        ("items() sorted", sorting),
    ):
        print(f"{name:20} {seconds * 1e3:8.1f} ms {seconds / count * 1e6:8.1f} µs a pod")


if __name__ == "__main__":
    asyncio.run(run(pods_asked_for(10_000)))
