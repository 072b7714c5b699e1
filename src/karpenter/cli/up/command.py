"""The command itself: from options to an exit code."""

import asyncio
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from rich.console import Console

from karpenter.base.background import background
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded, unseeded
from karpenter.cli.manifests import Document, Unreadable, read_manifests
from karpenter.cli.up.applying import Refused, tutorial_manifests
from karpenter.cli.up.script import SETTLE, ScriptError, Step, StepResult, load_script, run_script
from karpenter.cli.up.session import PortError, Session, open_door, open_session
from karpenter.cli.up.view import print_results
from karpenter.cli.up.watching import Watcher
from karpenter.embedded.persistence import StateFileError
from karpenter.operator.logs import configure_logs
from karpenter.operator.options import OptionError, Options, parse_options
from karpenter.runtime import ThreadExecutor

INTERRUPTED = 130
_EXPECTED = (Unreadable, Refused, ScriptError, OptionError, PortError, StateFileError, OSError)
"""What users can put right; anything else is a mistake of ours and shows its traceback."""


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
    """Run until the script is done (`exit_when_settled`) or Ctrl-C; return the exit code.

    0 after Ctrl-C or SIGTERM, and when the script is done; 1 when something is wrong with what was asked
    for (a line on stderr says what); 130 when stopped before it was done with what it should end with.
    """
    try:
        return _run(options)
    except KeyboardInterrupt:  # before we listen for it
        return INTERRUPTED


def _run(options: UpOptions) -> int:
    try:
        return asyncio.run(_Up(options).run())
    except* _EXPECTED as errors:
        for error in dict.fromkeys(_line(leaf) for leaf in _leaves(errors)):
            print(f"karpenter up: {error}", file=sys.stderr)
    return 1


def _line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return leaves


class _Up:
    def __init__(self, options: UpOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        width = 140 if options.plain else None
        self._console = Console(markup=False, highlight=False, soft_wrap=options.plain, width=width)
        self._watcher = Watcher(self._console, self._clock, plain=options.plain)

    async def run(self) -> int:
        """Do everything, until it is done or somebody stops it."""
        stop = _stop_signal()
        work = asyncio.create_task(self._work())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if work.done():
            await work
            return 0
        self._console.print("stopping")
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        return INTERRUPTED if self._options.exit_when_settled else 0

    async def _work(self) -> None:
        options = self._options
        steps = load_script(options.script) if options.script else ()
        manifests = self._manifests()
        configure_logs("info", self._clock, [self._watcher.take])
        async with open_session(
            options=self._operator_options(),
            clock=self._clock,
            rng=unseeded() if options.seed is None else seeded(options.seed),
            executor=ThreadExecutor(),
            state=options.state,
            manifests=manifests,
            only_missing=not options.manifests,
        ) as session:
            self._watcher.open(session)
            if options.state is not None:
                found = f"goes on with {session.found}" if session.found else "is a new cluster"
                self._console.print(f"{options.state}: {found}")
            token = secrets.token_hex(16)
            async with open_door(
                session, port=options.port, token=token, kubeconfig=options.kubeconfig
            ) as url:
                await self._drive(session, steps, url)

    def _manifests(self) -> list[Document]:
        if not self._options.manifests:
            return tutorial_manifests()
        documents = list(read_manifests(self._options.manifests))
        for document in documents:
            document.require_named()
        return documents

    def _operator_options(self) -> Options:
        options = self._options
        arguments = [f"--cloud-provider={options.cloud_provider}"]
        if options.instance_types_file_path:
            arguments.append(f"--instance-types-file-path={options.instance_types_file_path}")
        elif "INSTANCE_TYPES_FILE_PATH" not in os.environ and "INSTANCE_CATALOGUE" not in os.environ:
            arguments.append("--instance-catalogue=ec2")
        return parse_options(arguments, os.environ)

    async def _drive(self, session: Session, steps: Sequence[Step], url: str) -> None:
        """Watch, and carry out the script beside it; return when that is all there is to do."""
        export = f"export KUBECONFIG={shlex.quote(str(self._options.kubeconfig.resolve()))}"
        self._console.print(f"Kubernetes API at {url}; in another terminal:")
        self._console.print(f"  {export}")
        if not self._options.manifests:
            self._console.print("  kubectl scale deployment scaleup --replicas 30")
        self._console.print("  kubectl get nodeclaims,nodes,pods")
        ends = self._options.exit_when_settled
        results: list[StepResult] = []
        async with background(self._watcher.run(session, (export, "Ctrl-C ends")), "view"):
            if steps or ends:
                results = await run_script(
                    steps or SETTLE, session.client, self._clock, session.picture, self._watcher.say
                )
            if not ends:
                self._report(session, results)
                await asyncio.Event().wait()
        self._report(session, results)

    def _report(self, session: Session, results: Sequence[StepResult]) -> None:
        if results:
            print_results(self._console, results)
            last = session.picture()
            self._console.print(f"{len(last.nodes)} nodes and {last.claims} NodeClaims are left.")


def _stop_signal() -> asyncio.Event:
    """Return what is set by SIGTERM and Ctrl-C; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def asked() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, asked)
    return stop
