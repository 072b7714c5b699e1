"""`karpenter run`: the operator against a real API server."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from karpenter.base.background import background
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import Random, name_suffix, unseeded
from karpenter.kube.config import ConfigError, load_config
from karpenter.kube.http import HttpTransport
from karpenter.operator.assembly import Operator
from karpenter.operator.health import PortTaken, health_app, metrics_app, serving
from karpenter.operator.logs import Sink, configure_logs
from karpenter.operator.options import OptionError, Options, describe_options, parse_options
from karpenter.runtime import ThreadExecutor
from karpenter.runtime.leader import LeadershipLost

_EXPECTED = (OptionError, ConfigError, LeadershipLost, PortTaken, OSError)

_HELP = """Usage: karpenter run [--kubeconfig=FILE] [OPTIONS]

Run the operator. The API server is the one of --kubeconfig, else of $KUBECONFIG, else of the service
account (in a cluster), else of ~/.kube/config.

Options (flag beats environment beats default):
"""


def run_operator(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or Ctrl-C; return the exit code.

    0 when asked to end, 1 when leadership is lost or a port is taken, 2 for options that cannot be.
    """
    if {"--help", "-h"} & set(arguments):
        print(_HELP + describe_options())
        return 0
    try:
        kubeconfig, rest = _take_kubeconfig(arguments)
        options = parse_options(rest, os.environ)
    except OptionError as error:
        return _fail(2, error)
    return _run_until_stopped(options, kubeconfig)


def _run_until_stopped(options: Options, kubeconfig: str | None) -> int:
    code = 1
    try:
        return asyncio.run(_run(options, kubeconfig))
    except KeyboardInterrupt:
        return 130
    except BaseExceptionGroup as group:
        known, unknown = group.split(_EXPECTED)
        if unknown is not None or known is None:
            raise
        error: BaseException = known
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    except _EXPECTED as single:
        error = single
        code = 2 if isinstance(single, (OptionError, ConfigError)) else 1
    return _fail(code, error)


def _fail(code: int, error: BaseException) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    print(f"karpenter run: {text}", file=sys.stderr)
    return code


def _take_kubeconfig(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    kubeconfig: str | None = None
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--kubeconfig":
            kubeconfig = next(words, None)
            if kubeconfig is None:
                raise OptionError("--kubeconfig needs a value: --kubeconfig=FILE")
        elif word.startswith("--kubeconfig="):
            kubeconfig = word.partition("=")[2]
        else:
            rest.append(word)
    return kubeconfig, rest


async def _run(options: Options, kubeconfig: str | None) -> int:
    stop = _stop_signal()
    clock, rng = SystemClock(), unseeded()
    namespace = os.environ.get("SYSTEM_NAMESPACE", "") or "kube-system"
    async with AsyncExitStack() as stack:
        configure_logs(
            options.log_level, clock, [_sink(p, stack) for p in options.log_output_paths.split(",")]
        )
        config = load_config(kubeconfig, environ=os.environ)
        transport = HttpTransport(
            config, clock=clock, qps=options.kube_client_qps, burst=options.kube_client_burst
        )
        stack.push_async_callback(transport.close)
        operator = Operator(
            transport,
            options,
            clock=clock,
            rng=rng,
            executor=ThreadExecutor(),
            provider_settings={
                "instance-types-file-path": options.instance_types_file_path,
                "instance-catalogue": options.instance_catalogue,
            },
            identity=identity(rng),
            namespace=namespace,
        )
        health, metrics = options.health_probe_port, options.metrics_port
        await stack.enter_async_context(
            serving(health_app(operator.readiness()), health, "health-probe-port")
        )
        await stack.enter_async_context(
            serving(metrics_app(operator.metrics, operator.why), metrics, "metrics-port")
        )
        await stack.enter_async_context(background(operator.run(), "operator"))
        await stop.wait()
    return 0


def identity(rng: Random) -> str:
    """Return whose Lease it is: the pod's name, by which the leader is found; else the host's and a suffix.

    The suffix keeps two operators on one machine apart. In a pod the host's name is the pod's.
    """
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}_{name_suffix(rng, 8)}"


def _stop_signal() -> asyncio.Event:
    """Return what is set when the process is asked to end (SIGTERM, Ctrl-C)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _sink(path: str, stack: AsyncExitStack) -> Sink:
    if path in ("stdout", "stderr"):
        stream = sys.stdout if path == "stdout" else sys.stderr
        return lambda line: print(line, file=stream, flush=True)
    file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - the stack closes it
    stack.callback(file.close)
    return lambda line: print(line, file=file)
