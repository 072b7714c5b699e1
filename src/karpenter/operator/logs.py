"""Structured logs: one JSON object a line, with the keys upstream's readers expect.

Code logs with `structlog.get_logger()`: the message is a constant, everything variable is a key. Where lines
go is decided here, once, by the assembly.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from karpenter.base.clock import Clock, format_micro_time

Sink = Callable[[str], None]
"""Takes one line of log, without its newline."""

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "": logging.INFO, "error": logging.ERROR}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class _Lines:
    """The end of structlog's pipeline: hands rendered lines to the sinks."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def msg(self, line: str) -> None:
        for sink in self._sinks:
            sink(line)

    log = debug = info = warning = error = critical = exception = msg


def configure_logs(level: str, clock: Clock, sinks: Sequence[Sink]) -> None:
    """Send the process's structured logs of `level` and above to `sinks`."""

    def stamp(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
        rest = dict(event)
        head: dict[str, Any] = {
            "level": ("error" if method == "exception" else method).upper(),
            "time": format_micro_time(clock.now())[:23] + "Z",
            "logger": rest.pop("logger", "controller"),
            "message": rest.pop("event", ""),
        }
        return {**head, **rest}

    def render(_: WrappedLogger, __: str, event: EventDict) -> str:
        return _encode(event).decode()

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            stamp,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _Lines(sinks),
        cache_logger_on_first_use=False,
    )
