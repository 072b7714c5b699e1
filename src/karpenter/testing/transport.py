"""A scripted API server for tests of what sits on a `Transport`: canned answers, watch events, failures.

Paths have queues of answers; the last one of a queue is given again for ever. A watch plays its script and
then ends, breaks, or stays open until cancelled.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from karpenter.kube.transport import JSON, Response, TransportError

Body = Mapping[str, Any] | list[Any] | bytes


class Request(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


Answer = Response | Exception | Callable[[Request], Response]


class Stream(NamedTuple):
    """What one watch tells, and how it goes on after that."""

    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    then: str = "hold"
    """`hold`: stay open; `end`: the server ends it; `break`: the connection is lost."""
    after_seconds: float = 0.0
    """Pause before the end or break."""


def answer(body: Body, status: int = 200, **headers: str) -> Response:
    """Return a response with a JSON body; `retry_after="3"` becomes the header `retry-after`."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(status, raw, {name.replace("_", "-"): value for name, value in headers.items()})


def refusal(status: int, reason: str = "", message: str = "refused", **headers: str) -> Response:
    """Return a failing metav1.Status."""
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    return answer(body, status, **headers)


def a_list(*items: Mapping[str, Any], version: str = "1", more: str = "") -> Response:
    """Return one page of a list; `more` is the token for the next."""
    return answer({"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)})


class ScriptedTransport:
    """Implements `karpenter.kube.transport.Transport` from scripts, and remembers what was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.watches: list[Request] = []
        self._answers: dict[tuple[str, str], deque[Answer]] = {}
        self._streams: dict[str, deque[Stream]] = {}

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Answer `method path` with `answers`, in turn; the last one stays."""
        self._answers[method, path] = deque(answers)

    def on_watch(self, path: str, *streams: Stream) -> None:
        """Play `streams`, one for each watch of `path`; afterwards watches stay open and silent."""
        self._streams[path] = deque(streams)

    def of(self, method: str, path: str) -> list[Request]:
        """Return the requests of that kind."""
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

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
        request = Request(method, path, dict(query or {}), msgspec.json.decode(body) if body else None)
        self.requests.append(request)
        answers = self._answers.get((method, path))
        if not answers:
            return refusal(404, "NotFound", f"no script for {method} {path}")
        chosen = answers.popleft() if len(answers) > 1 else answers[0]
        if isinstance(chosen, Exception):
            raise chosen
        return chosen if isinstance(chosen, Response) else chosen(request)

    async def watch(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        self.watches.append(Request("WATCH", path, dict(query or {}), None))
        streams = self._streams.get(path)
        stream = streams.popleft() if streams else Stream()
        for kind, obj in stream.events:
            yield msgspec.json.encode({"type": kind, "object": obj})
        if stream.then == "hold":
            await asyncio.Event().wait()
        if stream.after_seconds:
            try:
                async with asyncio.timeout(stream.after_seconds):
                    await asyncio.Event().wait()
            except TimeoutError:
                pass
        if stream.then == "break":
            raise TransportError("connection lost")

    async def close(self) -> None:
        return None
