"""Getting objects out of files, folders and standard input: YAML, JSON, gzipped; manifests or scenarios.

Small texts are read with the line of each field, by the careful reader of `karpenter.cli.manifests`. Large
JSON (what `kubectl get pods -A -o json` prints of a real cluster) is decoded at once, without lines.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from karpenter.cli.manifests import MAX_DEPTH, Document, Unreadable, read_text

STDIN = "-"
MAX_JSON_BYTES = 1 << 30
_WITH_LINES_BYTES = 256 << 10
_SUFFIXES = (".yaml", ".yml", ".json")

SCENARIO_KEYS = frozenset(
    {
        *("name", "description", "options", "instanceTypes", "nodePoolInstanceTypes"),
        *("nodePools", "nodeClaims", "nodes", "daemonSets", "pods", "podGroups", "namespaces"),
        *("persistentVolumeClaims", "persistentVolumes", "storageClasses", "csiNodes"),
        "podDisruptionBudgets",
    }
)
"""What may stand at the top of a scenario file."""
_TELLING = SCENARIO_KEYS - {"name", "description", "options"}


def read_inputs(paths: Iterable[str], stdin: BinaryIO) -> Iterator[Document]:
    """Yield every object of the files and folders in order; `-` is standard input; `List`s are taken apart.

    Raises:
        Unreadable: when a file is missing, too large, nested too deep, or neither YAML nor JSON.
    """
    for path in paths:
        if path == STDIN:
            yield from _documents("<stdin>", stdin.read(MAX_JSON_BYTES + 1))
            continue
        for file in _files(Path(path)):
            try:
                with file.open("rb") as stream:
                    data = stream.read(MAX_JSON_BYTES + 1)
            except OSError as error:
                raise Unreadable(f"{file}: cannot be read: {error.strerror or error}") from error
            yield from _documents(str(file), data)


def is_scenario(obj: Any) -> bool:
    """Tell whether a document is a scenario: no kind of its own, and lists of objects by their own names."""
    return isinstance(obj, Mapping) and "kind" not in obj and not _TELLING.isdisjoint(obj)


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.rglob("*") if _is_manifest(file) and file.is_file())
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise Unreadable(f"{str(path)!r}: cannot be a path: {error}") from error
    if not exists:
        raise Unreadable(f"{path}: no such file or folder; give files, folders or - for standard input")
    return [path]


def _is_manifest(file: Path) -> bool:
    name = file.name.removesuffix(".gz")
    return name.endswith(_SUFFIXES)


def _documents(name: str, data: bytes) -> Iterator[Document]:
    if data[:2] == b"\x1f\x8b":
        data = _unzipped(name, data)
    if len(data) > MAX_JSON_BYTES:
        raise Unreadable(f"{name}: is larger than {MAX_JSON_BYTES >> 30} GiB; split it")
    if len(data) > _WITH_LINES_BYTES and data.lstrip()[:1] in (b"{", b"["):
        yield from _large_json(name, data)
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name}: is not UTF-8 text: {error.reason} at byte {error.start}") from error
    yield from read_text(name, text)


def _unzipped(name: str, data: bytes) -> bytes:
    try:
        unpacker = zlib.decompressobj(wbits=31)
        return unpacker.decompress(data, MAX_JSON_BYTES + 1)
    except (zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise Unreadable(f"{name}: looks gzipped and is not: {error}") from error


def _large_json(name: str, data: bytes) -> Iterator[Document]:
    try:
        obj = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise Unreadable(f"{name}: not JSON: {error}") from error
    except RecursionError as error:
        raise Unreadable(f"{name}: nested deeper than {MAX_DEPTH} levels") from error
    _check_depth(name, obj)
    if isinstance(obj, dict) and str(obj.get("kind")).endswith("List") and isinstance(obj.get("items"), list):
        for number, item in enumerate(obj["items"]):
            yield Document(name, item, {}, f"items[{number}]")
    else:
        yield Document(name, obj)


def _check_depth(name: str, obj: Any) -> None:
    level: list[Any] = [obj]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, (dict, list)) and child
        ]
        if not level:
            return
    raise Unreadable(f"{name}: nested deeper than {MAX_DEPTH} levels")
