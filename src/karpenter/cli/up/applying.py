"""Applying manifests as `kubectl apply --server-side` would."""

from collections.abc import Iterable
from importlib import resources

import msgspec

from karpenter.cli.manifests import Document, read_text
from karpenter.kube.errors import error_of
from karpenter.kube.patch import apply
from karpenter.kube.transport import Transport

_FIRST = ("CustomResourceDefinition", "Namespace")
"""Kinds that others need; they are applied before the rest, which keeps its order."""
_MANAGER = "karpenter-up"


class Refused(Exception):
    """The API server refuses an object; the message names file, line, object and reason."""


def tutorial_manifests() -> list[Document]:
    """Return the tutorial that ships with the package: NodePool, KWOKNodeClass, Deployment at 0."""
    folder = resources.files("karpenter.cli.up") / "tutorial"
    texts = [
        (entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".yaml")
    ]
    return [document for name, text in sorted(texts) for document in read_text(f"tutorial/{name}", text)]


async def apply_manifests(
    transport: Transport, documents: Iterable[Document], *, only_missing: bool = False
) -> list[str]:
    """Apply each object in turn, definitions and namespaces first; return `Kind/name` of each applied.

    Objects that exist are left as they are when `only_missing`.

    Raises:
        Unreadable: when one is no object with a name; then nothing is applied.
        Refused: when the API server refuses one; those before it stay applied.
    """
    ordered = list(documents)
    for document in ordered:
        document.require_named()
    ordered.sort(key=lambda document: document.obj["kind"] not in _FIRST)
    applied = []
    for document in ordered:
        path = await _path_of(transport, document)
        if only_missing and (await transport.request("GET", path)).status == 200:
            continue
        await _apply(transport, document, path)
        applied.append(document.name)
    return applied


async def _apply(transport: Transport, document: Document, path: str) -> None:
    patch = apply(document.obj, field_manager=_MANAGER, force=True)
    response = await transport.request(
        "PATCH",
        path,
        query={"fieldManager": _MANAGER, "force": "true"},
        body=patch.encode(),
        content_type=patch.content_type,
    )
    if response.status >= 400:
        line = document.line(_first_field(response.body))
        message = error_of(response.status, response.body).message
        raise Refused(f"{document.file}:{line}: {document.name} is refused: {message}")


def _first_field(body: bytes) -> str:
    """Return the path of the first field that a Status complains about, empty when it names none."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        return ""
    return next((cause.field for cause in status.details.causes if cause.field), "")


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] = []


class _Status(msgspec.Struct, frozen=True):
    details: _Details = _Details()


async def _path_of(transport: Transport, document: Document) -> str:
    """Return the URL path of the object, from the server's discovery."""
    api_version, kind, metadata = (document.obj[key] for key in ("apiVersion", "kind", "metadata"))
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    response = await transport.request("GET", root)
    if response.status < 400:
        for resource in msgspec.json.decode(response.body).get("resources", []):
            if resource["kind"] == kind and "/" not in resource["name"]:
                namespace = metadata.get("namespace") or "default"
                scope = f"/namespaces/{namespace}" if resource["namespaced"] else ""
                return f"{root}{scope}/{resource['name']}/{metadata['name']}"
    line = document.line("kind")
    raise Refused(
        f"{document.file}:{line}: {document.name}: the server has no kind {kind} in {api_version} "
        "(is its CustomResourceDefinition among the manifests?)"
    )
