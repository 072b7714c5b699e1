"""Reading manifests and applying them as `kubectl apply --server-side` would."""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from karpenter.kube.errors import error_of
from karpenter.kube.patch import apply
from karpenter.kube.transport import Transport

Manifest = dict[str, Any]

_MAX_BYTES = 20 * 1024 * 1024


class ManifestError(Exception):
    """A file cannot be read, or the API server refuses an object; the message names both."""


def tutorial_manifests() -> list[Manifest]:
    """Return the tutorial that ships with the package: NodePool, KWOKNodeClass, Deployment at 0."""
    folder = resources.files("karpenter.cli.up") / "tutorial"
    texts = [
        (entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".yaml")
    ]
    return [manifest for name, text in sorted(texts) for manifest in parse_manifests(text, name)]


def read_manifests(paths: Iterable[Path]) -> list[Manifest]:
    """Return the objects in `paths` (files, or folders of .yaml, .yml and .json), in order.

    Raises:
        ManifestError: when a file is missing, too large, or not YAML of objects.
    """
    manifests: list[Manifest] = []
    for path in paths:
        files = (
            sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml", ".json"))
            if path.is_dir()
            else [path]
        )
        for file in files:
            try:
                if file.stat().st_size > _MAX_BYTES:
                    raise ManifestError(f"{file}: larger than {_MAX_BYTES >> 20} MiB")
                text = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ManifestError(f"{file}: {error}") from error
            manifests.extend(parse_manifests(text, str(file)))
    return manifests


def parse_manifests(text: str, source: str) -> list[Manifest]:
    """Return the objects of a YAML stream; Lists are unfolded.

    Raises:
        ManifestError: when it is not YAML, or a document is not a Kubernetes object.
    """
    manifests: list[Manifest] = []
    try:
        documents = [d for d in yaml.load_all(text, Loader=yaml.CSafeLoader) if d is not None]
    except yaml.YAMLError as error:
        raise ManifestError(f"{source}: not YAML: {error}") from error
    for document in documents:
        items = (
            document.get("items", [])
            if isinstance(document, dict) and str(document.get("kind", "")).endswith("List")
            else [document]
        )
        for item in items:
            if not (isinstance(item, dict) and item.get("apiVersion") and item.get("kind")):
                raise ManifestError(f"{source}: a document has no apiVersion and kind")
            manifests.append(item)
    return manifests


async def apply_manifests(transport: Transport, manifests: Iterable[Manifest]) -> list[str]:
    """Apply each object in turn (CRDs first) and return `kind/name` of each.

    Raises:
        ManifestError: when the API server refuses one.
    """
    applied: list[str] = []
    ordered = sorted(manifests, key=lambda m: m["kind"] not in ("CustomResourceDefinition", "Namespace"))
    for manifest in ordered:
        name = manifest.get("metadata", {}).get("name", "")
        path = await _path_of(transport, manifest)
        patch = apply(manifest, field_manager="karpenter-up", force=True)
        response = await transport.request(
            "PATCH",
            path,
            query={"fieldManager": "karpenter-up", "force": "true"},
            body=patch.encode(),
            content_type=patch.content_type,
        )
        if response.status >= 400:
            raise ManifestError(
                f"{manifest['kind']}/{name}: {error_of(response.status, response.body).message}"
            )
        applied.append(f"{manifest['kind'].lower()}/{name}")
    return applied


async def _path_of(transport: Transport, manifest: Manifest) -> str:
    """Return the URL path of the object, from the server's discovery."""
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    response = await transport.request("GET", root)
    if response.status < 400:
        for resource in msgspec.json.decode(response.body).get("resources", []):
            if resource["kind"] == kind and "/" not in resource["name"]:
                metadata = manifest.get("metadata", {})
                scope = (
                    f"/namespaces/{metadata.get('namespace') or 'default'}" if resource["namespaced"] else ""
                )
                return f"{root}{scope}/{resource['name']}/{metadata.get('name', '')}"
    name = manifest.get("metadata", {}).get("name", "")
    raise ManifestError(f"{kind}/{name}: the server has no kind {kind} in {api_version}")
