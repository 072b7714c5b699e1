"""The door without a door: a `Transport` straight into the API server, no sockets, deterministic."""

from collections.abc import AsyncGenerator, Mapping

from karpenter.embedded.apiserver import ApiServer
from karpenter.kube.transport import JSON, Response


class InProcessTransport:
    """Implements `karpenter.kube.transport.Transport` over an `ApiServer` in the same process.

    Each request first gives other tasks a turn (as a socket would) and is then carried out at once.
    """

    def __init__(self, server: ApiServer, *, user_agent: str = "in-process") -> None:
        self._server = server
        self._user_agent = user_agent

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
        await self._server.store.clock.sleep(0)
        headers = {"content-type": content_type, "accept": accept, "user-agent": self._user_agent}
        return await self._server.answer(method, path, query, headers, body or b"")

    async def watch(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        stream = self._server.watch(path, {**(query or {}), "watch": "true"}, {"accept": JSON})
        try:
            async for event in stream:
                yield event
        finally:
            await stream.aclose()

    async def close(self) -> None:
        return None
