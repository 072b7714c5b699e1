"""Events: what happened, where users look for it (`kubectl describe`), without flooding the API server.

The same thing said again within its time-to-live is dropped; the message is not part of what makes it the
same, so figures in it may change. Publishing never waits and never fails; when the queue is full, the oldest
events are dropped and counted.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec
import structlog

from karpenter.apis.core import Event, EventSource, ObjectReference
from karpenter.apis.meta import KubeObject, ObjectMeta
from karpenter.base.clock import Clock, format_time
from karpenter.base.randomness import Random
from karpenter.kube.client import Client, resource_of
from karpenter.kube.errors import AlreadyExists, ApiError, TooManyRequests
from karpenter.kube.transport import TransportError

log = structlog.get_logger()

_QUEUE_LIMIT = 10_000
_MEMORY_LIMIT = 50_000
_MESSAGE_LIMIT = 1024  # what the API server accepts
_NAME_LIMIT = 236  # of the object, so that the event's name stays within 253
_ATTEMPTS = 5
_PAUSE_SECONDS = 1.0


class EventLimit:
    """Holds a kind of event to `per_second` on average, `burst` at once; what is over is not said at all."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = float(burst)
        self._left = self._burst
        self._at = clock.monotonic()

    def take(self) -> bool:
        """Tell whether one more may be said now, and count it."""
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Recorder:
    """Publishes events in the background."""

    def __init__(self, client: Client, *, clock: Clock, rng: Random, component: str = "karpenter") -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._component = component
        self._queue: deque[Event] = deque(maxlen=_QUEUE_LIMIT)
        self._wake = asyncio.Event()
        self._until: dict[str, float] = {}
        self.dropped = 0
        """Events lost because the queue was full."""

    def publish(
        self,
        obj: KubeObject,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        dedupe: Sequence[str] = (),
        dedupe_seconds: float = 120.0,
        limit: EventLimit | None = None,
    ) -> None:
        """Say `message` about `obj`, unless the same was said within `dedupe_seconds`.

        `dedupe` names what makes it the same (with the reason); empty: the object itself. With `limit`, it is
        dropped when too many that share the limit were said lately.
        """
        now = self._clock.now()
        key = f"{reason.lower()}-{'-'.join(dedupe or (obj.metadata.uid or obj.key,))}"
        if self._until.get(key, 0.0) > now:
            return
        if limit is not None and not limit.take():
            return
        if len(self._until) >= _MEMORY_LIMIT:
            self._until = {known: until for known, until in self._until.items() if until > now}
            for oldest in list(self._until)[: max(0, len(self._until) - _MEMORY_LIMIT // 2)]:
                del self._until[oldest]
        self._until[key] = now + dedupe_seconds
        if len(self._queue) == _QUEUE_LIMIT:
            self.dropped += 1
        self._queue.append(self._event(obj, type, reason, message, now))
        self._wake.set()

    async def run(self) -> None:
        """Write what was published until cancelled.

        When the server cannot be reached or is busy an event is tried a few times; one that is refused is
        logged and left.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._write(self._queue.popleft())

    async def _write(self, event: Event) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._client.create(event)
            except AlreadyExists:
                return  # an earlier attempt arrived, only its answer was lost
            except (ApiError, TransportError, msgspec.MsgspecError) as error:
                passing = isinstance(error, TransportError | TooManyRequests)
                if not passing or attempt == _ATTEMPTS:
                    log.debug("event was not written", reason=event.reason, error=str(error))
                    return
                await self._clock.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1) * (0.5 + self._rng.random() / 2))
            else:
                return

    def _event(
        self, obj: KubeObject, type: Literal["Normal", "Warning"], reason: str, message: str, now: float
    ) -> Event:
        resource = resource_of(obj.__class__)
        stamp = format_time(now)
        return Event(
            metadata=ObjectMeta(
                name=f"{obj.name[:_NAME_LIMIT]}.{self._rng.getrandbits(64):016x}",
                namespace=obj.namespace or "default",
            ),
            involved_object=ObjectReference(
                api_version=resource.api_version,
                kind=resource.kind,
                name=obj.name,
                namespace=obj.namespace,
                uid=obj.metadata.uid,
            ),
            reason=reason,
            message=message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 3] + "...",
            type=type,
            count=1,
            first_timestamp=stamp,
            last_timestamp=stamp,
            source=EventSource(component=self._component),
            reporting_component=self._component,
        )
