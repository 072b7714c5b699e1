"""Everything that is not an object: discovery, OpenAPI, version, health, and reviews of access.

Whoever holds the token may do everything here, so access reviews always say yes.
"""

import platform
from collections.abc import Callable
from typing import Any

import msgspec

from karpenter.embedded import discovery, errors
from karpenter.embedded.kinds import KindRegistry
from karpenter.embedded.openapi import OpenApi
from karpenter.embedded.requests import Request, decode_body
from karpenter.kube.transport import Response

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+karpenter",
    "gitCommit": "",
    "gitTreeState": "",
}
USER = "kubernetes-admin"


class Statics:
    """Answers for paths that address no stored resource."""

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._openapi = OpenApi(registry)

    def handle(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            StatusError: 404 when the path leads nowhere, 405 for writes to what is only read.
        """
        parts = [part for part in request.path.split("/") if part]
        if request.method == "POST" and parts[:1] == ["apis"] and len(parts) == 4:
            return self._review(request, parts[3])
        if request.method not in ("GET", "HEAD"):
            raise errors.no_such_path()
        if parts[:1] in (["healthz"], ["readyz"], ["livez"]):
            return Response(200, b"ok", {"content-type": "text/plain"})
        if parts == ["version"]:
            return _json(
                {**VERSION, "buildDate": "", "goVersion": "", "compiler": "", "platform": _platform()}
            )
        if parts[:2] == ["openapi", "v3"]:
            return self._openapi_document("/".join(parts[2:]))
        if parts[:1] == ["api"]:
            return self._api(request, parts)
        if parts[:1] == ["apis"]:
            return self._apis(request, parts)
        if not parts:
            return _json(
                {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}
            )
        raise errors.no_such_path()

    def _api(self, request: Request, parts: list[str]) -> Response:
        if len(parts) == 1:
            if _wants_aggregated(request):
                return _aggregated(discovery.aggregated(self._registry, core=True))
            return _json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        return _found(discovery.resource_list(self._registry, "", parts[1]) if len(parts) == 2 else None)

    def _apis(self, request: Request, parts: list[str]) -> Response:
        if len(parts) == 1:
            if _wants_aggregated(request):
                return _aggregated(discovery.aggregated(self._registry, core=False))
            return _json(discovery.group_list(self._registry))
        if len(parts) == 2:
            return _found(discovery.group_document(self._registry, parts[1]))
        return _found(
            discovery.resource_list(self._registry, parts[1], parts[2]) if len(parts) == 3 else None
        )

    def _openapi_document(self, name: str) -> Response:
        body = self._openapi.document(name) if name else self._openapi.index()
        if body is None:
            raise errors.no_such_path()
        return Response(200, body, {"content-type": "application/json"})

    def _review(self, request: Request, plural: str) -> Response:
        answer = _REVIEWS.get(plural)
        if answer is None:
            raise errors.no_such_path()
        body = decode_body(request)
        if not isinstance(body, dict):
            raise errors.bad_request("the body must be an object")
        return Response(
            201, msgspec.json.encode({**body, "status": answer()}), {"content-type": "application/json"}
        )


def _allowed() -> dict[str, Any]:
    return {"allowed": True, "reason": "the token may do everything"}


def _rules() -> dict[str, Any]:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    return {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}


def _user() -> dict[str, Any]:
    return {"userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}}


_REVIEWS: dict[str, Callable[[], dict[str, Any]]] = {
    "selfsubjectaccessreviews": _allowed,
    "selfsubjectrulesreviews": _rules,
    "selfsubjectreviews": _user,
}


def _wants_aggregated(request: Request) -> bool:
    return "as=APIGroupDiscoveryList" in request.accept and "v=v2;" in request.accept.replace(" ", "")


def _aggregated(body: dict[str, Any]) -> Response:
    return Response(200, msgspec.json.encode(body), {"content-type": discovery.AGGREGATED})


def _found(body: dict[str, Any] | None) -> Response:
    if body is None:
        raise errors.no_such_path()
    return _json(body)


def _json(body: dict[str, Any]) -> Response:
    return Response(200, msgspec.json.encode(body), {"content-type": "application/json"})


def _platform() -> str:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}/{machine}"
