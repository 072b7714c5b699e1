"""The transport to a real API server: HTTP/1.1 over TLS by aiohttp.

Certificates are always verified. Requests are limited on our side (a token bucket, as client-go's qps and
burst) so that a busy operator is not the one to bring the API server down; watches are not counted.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp
import msgspec

from karpenter.base.clock import Clock
from karpenter.kube.config import ClientConfig, ConfigError, Credentials
from karpenter.kube.lines import LineDecoder
from karpenter.kube.transport import JSON, Response, TransportError

USER_AGENT = "karpenter"
_REQUEST_SECONDS = 60.0
_READ_BUFFER = 1 << 20
_MAX_CONNECTIONS = 100


class RateLimit:
    """A token bucket: `qps` a second on average, `burst` at once."""

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self._clock = clock
        self._qps = qps
        self._burst = burst
        self._tokens = float(burst)
        self._at = clock.monotonic()

    async def wait(self) -> None:
        """Return when one more request may be sent; those waiting go in order."""
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self._qps)
        self._at = now
        self._tokens -= 1.0
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._qps)


class HttpTransport:
    """Requests and watches over the network; see `karpenter.kube.transport.Transport`."""

    def __init__(self, config: ClientConfig, *, clock: Clock, qps: float = 200.0, burst: int = 300) -> None:
        self._config = config
        self._credentials = Credentials(config, clock)
        self._limit = RateLimit(clock, qps, burst)
        self._session: aiohttp.ClientSession | None = None
        self._session_version = -1
        self._opening = asyncio.Lock()

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
        await self._limit.wait()
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            session = await self._connect(headers)
            async with session.request(
                method,
                self._config.server + path,
                params=query,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
                server_hostname=self._config.tls_server_name,
                proxy=self._config.proxy_url,
            ) as answer:
                content = await answer.read()
                if answer.status == 401:
                    self._credentials.invalidate()
                lower = {name.lower(): value for name, value in answer.headers.items()}
                return Response(answer.status, content, lower)
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigError) as error:
            raise TransportError(f"{method} {path}: {error or type(error).__name__}") from error

    async def watch(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        headers = {"Accept": JSON}
        parameters = {**(query or {}), "watch": "true"}
        # Silence is normal on a watch; bookmarks come about every minute, so longer silence is a dead peer.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=330)
        try:
            session = await self._connect(headers)
            async with session.get(
                self._config.server + path,
                params=parameters,
                headers=headers,
                timeout=timeout,
                server_hostname=self._config.tls_server_name,
                proxy=self._config.proxy_url,
            ) as answer:
                if answer.status >= 400:
                    if answer.status == 401:
                        self._credentials.invalidate()
                    yield _refusal(answer.status, await answer.read(), answer.headers.get("Retry-After", ""))
                    return
                lines = LineDecoder()
                try:
                    async for chunk in answer.content.iter_any():
                        for line in lines.feed(chunk):
                            yield line
                finally:
                    await _hang_up(answer)
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigError) as error:
            raise TransportError(f"watch {path}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _connect(self, headers: dict[str, str]) -> aiohttp.ClientSession:
        """Return the session to use, adding who we are to `headers`."""
        token = await self._credentials.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with self._opening:
            if self._session is None or self._session_version != self._credentials.version:
                await self.close()
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=self._tls(), limit=_MAX_CONNECTIONS),
                    headers={"User-Agent": USER_AGENT},
                    read_bufsize=_READ_BUFFER,
                )
                self._session_version = self._credentials.version
            return self._session

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._config.server.startswith("https://"):
            return True
        authority = self._config.ca_data
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        # Certificates that kube-apiserver signs for itself lack what Python 3.13 calls strict.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", ssl.VerifyFlags(0))
        if self._credentials.client_cert and self._credentials.client_key:
            with tempfile.NamedTemporaryFile(suffix=".pem") as pem:  # mode 0600, gone when loaded
                Path(pem.name).write_bytes(
                    self._credentials.client_cert + b"\n" + self._credentials.client_key
                )
                context.load_cert_chain(pem.name)
        return context


async def _hang_up(answer: aiohttp.ClientResponse) -> None:
    """Close the connection of an answer that has not come to its end, and see it closed.

    Left to itself, aiohttp says good-bye by TLS in the background, which the session does not wait for when
    it is closed: a loop that ends meanwhile leaves the socket open.
    """
    connection = answer.connection
    protocol = connection.protocol if connection is not None else None
    if protocol is None:
        return  # it has come to its end; the connection is kept for the next request
    closed = protocol.closed
    protocol.abort()
    if closed is not None:
        with suppress(aiohttp.ClientConnectionError):
            await closed


def _refusal(status: int, body: bytes, retry_after: str = "") -> bytes:
    """Return a refused watch as the `ERROR` event that a broken one would give."""
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer = {"message": body[:300].decode(errors="replace")}
    answer = {**answer, "code": status} if isinstance(answer, dict) else {"code": status}
    if retry_after.isdigit():
        answer["details"] = {**(answer.get("details") or {}), "retryAfterSeconds": int(retry_after)}
    return msgspec.json.encode({"type": "ERROR", "object": answer})
