"""How the binary is built and kept, with a Go that only pretends."""

import os
import threading
from pathlib import Path

import pytest
from tests.e2e.binary import BuildFailed, binary

pytestmark = pytest.mark.e2e

_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go{release}; exit; fi
echo built >> {folder}/builds
{build}
"""


def _path_with_go(folder: Path, build: str, release: str = "1.26.3") -> dict[str, str]:
    """Return an environment whose go does `build` ($4 is the output file)."""
    tools = folder / "tools"
    tools.mkdir()
    go = tools / "go"
    go.write_text(_GO.format(folder=folder, build=build, release=release))
    go.chmod(0o755)
    return {"PATH": f"{tools}:{os.environ['PATH']}"}


def _ignore(_: str) -> None:
    pass


def test_what_is_built_is_kept(tmp_path: Path) -> None:
    """The second call returns the first one's file, also without any Go."""
    environ = _path_with_go(tmp_path, 'echo program > "$4"')
    first = binary(tmp_path / "cache", environ=environ, say=_ignore)
    assert first.read_text() == "program\n"
    assert binary(tmp_path / "cache", environ={"PATH": ""}, say=_ignore) == first


def test_two_at_once_build_once(tmp_path: Path) -> None:
    """Who comes second waits for the one that builds and takes its result."""
    environ = _path_with_go(tmp_path, 'sleep 0.5; echo program > "$4"')
    found: list[Path] = []
    said: list[str] = []

    def ask() -> None:
        found.append(binary(tmp_path / "cache", environ=environ, say=said.append))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert (tmp_path / "builds").read_text() == "built\n"
    assert any("waiting for it" in line for line in said)


def test_a_failed_build_shows_its_output_and_leaves_nothing(tmp_path: Path) -> None:
    """The compiler's words and its exit code are in the error, and the next call builds again."""
    environ = _path_with_go(tmp_path, 'echo half > "$4"; echo main.go:1: no such thing >&2; exit 3')
    with pytest.raises(BuildFailed, match=r"exit code 3\nmain.go:1: no such thing"):
        binary(tmp_path / "cache", environ=environ, say=_ignore)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [
        tmp_path / "cache" / "lock"
    ]
