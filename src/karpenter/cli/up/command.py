"""The command itself: from options to an exit code."""

import asyncio
import json
import os
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live

from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded, unseeded
from karpenter.cli.up.manifests import ManifestError, read_manifests, tutorial_manifests
from karpenter.cli.up.script import ScriptError, load_script, run_script
from karpenter.cli.up.session import Session, open_door, open_session
from karpenter.cli.up.view import Decisions, in_words, live_view, print_results
from karpenter.operator.logs import configure_logs
from karpenter.operator.options import OptionError, parse_options
from karpenter.runtime import ThreadExecutor

_REFRESH_SECONDS = 0.5


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line said."""

    manifests: tuple[Path, ...]
    script: str
    exit_when_settled: bool
    state: Path | None
    kubeconfig: Path
    port: int
    cloud_provider: str
    instance_types_file_path: str
    seed: int | None
    plain: bool


def up_command(options: UpOptions) -> int:
    """Run until the script is done (`exit_when_settled`) or Ctrl-C; return the exit code."""
    try:
        return asyncio.run(_Up(options).run())
    except* (ManifestError, ScriptError, OptionError, OSError) as errors:
        for error in _leaves(errors):
            print(f"karpenter up: {error}", file=sys.stderr)
    return 1


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return leaves


class _Up:
    def __init__(self, options: UpOptions) -> None:
        self._options = options
        self._console = Console(markup=False, soft_wrap=options.plain, width=140 if options.plain else None)
        self._decisions = Decisions()
        self._session: Session | None = None
        self._clock = SystemClock()

    async def run(self) -> int:
        options = self._options
        steps = load_script(options.script) if options.script else ()
        manifests = read_manifests(options.manifests) if options.manifests else tutorial_manifests()
        configure_logs("info", self._clock, [self._log])
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        catalogue = "generic" if options.instance_types_file_path else "ec2"
        operator_options = parse_options(
            [
                f"--cloud-provider={options.cloud_provider}",
                f"--instance-types-file-path={options.instance_types_file_path}",
                f"--instance-catalogue={catalogue}",
            ],
            os.environ,
        )
        async with open_session(
            options=operator_options,
            clock=self._clock,
            rng=unseeded() if options.seed is None else seeded(options.seed),
            executor=ThreadExecutor(),
            state=options.state,
            manifests=manifests,
        ) as session:
            self._session = session
            async with open_door(
                session, port=options.port, token=secrets.token_hex(16), kubeconfig=options.kubeconfig
            ) as url:
                self._console.print(f"Kubernetes API at {url}; in another terminal:")
                self._console.print(f"  export KUBECONFIG={options.kubeconfig.resolve()}")
                self._console.print("  kubectl scale deployment scaleup --replicas 30")
                self._console.print("  kubectl get nodeclaims,nodes,pods")
                await self._until_done(session, steps, stop, url)
        return 0

    async def _until_done(self, session: Session, steps: tuple, stop: asyncio.Event, url: str) -> None:  # type: ignore[type-arg]
        async with asyncio.TaskGroup() as tasks:
            view = tasks.create_task(self._watch(session, f"{url}   KUBECONFIG={self._options.kubeconfig}"))
            driver = tasks.create_task(self._drive(session, steps)) if steps else None
            stopped = tasks.create_task(stop.wait())
            waiting = {stopped, driver} if driver and self._options.exit_when_settled else {stopped}
            await asyncio.wait({task for task in waiting if task}, return_when=asyncio.FIRST_COMPLETED)
            for task in (view, driver, stopped):
                if task is not None:
                    task.cancel()
        if stop.is_set():
            self._console.print("stopping")

    async def _drive(self, session: Session, steps: tuple) -> None:  # type: ignore[type-arg]
        results = await run_script(steps, session.client, self._clock, session.picture, self._say)
        print_results(self._console, results)
        last = session.picture()
        self._console.print(f"{len(last.nodes)} nodes and {last.claims} NodeClaims are left.")

    async def _watch(self, session: Session, where: str) -> None:
        if self._options.plain:
            await self._progress_lines(session)
            return
        with Live(console=self._console, auto_refresh=False, transient=False) as live:
            while True:
                await session.refresh_prices()
                live.update(live_view(session.picture(), self._decisions, where), refresh=True)
                await self._clock.sleep(_REFRESH_SECONDS)

    async def _progress_lines(self, session: Session) -> None:
        last = ""
        while True:
            await session.refresh_prices()
            picture = session.picture()
            states = ", ".join(f"{n} {phase}" for phase, n in picture.pods.items()) or "none"
            line = f"pods: {states}; nodes: {len(picture.nodes)}; ${picture.price:.4f}/h"
            if line != last:
                self._console.print(line)
                last = line
            await self._clock.sleep(_REFRESH_SECONDS)

    def _say(self, line: str) -> None:
        self._console.print(line)

    def _log(self, line: str) -> None:
        """Where the operator's log goes: its pod, and the list of decisions."""
        with suppress(json.JSONDecodeError):
            self._decisions.take(line)
            if self._options.plain:
                self._console.print("  " + in_words(json.loads(line)), highlight=False)
        if self._session is not None:
            self._session.log(line)
