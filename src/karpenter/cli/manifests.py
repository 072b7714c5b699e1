"""Reading manifests that nobody vouches for: several documents, each field with its line, within limits."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from yaml.constructor import ConstructorError, SafeConstructor

MAX_BYTES = 4 << 20
MAX_DEPTH = 64
MAX_NODES = 200_000
"""Counted after aliases are followed, so that a small file cannot grow into a large one."""

_SUFFIXES = (".yaml", ".yml", ".json")
_TEXT_TAGS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value", "tag:yaml.org,2002:merge")


class Unreadable(ValueError):
    """A file cannot be read as manifests; the message names the file, the line and the limit or mistake."""


class Document(msgspec.Struct, frozen=True):
    """One object of a file."""

    file: str
    obj: Any
    lines: dict[str, int] = {}
    """Line (from 1) of each field, by path such as `spec.taints[0].key`; empty path: the document."""
    base: str = ""

    def line(self, field: str) -> int:
        """Return the line of `field`, or of the nearest field around it that is written down."""
        path = f"{self.base}.{field}" if self.base and field else self.base or field
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    @property
    def name(self) -> str:
        """What people call the object: `Kind/name`."""
        if not isinstance(self.obj, dict):
            return "document"
        metadata = self.obj.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return f"{self.obj.get('kind') or '?'}/{name or '?'}"

    def require_named(self) -> None:
        """Check that this can be applied at all: an object with apiVersion, kind and name.

        Raises:
            Unreadable: naming file, line and what is missing.
        """
        obj = self.obj
        if not isinstance(obj, dict):
            raise Unreadable(f"{self.file}:{self.line('')}: not an object with apiVersion and kind")
        for field in ("apiVersion", "kind"):
            if not (isinstance(obj.get(field), str) and obj[field]):
                raise Unreadable(f"{self.file}:{self.line('')}: the object has no {field}")
        metadata = obj.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not (isinstance(name, str) and name):
            raise Unreadable(f"{self.file}:{self.line('metadata')}: {obj['kind']} has no metadata.name")


def read_manifests(paths: Iterable[str | Path]) -> Iterator[Document]:
    """Yield every object of the files and folders, in order; `List`s are taken apart.

    Raises:
        Unreadable: when a file is missing, too large, too deep, or not YAML.
    """
    for path in paths:
        for file in _files(Path(path)):
            yield from read_file(file)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not path.exists():
        raise Unreadable(f"{path}: no such file or folder")
    return [path]


def read_file(file: Path) -> Iterator[Document]:
    """Yield the objects of one file.

    Raises:
        Unreadable: as above.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{file}: cannot be read: {error}") from error
    if len(data) > MAX_BYTES:
        raise Unreadable(f"{file}: is larger than {MAX_BYTES >> 20} MiB; split it")
    yield from read_text(str(file), text)


def read_text(name: str, text: str) -> Iterator[Document]:
    """Yield the objects of a text; `name` stands for the file in messages.

    Raises:
        Unreadable: as above.
    """
    try:
        _check_depth(name, text)
        for node in yaml.compose_all(text, Loader=yaml.CSafeLoader):
            lines: dict[str, int] = {}
            value = _Builder(name, lines).build(node, "", 0)
            if value is None:
                continue
            document = Document(name, value, lines)
            yield from _unpacked(document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise Unreadable(f"{where}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise Unreadable(f"{name}: not YAML: {error}") from error


def _unpacked(document: Document) -> Iterator[Document]:
    obj = document.obj
    if isinstance(obj, dict) and str(obj.get("kind")).endswith("List") and isinstance(obj.get("items"), list):
        for number, item in enumerate(obj["items"]):
            yield Document(document.file, item, document.lines, f"items[{number}]")
    else:
        yield document


def _check_depth(name: str, text: str) -> None:
    """Refuse deep nesting before anything recursive sees it."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                where = f"{name}:{event.start_mark.line + 1}" if event.start_mark else name
                raise Unreadable(f"{where}: nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Builder:
    """Turns a document's nodes into plain values, noting lines and counting as it goes."""

    def __init__(self, name: str, lines: dict[str, int]) -> None:
        self._name = name
        self._lines = lines
        self._count = 0
        self._scalars = SafeConstructor()

    def build(self, node: yaml.Node, path: str, depth: int) -> Any:
        self._count += 1
        line = node.start_mark.line + 1
        if self._count > MAX_NODES:
            raise Unreadable(f"{self._name}:{line}: more than {MAX_NODES} values once aliases are followed")
        if depth > MAX_DEPTH:
            raise Unreadable(f"{self._name}:{line}: an alias nests deeper than {MAX_DEPTH} levels")
        self._lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.build(item, f"{path}[{number}]", depth + 1) for number, item in enumerate(node.value)
            ]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise Unreadable(f"{self._name}:{line}: a key must be text")
            key = str(key_node.value)
            if key in result:
                raise Unreadable(f"{self._name}:{line}: {key!r} is written twice")
            where = f"{path}.{key}" if path else key
            self._lines[where] = line
            result[key] = self.build(value_node, where, depth + 1)
        return result

    def _scalar(self, node: yaml.Node) -> Any:
        if node.tag in _TEXT_TAGS:
            return node.value  # JSON has no times
        try:
            return self._scalars.construct_object(node)
        except (ConstructorError, ValueError) as error:
            line = node.start_mark.line + 1
            raise Unreadable(f"{self._name}:{line}: {node.value!r} cannot be used: {error}") from error
