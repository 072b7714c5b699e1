"""Talking to an embedded API server in a test, synchronously, in plain dicts."""

from typing import Any, NamedTuple

import msgspec

from karpenter.base.clock import ManualClock
from karpenter.base.randomness import seeded
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.store import LOG_LIMIT, Store
from karpenter.kube.patch import APPLY, JSON_PATCH, MERGE, STRATEGIC

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"


class Answer(NamedTuple):
    """A decoded response."""

    code: int
    body: Json
    headers: dict[str, str]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Api:
    """A server with a manual clock and the namespace `default`, and verbs to talk to it."""

    def __init__(self, *, log_limit: int = LOG_LIMIT) -> None:
        self.clock = ManualClock()
        self.store = Store(self.clock, seeded(1), log_limit=log_limit)
        self.server = ApiServer(self.store)
        self.post("/api/v1/namespaces", {"metadata": {"name": "default"}})

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Carry out one request."""
        raw = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        headers = {"content-type": content_type, "accept": accept, "user-agent": "test"}
        response = self.server.handle(method, path, query or {}, headers, raw)
        is_json = "json" in response.headers.get("content-type", "")
        decoded = msgspec.json.decode(response.body) if is_json else {"text": response.body.decode()}
        return Answer(response.status, decoded, dict(response.headers))

    def get(self, path: str, **query: str) -> Answer:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any, **query: str) -> Answer:
        return self.call("POST", path, body, query=query)

    def put(self, path: str, body: Any, **query: str) -> Answer:
        return self.call("PUT", path, body, query=query)

    def delete(self, path: str, body: Any = None, **query: str) -> Answer:
        return self.call("DELETE", path, body, query=query)

    def merge(self, path: str, body: Any, **query: str) -> Answer:
        return self.call("PATCH", path, body, query=query, content_type=MERGE)

    def json_patch(self, path: str, body: Any, **query: str) -> Answer:
        return self.call("PATCH", path, body, query=query, content_type=JSON_PATCH)

    def strategic(self, path: str, body: Any, **query: str) -> Answer:
        return self.call("PATCH", path, body, query=query, content_type=STRATEGIC)

    def apply(self, path: str, body: Any, manager: str, *, force: bool = False) -> Answer:
        query = {"fieldManager": manager, "force": str(force).lower()}
        return self.call("PATCH", path, body, query=query, content_type=APPLY)


def a_raw_pod(name: str = "web", *, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """Return a minimal pod as a user writes it."""
    containers = [{"name": "app", "image": "nginx:1.27"}]
    meta: Json = {"name": name}
    if labels:
        meta["labels"] = labels
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


def a_raw_deployment(name: str = "web", *, replicas: int = 1) -> Json:
    """Return a minimal deployment as a user writes it."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "app", "image": "nginx:1.27"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def a_raw_crd(*, schema: Json | None = None, scale: bool = False, columns: list[Json] | None = None) -> Json:
    """Return a CustomResourceDefinition of cluster-scoped `widgets.example.com/v1`."""
    properties = {"size": {"type": "integer", "minimum": 0, "default": 1}, "colour": {"type": "string"}}
    default_schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": properties},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    subresources: Json = {"status": {}}
    if scale:
        subresources["scale"] = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    version: Json = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": subresources,
        "schema": {"openAPIV3Schema": schema or default_schema},
    }
    if columns:
        version["additionalPrinterColumns"] = columns
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version],
        },
    }
