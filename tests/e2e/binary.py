"""The control plane's binary, built once per content of its Go sources (`karpenter.testing.gobinary`).

A first build downloads about 100 MB of modules and takes about four minutes of two cores.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from karpenter.testing.gobinary import BuildFailed, GoProgram

__all__ = ["BuildFailed", "binary", "control_plane"]


def control_plane() -> GoProgram:
    """Return the program; its linker leaves out debugging tables and puts in the API server's version."""
    plain = GoProgram("controlplane", Path(__file__).parent / "controlplane")
    version = plain.required(r"^\s*k8s\.io/kubernetes (v1\.(\d+)\.\d+)$")
    variables = {
        "k8s.io/component-base/version.gitVersion": version[1],
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": version[2],
        "k8s.io/client-go/pkg/version.gitVersion": version[1],
    }
    told = [f"-X {name}={value}" for name, value in variables.items()]
    return msgspec.structs.replace(plain, link_flags=(*plain.link_flags, *told))


def binary(
    folder: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> Path:
    """Return the path of the binary, building it first when it is not in `folder` (the cache).

    Raises:
        BuildFailed: no Go can be had, or it fails.
    """
    return control_plane().binary(folder, environ=environ, say=say)


if __name__ == "__main__":
    print(binary(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
