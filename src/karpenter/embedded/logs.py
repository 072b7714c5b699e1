"""What containers print: appended by the kubelets, read by `kubectl logs`, followed until the pod is gone."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from karpenter.base.clock import Clock, format_micro_time

LINES_KEPT = 2_000  # per container


class _Container:
    __slots__ = ("changed", "closed", "lines", "total")

    def __init__(self) -> None:
        self.lines: deque[tuple[float, str]] = deque(maxlen=LINES_KEPT)
        self.total = 0
        self.closed = False
        self.changed = asyncio.Event()


class PodLogs:
    """The last lines of every container, in memory only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._containers: dict[tuple[str, str, str], _Container] = {}
        self._names: dict[tuple[str, str], set[str]] = {}  # of containers, by pod

    def _open(self, namespace: str, pod: str, container: str) -> _Container:
        key = (namespace, pod, container)
        log = self._containers.get(key)
        if log is None:
            log = self._containers[key] = _Container()
            self._names.setdefault((namespace, pod), set()).add(container)
        return log

    def append(self, namespace: str, pod: str, container: str, line: str) -> None:
        """Add one line (without newline), stamped with the time now."""
        log = self._open(namespace, pod, container)
        log.lines.append((self._clock.now(), line))
        log.total += 1
        log.changed.set()

    def close(self, namespace: str, pod: str) -> None:
        """End all follows of a pod and forget its lines."""
        for container in sorted(self._names.pop((namespace, pod), ())):
            log = self._containers.pop((namespace, pod, container))
            log.closed = True
            log.changed.set()

    def read(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> list[str]:
        """Return a container's lines: the last `tail` of those since an epoch second."""
        log = self._containers.get((namespace, pod, container))
        lines = [line for line in log.lines if since is None or line[0] >= since] if log else []
        if tail is not None:
            lines = lines[max(0, len(lines) - tail) :]
        return [_render(line, timestamps) for line in lines]

    async def follow(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[str, None]:
        """Yield what `read` would return and then each new line, until the pod is closed."""
        log = self._open(namespace, pod, container)
        seen = log.total
        for text in self.read(namespace, pod, container, tail=tail, since=since, timestamps=timestamps):
            yield text
        while True:
            fresh = min(log.total - seen, len(log.lines))
            seen = log.total
            for line in list(log.lines)[len(log.lines) - fresh :]:
                yield _render(line, timestamps)
            if seen == log.total:
                if log.closed:
                    return
                log.changed.clear()
                await log.changed.wait()


def _render(line: tuple[float, str], timestamps: bool) -> str:
    return f"{format_micro_time(line[0])} {line[1]}" if timestamps else line[1]
