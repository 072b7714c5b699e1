"""A bad connection to an API server, on purpose: lost requests and answers, broken and late watches."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping

import msgspec

from karpenter.base.clock import Clock
from karpenter.base.randomness import Random
from karpenter.kube.transport import JSON, Response, Transport, TransportError

_REFUSALS = {
    409: ("Conflict", "the object has been modified"),
    429: ("TooManyRequests", "the server is busy"),
    500: ("InternalError", "etcd is having a moment"),
}


class Faults(msgspec.Struct):
    """How often what goes wrong, as probabilities per request or watch event; may be changed at any time."""

    lose_request: float = 0.0
    """The connection breaks before the request is carried out."""
    lose_answer: float = 0.0
    """… after it was."""
    refuse: float = 0.0
    """409 (writes only), 429 or 500 is answered; nothing is carried out."""
    break_watch: float = 0.0
    late: float = 0.0
    """A watch event, and all behind it, comes up to `late_seconds` later."""
    late_seconds: float = 2.0

    @classmethod
    def all(cls, chance: float) -> "Faults":
        """Everything goes wrong with the same probability."""
        return cls(chance, chance, chance, chance, chance)

    def set(self, other: "Faults") -> None:
        """Become like `other` from now on."""
        for field in self.__struct_fields__:
            setattr(self, field, getattr(other, field))


class FaultyTransport:
    """Hands requests through, unless chance will have it otherwise. `cut` it, and nothing passes any more."""

    def __init__(self, inner: Transport, faults: Faults, *, clock: Clock, rng: Random) -> None:
        self.faults = faults
        self.carried: Counter[tuple[str, str]] = Counter()
        """What was carried out: how often which method on which path."""
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self._cut = False

    def cut(self) -> None:
        """Let nothing through from now on: who used it is dead, whatever it still tries."""
        self._cut = True

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
        """See `Transport`."""
        if self._cut:
            raise TransportError("the connection is cut")
        if self._happens(self.faults.lose_request):
            raise TransportError("the request was lost")
        if self._happens(self.faults.refuse):
            return _refusal(self._rng.choice([429, 500] if method == "GET" else [409, 429, 500]))
        answer = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept
        )
        self.carried[method, path] += 1
        if self._cut:
            raise TransportError("the connection was cut before the answer came")
        if self._happens(self.faults.lose_answer):
            raise TransportError("the answer was lost")
        return answer

    async def watch(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Transport`."""
        stream = self._inner.watch(path, query=query)
        try:
            async for event in stream:
                if self._cut or self._happens(self.faults.break_watch):
                    raise TransportError("the watch broke")
                if self._happens(self.faults.late):
                    await self._clock.sleep(self._rng.uniform(0.0, self.faults.late_seconds))
                yield event
        finally:
            await stream.aclose()

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._rng.random() < chance


def _refusal(code: int) -> Response:
    reason, message = _REFUSALS[code]
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return Response(code, msgspec.json.encode(status), {"content-type": JSON})
