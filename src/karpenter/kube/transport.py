"""The one seam between this project and an API server.

Two implementations: `karpenter.kube.http.HttpTransport` (aiohttp) and
`karpenter.embedded.inprocess.InProcessTransport` (straight into the embedded store, no sockets,
deterministic). Both speak bytes, so that everything above them is one code path: the client, reflectors and
informers cannot tell which they have.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple, Protocol

JSON = "application/json"


class Response(NamedTuple):
    """An API server's answer; any status code, nothing is raised for 4xx or 5xx."""

    status: int
    body: bytes
    headers: Mapping[str, str]  # lower-case names


class TransportError(Exception):
    """The server could not be reached, or the connection broke before the answer was whole.

    The request may or may not have been carried out. Retry with back-off.
    """


class Transport(Protocol):
    """How requests get to an API server."""

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
        """Carry out one request and return the whole answer.

        Raises:
            TransportError: when no answer came.
        """
        ...

    def watch(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncGenerator[bytes, None]:
        """Open a watch (`watch=true` is added) and yield its events, each one JSON document, no newline.

        Ends when the server ends the stream. A refusal (such as 410) is yielded as an `ERROR` event whose
        object is the Status. The caller closes the generator (`contextlib.aclosing`).

        Raises:
            TransportError: when the stream broke.
        """
        ...

    async def close(self) -> None:
        """Free what the transport holds; it may be called twice."""
        ...
