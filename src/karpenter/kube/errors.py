"""What an API server may answer instead of success.

    ApiError                  any Status that is a failure; `status`, `reason`, `message`, `details`
    ├── NotFound              404
    ├── Conflict              409 Conflict: somebody else wrote first; read again
    ├── AlreadyExists         409 AlreadyExists
    ├── Gone                  410: the resource version is too old; list again
    ├── Invalid               422: the object is refused, for good
    ├── Forbidden             401, 403
    └── TooManyRequests       429: back off; also "a PodDisruptionBudget forbids this eviction"

`TransportError` (karpenter.kube.transport) is the other family: no answer at all.
"""

import msgspec


class StatusDetails(msgspec.Struct, rename="camel"):
    """metav1.StatusDetails, as far as we read it."""

    retry_after_seconds: int = 0


class StatusBody(msgspec.Struct, rename="camel"):
    """metav1.Status, as far as we read it."""

    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(
        self, status: int, reason: str, message: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class NotFound(ApiError):
    """There is no such object."""


class Conflict(ApiError):
    """Somebody else wrote first, or a precondition (uid, resourceVersion) does not hold."""


class AlreadyExists(ApiError):
    """An object of that name exists."""


class Gone(ApiError):
    """The resource version is too old for a watch or a continued list."""


class Invalid(ApiError):
    """The object breaks the schema or a validation rule."""


class Forbidden(ApiError):
    """We may not do that."""


class TooManyRequests(ApiError):
    """Back off; for evictions: the disruption budget allows none now."""


def error_of(status: int, body: bytes, retry_after_seconds: float | None = None) -> ApiError:
    """Return the exception that an answer with a failing `status` and a Status `body` stands for.

    How long to wait comes from the `Retry-After` header when given, else from the Status.
    """
    try:
        answer = msgspec.json.decode(body, type=StatusBody)
    except msgspec.MsgspecError:
        answer = StatusBody(message=body[:300].decode(errors="replace"))
    reason = answer.reason
    if retry_after_seconds is None and answer.details and answer.details.retry_after_seconds > 0:
        retry_after_seconds = float(answer.details.retry_after_seconds)
    kind: type[ApiError] = {
        401: Forbidden,
        403: Forbidden,
        404: NotFound,
        409: AlreadyExists if reason == "AlreadyExists" else Conflict,
        410: Gone,
        422: Invalid,
        429: TooManyRequests,
    }.get(status, ApiError)
    return kind(status, reason, answer.message, retry_after_seconds)
