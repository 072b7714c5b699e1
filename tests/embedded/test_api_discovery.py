"""Discovery, OpenAPI, version, health and access reviews, without kubectl."""

from collections.abc import Iterator
from typing import Any

import pytest

from karpenter.embedded import discovery
from karpenter.testing.embeddedapi import Api, a_raw_crd

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WANTS_AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


@pytest.fixture
def api() -> Api:
    return Api()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            if key == "$ref" and isinstance(child, str):
                yield child
            else:
                yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def test_the_legacy_list_has_what_drain_looks_for(api: Api) -> None:
    """pods/eviction of kind Eviction, group policy, version v1."""
    resources = {entry["name"]: entry for entry in api.get("/api/v1").body["resources"]}
    eviction = resources["pods/eviction"]
    assert (eviction["kind"], eviction["group"], eviction["version"]) == ("Eviction", "policy", "v1")
    assert resources["nodes"]["namespaced"] is False
    assert resources["pods"]["shortNames"] == ["po"]


def test_both_forms_of_discovery_tell_the_same(api: Api) -> None:
    """Aggregated and legacy name the same resources, custom ones included."""
    api.post(CRDS, a_raw_crd())
    answer = api.call("GET", "/apis", accept=WANTS_AGGREGATED)
    assert answer.headers["content-type"] == discovery.AGGREGATED
    aggregated = {
        (group["metadata"]["name"], version["version"], resource["resource"])
        for group in answer.body["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }
    legacy = {
        (group["name"], version["version"], resource["name"])
        for group in api.get("/apis").body["groups"]
        for version in group["versions"]
        for resource in api.get(f"/apis/{version['groupVersion']}").body["resources"]
        if "/" not in resource["name"]
    }
    assert aggregated == legacy
    assert ("example.com", "v1", "widgets") in legacy


def test_every_openapi_document_is_whole(api: Api) -> None:
    """The index leads to all documents, and every reference in them resolves."""
    api.post(CRDS, a_raw_crd())
    paths = api.get("/openapi/v3").body["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/example.com/v1"} <= paths.keys()
    for entry in paths.values():
        document = api.get(entry["serverRelativeURL"].split("?")[0]).body
        schemas = document["components"]["schemas"]
        assert {ref.removeprefix("#/components/schemas/") for ref in references(document)} <= schemas.keys()
    assert api.get("/openapi/v2").code == 404


def test_openapi_knows_merge_keys_and_kinds(api: Api) -> None:
    """What client-side apply reads."""
    schemas = api.get("/openapi/v3/api/v1").body["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert (containers["x-kubernetes-patch-merge-key"], containers["type"]) == ("name", "array")
    marks = schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"]
    assert marks == [{"group": "", "version": "v1", "kind": "Pod"}]


def test_documents_follow_the_definitions(api: Api) -> None:
    """A deleted CRD takes its document along; its hash changes with its schema."""
    api.post(CRDS, a_raw_crd())
    before = api.get("/openapi/v3").body["paths"]["apis/example.com/v1"]
    changed = a_raw_crd(schema={"type": "object", "properties": {"spec": {"type": "object"}}})
    api.merge(f"{CRDS}/widgets.example.com", {"spec": changed["spec"]})
    assert api.get("/openapi/v3").body["paths"]["apis/example.com/v1"] != before
    api.delete(f"{CRDS}/widgets.example.com")
    assert "apis/example.com/v1" not in api.get("/openapi/v3").body["paths"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_health(api: Api, path: str) -> None:
    """ok."""
    assert api.get(path).body == {"text": "ok"}


def test_version_and_reviews(api: Api) -> None:
    """A Kubernetes 1.36 that lets its one user do everything."""
    version = api.get("/version").body
    assert (version["major"], version["minor"]) == ("1", "36")
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = api.post(review, {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}})
    assert (answer.code, answer.body["status"]["allowed"]) == (201, True)
    assert api.post("/apis/authorization.k8s.io/v1/gadgets", {}).code == 404
