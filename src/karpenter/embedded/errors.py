"""Refusals, as the API server words them.

`StatusError` is the only exception that request handling raises on purpose; it renders to a metav1.Status.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from karpenter.kube.transport import Response


class Cause(msgspec.Struct, frozen=True):
    """One reason of an `Invalid` refusal: what is wrong with which field."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A request is refused; `code` is the HTTP status, `reason` Kubernetes' word for it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_seconds = retry_after_seconds

    def status(self) -> dict[str, Any]:
        """Return the metav1.Status."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        details = dict(self.details or {})
        if self.retry_after_seconds is not None:
            details["retryAfterSeconds"] = self.retry_after_seconds
        if details:
            body["details"] = details
        return body

    def response(self) -> Response:
        """Return the answer to send."""
        headers = {"content-type": "application/json"}
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(self.retry_after_seconds)
        return Response(self.code, msgspec.json.encode(self.status()), headers)


class Undecodable(StatusError):
    """The body is not an object of its kind: a field of another type, or one unknown under strict checks."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "BadRequest", message)


def not_found(group_resource: str, name: str) -> StatusError:
    """There is no such object."""
    return StatusError(
        404, "NotFound", f'{group_resource} "{name}" not found', details=_details(group_resource, name)
    )


def no_such_path() -> StatusError:
    """The path leads nowhere."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group_resource: str, name: str) -> StatusError:
    """The name is taken."""
    details = _details(group_resource, name)
    return StatusError(409, "AlreadyExists", f'{group_resource} "{name}" already exists', details=details)


def conflict(group_resource: str, name: str, why: str = "") -> StatusError:
    """Somebody wrote in between, or a precondition does not hold."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {group_resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(group_resource, name))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """The object is refused for what it says; each cause names a field."""
    texts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    listing = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    full_kind = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {"name": name, "group": group, "kind": kind}
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return StatusError(422, "Invalid", f'{full_kind} "{name}" is invalid: {listing}', details=details)


def bad_request(message: str) -> StatusError:
    """The request itself cannot be understood."""
    return StatusError(400, "BadRequest", message)


def forbidden(group_resource: str, name: str, why: str) -> StatusError:
    """The request is understood and not allowed."""
    message = f'{group_resource} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, details=_details(group_resource, name))


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> StatusError:
    """History that far back is gone: list again."""
    return StatusError(410, "Expired", message)


def method_not_allowed(method: str) -> StatusError:
    """The resource has no such verb."""
    return StatusError(
        405, "MethodNotAllowed", f"the server does not allow {method} on the requested resource"
    )


def _details(group_resource: str, name: str) -> dict[str, Any]:
    plural, _, group = group_resource.partition(".")
    details = {"name": name, "kind": plural}
    if group:
        details["group"] = group
    return details
