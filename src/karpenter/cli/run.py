"""`karpenter run`: the operator against a real API server."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from karpenter.base.background import background
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import unseeded
from karpenter.kube.config import ConfigError, load_config
from karpenter.kube.http import HttpTransport
from karpenter.operator.assembly import Operator
from karpenter.operator.health import health_app, metrics_app, serving
from karpenter.operator.logs import Sink, configure_logs
from karpenter.operator.options import OptionError, Options, describe_options, parse_options
from karpenter.runtime import ThreadExecutor

_HELP = """Usage: karpenter run [--kubeconfig=FILE] [OPTIONS]

Run the operator. The API server is the one of --kubeconfig, else of $KUBECONFIG, else of the service
account (in a cluster), else of ~/.kube/config.

Options (flag beats environment beats default):
"""


def run_operator(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or Ctrl-C; return the exit code (2 for options that cannot be)."""
    if {"--help", "-h"} & set(arguments):
        print(_HELP + describe_options())
        return 0
    kubeconfig, rest = _take_kubeconfig(arguments)
    try:
        options = parse_options(rest, os.environ)
        return asyncio.run(_run(options, kubeconfig))
    except (OptionError, ConfigError) as error:
        print(f"karpenter run: {error}", file=sys.stderr)
        return 2


def _take_kubeconfig(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    kubeconfig: str | None = None
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--kubeconfig":
            kubeconfig = next(words, None)
        elif word.startswith("--kubeconfig="):
            kubeconfig = word.partition("=")[2]
        else:
            rest.append(word)
    return kubeconfig, rest


async def _run(options: Options, kubeconfig: str | None) -> int:
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
            identity=os.environ.get("POD_NAME", ""),
            namespace=namespace,
        )
        await stack.enter_async_context(serving(health_app(operator.readiness()), options.health_probe_port))
        await stack.enter_async_context(serving(metrics_app(operator.metrics), options.metrics_port))
        await stack.enter_async_context(background(operator.run(), "operator"))
        await _stop_signal()
    return 0


async def _stop_signal() -> None:
    """Return when the process is asked to end (SIGTERM, Ctrl-C)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _sink(path: str, stack: AsyncExitStack) -> Sink:
    if path in ("stdout", "stderr"):
        stream = sys.stdout if path == "stdout" else sys.stderr
        return lambda line: print(line, file=stream, flush=True)
    file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - the stack closes it
    stack.callback(file.close)
    return lambda line: print(line, file=file)
