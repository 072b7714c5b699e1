"""Server-side apply: merging, ownership, conflicts."""

from typing import Any

import pytest

from karpenter.embedded.apply import decode_fields, display, encode_fields, owned_paths
from karpenter.embedded.kinds import BUILTIN
from karpenter.embedded.shapes import shape_of
from karpenter.testing.embeddedapi import Api, a_raw_deployment

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
POD = shape_of(next(kind for kind in BUILTIN if kind.plural == "pods" and kind.group == ""))


@pytest.fixture
def api() -> Api:
    return Api()


def partial(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def images(**by_name: str) -> dict[str, Any]:
    containers = [{"name": name, "image": image} for name, image in by_name.items()]
    return {"template": {"spec": {"containers": containers}}}


def test_apply_creates_and_records_its_manager(api: Api) -> None:
    """The first apply creates (201); the second of the same writes nothing (200)."""
    made = api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    assert made.code == 201
    [entry] = made.body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsType"]) == ("alice", "Apply", "FieldsV1")
    assert entry["fieldsV1"]["f:spec"]["f:replicas"] == {}
    containers = entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert containers == {'k:{"name":"app"}': {".": {}, "f:name": {}, "f:image": {}}}
    again = api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    assert again.code == 200
    assert again.body["metadata"]["resourceVersion"] == made.body["metadata"]["resourceVersion"]


def test_who_owns_a_value_defends_it(api: Api) -> None:
    """Changing another manager's field is a conflict that names both; force takes the field over."""
    api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    refused = api.apply(DEPLOYMENT, partial(replicas=5), "bob")
    assert refused.code == 409
    assert 'conflict with "alice": .spec.replicas' in refused.message
    assert refused.body["details"]["causes"][0]["field"] == ".spec.replicas"
    forced = api.apply(DEPLOYMENT, partial(replicas=5), "bob", force=True)
    assert forced.body["spec"]["replicas"] == 5
    assert 'conflict with "bob": .spec.replicas' in api.apply(DEPLOYMENT, a_raw_deployment(), "alice").message


def test_the_same_value_is_shared(api: Api) -> None:
    """Two managers may say the same; it stays until both are silent."""
    api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    assert api.apply(DEPLOYMENT, partial(minReadySeconds=3), "alice2").code == 200
    assert api.apply(DEPLOYMENT, partial(minReadySeconds=3), "bob").code == 200
    kept = api.apply(DEPLOYMENT, partial(), "bob")
    assert kept.body["spec"]["minReadySeconds"] == 3
    assert "minReadySeconds" not in api.apply(DEPLOYMENT, partial(), "alice2").body["spec"]


def test_what_is_no_longer_declared_goes(api: Api) -> None:
    """Fields, labels and list items that only this manager owned are removed."""
    wide = a_raw_deployment()
    wide["metadata"]["labels"] = {"a": "1", "b": "2"}
    wide["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "s"})
    api.apply(DEPLOYMENT, wide, "alice")
    narrow = a_raw_deployment()
    narrow["metadata"]["labels"] = {"a": "1"}
    body = api.apply(DEPLOYMENT, narrow, "alice").body
    assert body["metadata"]["labels"] == {"a": "1"}
    assert [c["name"] for c in body["spec"]["template"]["spec"]["containers"]] == ["app"]


def test_list_items_merge_by_key(api: Api) -> None:
    """Each manager owns its containers."""
    api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    body = api.apply(DEPLOYMENT, partial(**images(side="s:1")), "mesh").body
    containers = body["spec"]["template"]["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [("app", "nginx:1.27"), ("side", "s:1")]


def test_updates_take_ownership(api: Api) -> None:
    """A patch of an applied field makes the patcher its owner."""
    api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    api.merge(DEPLOYMENT, {"spec": {"replicas": 9}}, fieldManager="scaler")
    refused = api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    assert 'conflict with "scaler": .spec.replicas' in refused.message
    without = a_raw_deployment()
    del without["spec"]["replicas"]
    assert api.apply(DEPLOYMENT, without, "alice").body["spec"]["replicas"] == 9


def test_the_first_apply_to_what_others_made(api: Api) -> None:
    """What was there before belongs to before-first-apply: same values pass, others conflict."""
    api.post("/apis/apps/v1/namespaces/default/deployments", a_raw_deployment(replicas=2))
    refused = api.apply(DEPLOYMENT, a_raw_deployment(replicas=3), "alice")
    assert 'conflict with "before-first-apply": .spec.replicas' in refused.message
    assert api.apply(DEPLOYMENT, a_raw_deployment(replicas=2), "alice").code == 200


def test_status_is_owned_apart(api: Api) -> None:
    """An apply to /status owns status fields; the same manager's apply to the object keeps them."""
    api.apply(DEPLOYMENT, a_raw_deployment(), "alice")
    status = {"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 3}}
    assert api.apply(f"{DEPLOYMENT}/status", status, "alice").body["status"]["replicas"] == 3
    assert api.apply(DEPLOYMENT, a_raw_deployment(), "alice").body["status"]["replicas"] == 3


@pytest.mark.parametrize(
    ("body", "query", "words"),
    [
        (a_raw_deployment(), {}, "fieldManager: Required value"),
        ({"metadata": {"name": "web"}}, {"fieldManager": "a"}, "apply needs apiVersion apps/v1"),
        (a_raw_deployment("other"), {"fieldManager": "a"}, "does not match the name on the URL"),
        (b"{a: [", {"fieldManager": "a"}, "not valid YAML"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, {"fieldManager": "a"}, "nested too deeply"),
        (b"a: &x [1]\nb: *x", {"fieldManager": "a"}, "aliases are not accepted"),
    ],
)
def test_malformed_applies(api: Api, body: Any, query: dict[str, str], words: str) -> None:
    """400 (422 for what is missing in the query), saying what is wrong."""
    answer = api.call("PATCH", DEPLOYMENT, body, query=query, content_type="application/apply-patch+yaml")
    assert answer.code == (400 if query else 422)
    assert words in answer.message


def test_yaml_bodies_apply(api: Api) -> None:
    """kubectl sends YAML."""
    body = b"""
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {when: 2026-01-01}
"""
    path = "/api/v1/namespaces/default/configmaps/c"
    query = {"fieldManager": "a"}
    answer = api.call("PATCH", path, body, query=query, content_type="application/apply-patch+yaml")
    assert answer.body["data"] == {"when": "2026-01-01"}


def test_path_sets_round_trip() -> None:
    """fieldsV1 decodes to the paths it was made of."""
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "args": ["x"]}]}}
    paths = owned_paths(POD, pod)
    assert decode_fields(encode_fields(paths)) == paths
    shown = sorted(display(path) for path in paths)
    assert shown[:2] == [".metadata.labels.a", '.spec.containers[name="a"]']
