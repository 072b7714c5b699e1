"""An API server whose watches are behind: what a busy one is like."""

from collections.abc import AsyncGenerator, Mapping

from karpenter.base.clock import Clock
from karpenter.kube.transport import JSON, Response, Transport


class LaggingTransport:
    """Hands everything through; watch events arrive `seconds` late, so that caches show the past.

    `seconds` may be changed at any time; `paths` (parts of them) says which watches lag, none named: all.
    """

    def __init__(self, inner: Transport, clock: Clock, seconds: float, paths: tuple[str, ...] = ()) -> None:
        self.seconds = seconds
        self._inner = inner
        self._clock = clock
        self._paths = paths

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
        return await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept
        )

    async def watch(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Transport`."""
        lags = not self._paths or any(part in path for part in self._paths)
        async for event in self._inner.watch(path, query=query):
            if lags and self.seconds:
                await self._clock.sleep(self.seconds)
            yield event

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()
