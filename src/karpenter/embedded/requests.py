"""What a request means: its path taken apart, its options read, its body decoded."""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from karpenter.embedded import protobuf
from karpenter.embedded.errors import Cause, StatusError, bad_request, invalid
from karpenter.kube.patch import APPLY

MAX_MANAGER_LENGTH = 128
MAX_BODY_BYTES = 3 * 1024 * 1024  # as the real server's


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, wherever it came from. Header names are lower-case."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """The media type of the body, without parameters."""
        return self.headers.get("content-type", "application/json").split(";")[0].strip()

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "application/json")

    def flag(self, name: str) -> bool:
        """Tell whether a query parameter is set to true."""
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str) -> int | None:
        """Return a query parameter as a number, None when absent."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not text.isdigit():
            raise bad_request(f"query parameter {name}={text!r} is not a number")
        return int(text)


class Target(msgspec.Struct, frozen=True):
    """Which resource a path addresses."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_target(path: str) -> Target | None:
    """Take apart a resource path; None when it is not one (discovery, health, …)."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    namespaced = rest[0] == "namespaces" and len(rest) >= 3
    if namespaced and not (group == "" and rest[2] in ("status", "finalize") and len(rest) == 3):
        namespace, rest = rest[1], rest[2:]
    return Target(
        group=group,
        version=version,
        plural=rest[0],
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else "",
        subresource="/".join(rest[2:]),
    )


class WriteOptions(msgspec.Struct, frozen=True):
    """The query parameters of writes."""

    dry_run: bool = False
    field_manager: str = ""
    force: bool = False
    field_validation: str = "Warn"

    @classmethod
    def of(cls, request: Request) -> "WriteOptions":
        """Read them.

        Raises:
            StatusError: for values the API does not know.
        """
        dry_run = request.query.get("dryRun", "")
        if dry_run not in ("", "All"):
            raise _bad_option(request, "dryRun", f'Unsupported value: "{dry_run}": supported values: "All"')
        validation = request.query.get("fieldValidation", "Warn") or "Warn"
        if validation not in ("Ignore", "Warn", "Strict"):
            why = f'Unsupported value: "{validation}": supported values: "Ignore", "Strict", "Warn"'
            raise _bad_option(request, "fieldValidation", why)
        manager = request.query.get("fieldManager", "")
        if len(manager) > MAX_MANAGER_LENGTH:
            why = f"Too long: may not be more than {MAX_MANAGER_LENGTH} bytes"
            raise _bad_option(request, "fieldManager", why)
        applying = request.method == "PATCH" and request.content_type == APPLY
        if applying and not manager:
            raise _bad_option(request, "fieldManager", "Required value: is required for apply patch")
        if request.method == "PATCH" and not applying and request.query.get("force"):
            raise _bad_option(request, "force", "Forbidden: may not be specified for non-apply patch")
        return cls(
            dry_run=dry_run == "All",
            field_manager=manager or _agent(request),
            force=request.flag("force"),
            field_validation=validation,
        )


def _bad_option(request: Request, field: str, why: str) -> StatusError:
    """Refuse a query parameter, as an object of the verb's options."""
    names = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
    kind = names.get(request.method, "DeleteOptions")
    return invalid("meta.k8s.io", kind, "", [Cause(field, why)])


def _agent(request: Request) -> str:
    return request.headers.get("user-agent", "unknown").split("/")[0] or "unknown"


def decode_body(request: Request) -> Any:
    """Decode a JSON, YAML or protobuf body to plain data.

    Raises:
        StatusError: 400 when it is malformed, 413 when too large, 415 when of another type.
    """
    if len(request.body) > MAX_BODY_BYTES:
        raise StatusError(
            413, "RequestEntityTooLarge", f"the body is {len(request.body)} bytes, limit {MAX_BODY_BYTES}"
        )
    content_type = request.content_type
    if content_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(request.body)
    if content_type in ("application/yaml", "application/apply-patch+yaml"):
        return decode_yaml(request.body)
    if content_type not in ("application/json", "", "*/*") and not content_type.endswith("+json"):
        raise StatusError(
            415, "UnsupportedMediaType", f"the body's media type {content_type!r} is not supported; send JSON"
        )
    return decode_json(request.body)


def decode_json(body: bytes) -> Any:
    """Decode JSON.

    Raises:
        StatusError: 400 when it is malformed.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None


def decode_yaml(body: bytes) -> Any:
    """Decode YAML (of which JSON is a part), the quick way where it is JSON.

    Raises:
        StatusError: 400 when it is malformed.
    """
    if body.lstrip()[:1] == b"{":
        try:
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # flow-style YAML starts with a brace too
        except RecursionError as error:
            raise bad_request(f"the body is nested too deeply: {error}") from None
    try:
        return yaml.load(body, Loader=_PlainLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid YAML: {error}") from None


class _PlainLoader(yaml.SafeLoader):
    """A safe loader that leaves dates as text and refuses aliases, which can blow up memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
