"""Lists: pages of one revision, joined from bytes that are already encoded."""

import base64
import binascii

import msgspec

from karpenter.embedded.errors import Cause, StatusError, bad_request, expired, invalid
from karpenter.embedded.kinds import Kind
from karpenter.embedded.requests import Request
from karpenter.embedded.selecting import compile_selectors
from karpenter.embedded.store import Compacted, Page, Store


class _Continue(msgspec.Struct, frozen=True):
    revision: int
    start: str


def page_of(store: Store, kind: Kind, namespace: str, request: Request) -> Page:
    """Return the page that a list request asks for.

    Raises:
        StatusError: 400 for a malformed selector or token, 410 when the token's revision is gone.
    """
    accepts = compile_selectors(kind, request.query)
    token = request.query.get("continue", "")
    state = decode_continue(token) if token else _Continue(0, "")
    version = request.query.get("resourceVersion", "")
    check_versions(request, watching=request.flag("watch"))
    if version.isdigit() and int(version) > store.revision:
        raise StatusError(504, "Timeout", f"Too large resource version: {version}, current: {store.revision}")
    revision = state.revision
    if request.query.get("resourceVersionMatch") == "Exact" and version.isdigit() and not token:
        revision = int(version)
    try:
        return store.page(
            kind.group_resource,
            namespace,
            accepts,
            limit=request.number("limit") or 0,
            start=state.start,
            revision=revision,
        )
    except Compacted:
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. "
            "You can start a new list without the continue parameter."
        ) from None


def check_versions(request: Request, *, watching: bool) -> None:
    """Refuse (400, 422) what makes no sense among a list's or watch's version parameters."""
    version = request.query.get("resourceVersion", "")
    match = request.query.get("resourceVersionMatch", "")
    initial = request.query.get("sendInitialEvents", "")
    if version and not version.isdigit():
        raise bad_request(f"Invalid value: {version!r}: resourceVersion must be a number that a server gave")
    problem = ""
    if watching:
        if match and not initial:
            problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        elif initial and match != "NotOlderThan":
            problem = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif initial:
        problem = "sendInitialEvents is forbidden for list"
    elif match and not version:
        problem = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match not in ("", "Exact", "NotOlderThan"):
        problem = f"resourceVersionMatch {match!r} is not supported (Exact, NotOlderThan)"
    elif match == "Exact" and version == "0":
        problem = "resourceVersionMatch Exact needs a resourceVersion other than 0"
    if problem:
        cause = Cause("resourceVersionMatch", f"Forbidden: {problem}", "FieldValueForbidden")
        raise invalid("meta.k8s.io", "ListOptions", "", [cause])


def list_body(kind: Kind, page: Page) -> bytes:
    """Return the encoded list."""
    bodies = [record.body for record in page.records]
    if kind.custom is not None:
        prefix = b'{"apiVersion":"%s"' % kind.api_version.encode()
        bodies = [
            body
            if body.startswith(prefix)
            else msgspec.json.encode({**msgspec.json.decode(body), "apiVersion": kind.api_version})
            for body in bodies
        ]
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": list_meta(page)}
    return b'%s,"items":[%s]}' % (msgspec.json.encode(head)[:-1], b",".join(bodies))


def list_meta(page: Page) -> dict[str, object]:
    """Return the list's metadata."""
    meta: dict[str, object] = {"resourceVersion": str(page.revision)}
    if page.next_key:
        meta["continue"] = encode_continue(page)
        meta["remainingItemCount"] = page.remaining
    return meta


def encode_continue(page: Page) -> str:
    """Return the token with which the next page is asked for."""
    state = msgspec.json.encode(_Continue(page.revision, page.next_key))
    return base64.urlsafe_b64encode(state).decode()


def decode_continue(token: str) -> _Continue:
    """Read a token back.

    Raises:
        StatusError: 400 when it is not one of ours.
    """
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Continue)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        raise bad_request(f"continue key is not valid: {token!r}") from None
