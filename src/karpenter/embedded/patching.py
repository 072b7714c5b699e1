"""PATCH: choose the algorithm by media type, apply it to the newest version, and write through admission."""

from typing import Any

from karpenter.embedded import errors
from karpenter.embedded.apply import ApplyConflict, apply_patch
from karpenter.embedded.errors import Cause, StatusError, Undecodable
from karpenter.embedded.kinds import Kind
from karpenter.embedded.managed import ManagedFields
from karpenter.embedded.patches import PatchError, json_patch, merge_patch
from karpenter.embedded.requests import Request, WriteOptions, decode_json, decode_yaml
from karpenter.embedded.resources import Objects, Written
from karpenter.embedded.shapes import shape_of
from karpenter.embedded.store import Record
from karpenter.embedded.strategic import strategic_merge
from karpenter.kube.patch import APPLY, JSON_PATCH, MERGE, STRATEGIC


class Patching:
    """Carries out PATCH requests."""

    def __init__(self, objects: Objects, managed: ManagedFields) -> None:
        self._objects = objects
        self._managed = managed

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        request: Request,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Written:
        """Patch one object through an endpoint; apply creates it when it is not there.

        Raises:
            StatusError: 404, 409, 415, 422 …
        """
        if request.content_type == APPLY:
            return self._apply(kind, namespace, name, request, options, subresource)
        if request.content_type == STRATEGIC and kind.custom is not None:
            raise _no_strategic_patch()
        record = self._objects.get(kind, namespace, name)
        patched = self.patched(kind, record, request)
        uid = patched.get("metadata", {}).get("uid") if isinstance(patched, dict) else None
        if uid and uid != record.uid:
            cause = Cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')
            raise errors.invalid(kind.group, kind.kind, name, [cause])
        try:
            return self._objects.update(kind, record, patched, options, subresource=subresource)
        except Undecodable as error:  # a patch whose outcome is no such object is itself what is invalid
            cause = Cause("patch", f"Invalid value: {error.message}")
            raise errors.invalid(kind.group, kind.kind, name, [cause]) from None

    def patched(self, kind: Kind, record: Record, request: Request) -> Any:
        """Return an object with a merge, JSON or strategic patch applied, not yet admitted."""
        return patch_document(kind, record.object(), request, record.name)

    def _apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        request: Request,
        options: WriteOptions,
        subresource: str,
    ) -> Written:
        document = decode_yaml(request.body)
        if not isinstance(document, dict):
            raise errors.bad_request("the body of an apply must be an object")
        if (document.get("apiVersion"), document.get("kind")) != (kind.api_version, kind.kind):
            raise errors.bad_request(
                f"apply needs apiVersion {kind.api_version} and kind {kind.kind} in the body, "
                f"found {document.get('apiVersion')!r} and {document.get('kind')!r}"
            )
        meta = document.setdefault("metadata", {})
        if not isinstance(meta, dict) or meta.setdefault("name", name) != name:
            raise errors.bad_request(f"metadata.name does not match the name on the URL ({name})")
        if meta.get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        record = self._objects.store.get(kind, namespace, name)
        live = record.object() if record else None
        if live is None and meta.get("uid"):
            raise errors.conflict(kind.group_resource, name, "uid mismatch: the object does not exist")
        try:
            outcome = apply_patch(
                shape_of(kind),
                live,
                document,
                manager=options.field_manager,
                force=options.force,
                subresource=subresource,
                api_version=kind.api_version,
                now=self._managed.now(),
            )
        except ApplyConflict as conflict:
            raise StatusError(409, "Conflict", str(conflict), details=conflict.details()) from None
        if record is None:
            if subresource:
                raise errors.not_found(kind.group_resource, name)
            return self._objects.create(kind, namespace, outcome.object, options, applied_by=outcome.managers)
        return self._objects.update(
            kind, record, outcome.object, options, subresource=subresource, applied_by=outcome.managers
        )


def _no_strategic_patch() -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        "custom kinds take no strategic merge patch; use a merge patch or apply",
    )


def patch_document(kind: Kind, document: dict[str, Any], request: Request, name: str) -> Any:
    """Return `document` with the request's patch applied.

    Raises:
        StatusError: 400 or 422 when the patch does not fit, 415 when its type is not supported.
    """
    content_type = request.content_type
    try:
        if content_type == MERGE:
            patch = decode_json(request.body)
            if not isinstance(patch, dict):
                raise PatchError("a merge patch of an object must be an object", 400)
            return merge_patch(document, patch)
        if content_type == JSON_PATCH:
            return json_patch(document, decode_json(request.body))
        if content_type == STRATEGIC:
            if kind.custom is not None:
                raise _no_strategic_patch()
            return strategic_merge(shape_of(kind), document, decode_json(request.body))
    except PatchError as error:
        if error.code == 422:
            details = {"name": name, "group": kind.group, "kind": kind.kind}
            raise StatusError(
                422, "Invalid", f"the server rejected our request: {error}", details=details
            ) from None
        raise errors.bad_request(str(error)) from None
    supported = ", ".join((JSON_PATCH, MERGE, STRATEGIC, APPLY))
    message = f"the patch's media type {content_type!r} is not supported; use one of {supported}"
    raise StatusError(415, "UnsupportedMediaType", message)
