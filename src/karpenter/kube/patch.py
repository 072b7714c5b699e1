"""The patches we write: always of fields we own, never whole objects."""

from typing import Any

import msgspec

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A patch document and how the server is to read it."""

    content_type: str
    document: Any
    field_manager: str = ""
    force: bool = False

    def encode(self) -> bytes:
        """Return the body to send (JSON, which is YAML too)."""
        return msgspec.json.encode(self.document)


def merge(document: dict[str, Any], *, resource_version: str = "") -> Patch:
    """Return an RFC 7386 merge patch; with `resource_version` it fails if somebody wrote in between."""
    if resource_version:
        metadata = {**document.get("metadata", {}), "resourceVersion": resource_version}
        document = {**document, "metadata": metadata}
    return Patch(content_type=MERGE, document=document)


def json_patch(operations: list[dict[str, Any]]) -> Patch:
    """Return an RFC 6902 patch."""
    return Patch(content_type=JSON_PATCH, document=operations)


def strategic(document: dict[str, Any]) -> Patch:
    """Return a strategic merge patch (built-in kinds only)."""
    return Patch(content_type=STRATEGIC, document=document)


def apply(document: dict[str, Any], *, field_manager: str, force: bool = False) -> Patch:
    """Return a server-side apply of `document` by `field_manager`."""
    return Patch(content_type=APPLY, document=document, field_manager=field_manager, force=force)
