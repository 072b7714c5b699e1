"""Creating, reading, updating and deleting through the API."""

from typing import Any

import pytest

from karpenter.testing.embeddedapi import PODS, Api, a_raw_crd, a_raw_deployment, a_raw_pod

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
def api() -> Api:
    return Api()


def test_create_gives_identity(api: Api) -> None:
    """A new object has uid, time, version and generation; what the user claimed of these is ignored."""
    pod = a_raw_pod()
    pod["metadata"] |= {"uid": "mine", "creationTimestamp": "1999-01-01T00:00:00Z", "generation": 7}
    answer = api.post(PODS, pod)
    meta = answer.body["metadata"]
    assert answer.code == 201
    assert meta["uid"] != "mine"
    assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert (meta["generation"], meta["namespace"]) == (1, "default")
    assert meta["resourceVersion"] == str(api.store.revision)


def test_generate_name(api: Api) -> None:
    """A prefix becomes a unique name."""
    names = set()
    for _ in range(20):
        pod = a_raw_pod()
        pod["metadata"] = {"generateName": "web-"}
        names.add(api.post(PODS, pod).body["metadata"]["name"])
    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


@pytest.mark.parametrize(
    ("path", "change", "code", "words"),
    [
        (PODS, {"metadata": {}}, 422, "metadata.name: Required value"),
        (PODS, {"metadata": {"name": "UPPER"}}, 422, "lowercase RFC 1123"),
        (PODS, {"metadata": {"name": "a", "namespace": "other"}}, 400, "does not match the namespace"),
        (PODS, {"metadata": {"name": "a", "resourceVersion": "5"}}, 400, "should not be set"),
        (PODS, {"metadata": {"name": "a", "labels": {"k": 1}}}, 422, "must be a string"),
        (PODS, {"metadata": {"name": "a", "labels": {"-k": "v"}}}, 422, "metadata.labels"),
        (PODS, {"kind": "Node"}, 400, "the path is of v1, Kind=Pod"),
        (PODS.replace("default", "nope"), {}, 404, 'namespaces "nope" not found'),
        (PODS, {"spec": {}}, 422, "spec.containers: Required value"),
        (PODS, {"spec": {"containers": [{"name": "a"}]}}, 422, "spec.containers[0].image: Required value"),
    ],
)
def test_refused_creates(api: Api, path: str, change: dict[str, Any], code: int, words: str) -> None:
    """Each refusal names the field and the reason."""
    answer = api.post(path, a_raw_pod() | change)
    assert answer.code == code
    assert words in answer.message


def test_an_existing_name_is_taken(api: Api) -> None:
    """409 AlreadyExists."""
    api.post(PODS, a_raw_pod())
    answer = api.post(PODS, a_raw_pod())
    assert (answer.code, answer.body["reason"], answer.message) == (
        409,
        "AlreadyExists",
        'pods "web" already exists',
    )


def test_put_with_an_old_version_conflicts(api: Api) -> None:
    """Optimistic concurrency: who read before the last write must read again."""
    old = api.post(DEPLOYMENTS, a_raw_deployment()).body
    api.merge(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 2}})
    answer = api.put(f"{DEPLOYMENTS}/web", old)
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in answer.message
    patched = api.merge(f"{DEPLOYMENTS}/web", {"metadata": {"resourceVersion": "1"}})
    assert patched.code == 409


def test_generation_counts_spec_changes_only(api: Api) -> None:
    """Labels and status leave the generation alone."""
    api.post(DEPLOYMENTS, a_raw_deployment())
    path = f"{DEPLOYMENTS}/web"
    assert api.merge(path, {"metadata": {"labels": {"a": "b"}}}).body["metadata"]["generation"] == 1
    assert api.merge(f"{path}/status", {"status": {"replicas": 3}}).body["metadata"]["generation"] == 1
    assert api.merge(path, {"spec": {"replicas": 3}}).body["metadata"]["generation"] == 2


def test_an_update_that_changes_nothing_writes_nothing(api: Api) -> None:
    """The version stays, and no watcher hears of it."""
    before = api.post(DEPLOYMENTS, a_raw_deployment()).body
    after = api.merge(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 1}}).body
    assert after == before
    assert api.put(f"{DEPLOYMENTS}/web", before).body == before


def test_status_and_spec_are_written_apart(api: Api) -> None:
    """The object's own path ignores status, /status ignores spec."""
    api.post(DEPLOYMENTS, a_raw_deployment() | {"status": {"replicas": 9}})
    path = f"{DEPLOYMENTS}/web"
    assert "9" not in str(api.get(path).body["status"])
    api.merge(path, {"status": {"replicas": 9}})
    assert api.get(path).body["status"].get("replicas") is None
    api.merge(f"{path}/status", {"status": {"replicas": 4}, "spec": {"replicas": 7}})
    body = api.get(path).body
    assert (body["status"]["replicas"], body["spec"]["replicas"]) == (4, 1)


def test_a_node_keeps_the_status_it_is_created_with(api: Api) -> None:
    """Kubelets register with their capacity."""
    node = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    status = api.post("/api/v1/nodes", node).body["status"]
    assert status == {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}


def test_dry_run_changes_nothing(api: Api) -> None:
    """The answer is what would be, the store stays as it was."""
    revision = api.store.revision
    assert api.post(PODS, a_raw_pod(), dryRun="All").code == 201
    assert api.get(f"{PODS}/web").code == 404
    assert api.store.revision == revision
    api.post(PODS, a_raw_pod())
    assert api.delete(f"{PODS}/web", dryRun="All").code == 200
    assert api.delete(f"{PODS}/web", {"dryRun": ["All"]}).code == 200
    assert api.get(f"{PODS}/web").code == 200


def test_finalizers_hold_an_object_back(api: Api) -> None:
    """A deleted object with finalizers stays, marked, until the last one is removed; none may be added."""
    pod = a_raw_pod()
    pod["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
    api.post(PODS, pod)
    gone = api.delete(f"{PODS}/web").body
    assert gone["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    again = api.delete(f"{PODS}/web").body
    assert again["metadata"]["resourceVersion"] == gone["metadata"]["resourceVersion"]
    added = api.merge(f"{PODS}/web", {"metadata": {"finalizers": ["example.com/a", "example.com/c"]}})
    assert added.code == 422
    assert "no new finalizers" in added.message
    assert api.merge(f"{PODS}/web", {"metadata": {"finalizers": ["example.com/b"]}}).code == 200
    assert api.merge(f"{PODS}/web", {"metadata": {"finalizers": None}}).code == 200
    assert api.get(f"{PODS}/web").code == 404


def test_a_bound_pod_has_time_to_stop(api: Api) -> None:
    """Deletion of a pod on a node waits its grace, can be hastened, and ends with grace 0."""
    api.post(PODS, a_raw_pod(nodeName="n", terminationGracePeriodSeconds=60))
    meta = api.delete(f"{PODS}/web").body["metadata"]
    assert (meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"]) == ("2026-01-01T00:01:00Z", 60)
    longer = api.delete(f"{PODS}/web", {"gracePeriodSeconds": 600}).body["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 60
    shorter = api.delete(f"{PODS}/web", {"gracePeriodSeconds": 5}).body["metadata"]
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == (
        "2026-01-01T00:00:05Z",
        5,
    )
    assert api.delete(f"{PODS}/web", {"gracePeriodSeconds": 0}).body["kind"] == "Pod"
    assert api.get(f"{PODS}/web").code == 404


@pytest.mark.parametrize("case", ["unbound", "finished"])
def test_a_pod_that_runs_nowhere_goes_at_once(api: Api, case: str) -> None:
    """There is nothing to wait for."""
    pod = a_raw_pod(nodeName="n") if case == "finished" else a_raw_pod()
    api.post(PODS, pod)
    if case == "finished":
        api.merge(f"{PODS}/web/status", {"status": {"phase": "Succeeded"}})
    answer = api.delete(f"{PODS}/web")
    assert (answer.body["kind"], answer.body["metadata"]["name"]) == ("Pod", "web")
    assert api.get(f"{PODS}/web").code == 404


def test_preconditions_of_deletion(api: Api) -> None:
    """Another uid or version is a conflict."""
    body = api.post(PODS, a_raw_pod()).body
    assert api.delete(f"{PODS}/web", {"preconditions": {"uid": "other"}}).code == 409
    assert api.delete(f"{PODS}/web", {"preconditions": {"resourceVersion": "1"}}).code == 409
    assert api.delete(f"{PODS}/web", {"preconditions": {"uid": body["metadata"]["uid"]}}).code == 200


@pytest.mark.parametrize(
    ("policy", "finalizers"),
    [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", None)],
)
def test_propagation_policy_leaves_word_for_the_garbage_collector(
    api: Api, policy: str, finalizers: list[str] | None
) -> None:
    """Foreground and Orphan keep the object with a finalizer; Background removes it."""
    api.post(DEPLOYMENTS, a_raw_deployment())
    api.delete(f"{DEPLOYMENTS}/web", {"propagationPolicy": policy})
    left = api.get(f"{DEPLOYMENTS}/web")
    assert left.body.get("metadata", {}).get("finalizers") == finalizers
    assert left.code == (200 if finalizers else 404)


def test_delete_collection_honours_selectors(api: Api) -> None:
    """Only what is selected goes."""
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        api.post(PODS, a_raw_pod(name, labels={"app": app}))
    assert len(api.delete(PODS, labelSelector="app=x").body["items"]) == 2
    assert [pod["metadata"]["name"] for pod in api.get(PODS).body["items"]] == ["c"]


def test_lists_select_and_page(api: Api) -> None:
    """Labels, fields, limit and continue."""
    for index in range(5):
        spec = {"nodeName": "n"} if index % 2 else {}
        api.post(PODS, a_raw_pod(f"p{index}", labels={"i": str(index)}, **spec))
    on_node = api.get("/api/v1/pods", fieldSelector="spec.nodeName=n,status.phase!=Succeeded").body["items"]
    assert [pod["metadata"]["name"] for pod in on_node] == ["p1", "p3"]
    some = api.get(PODS, labelSelector="i in (0,4)").body["items"]
    assert [pod["metadata"]["name"] for pod in some] == ["p0", "p4"]
    first = api.get(PODS, limit="3").body
    api.delete(f"{PODS}/p4")
    rest = api.get(PODS, limit="3", **{"continue": first["metadata"]["continue"]}).body
    assert [pod["metadata"]["name"] for pod in first["items"] + rest["items"]] == [f"p{i}" for i in range(5)]
    assert first["metadata"]["remainingItemCount"] == 2
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"fieldSelector": "spec.colour=red"}, 400, "field label not supported for Pod: spec.colour"),
        ({"labelSelector": "a in b"}, 400, "unable to parse"),
        ({"limit": "many"}, 400, "limit='many' is not a number"),
        ({"continue": "rubbish"}, 400, "continue key is not valid"),
    ],
)
def test_bad_list_requests(api: Api, query: dict[str, str], code: int, words: str) -> None:
    """What cannot be understood is named."""
    answer = api.get(PODS, **query)
    assert answer.code == code
    assert words in answer.message


def test_an_old_continue_token_is_gone(api: Api) -> None:
    """410 when its revision's history has been dropped."""
    api = Api(log_limit=4)
    for index in range(3):
        api.post(PODS, a_raw_pod(f"p{index}"))
    token = api.get(PODS, limit="1").body["metadata"]["continue"]
    for index in range(20):
        api.merge(f"{PODS}/p0", {"metadata": {"labels": {"n": str(index)}}})
    answer = api.get(PODS, limit="1", **{"continue": token})
    assert (answer.code, answer.body["reason"]) == (410, "Expired")


def test_a_namespace_goes_when_its_finalizer_does(api: Api) -> None:
    """Deleting marks it Terminating, nothing new gets in, and /finalize ends it."""
    api.post("/api/v1/namespaces", {"metadata": {"name": "room"}})
    body = api.delete("/api/v1/namespaces/room").body
    assert (body["status"]["phase"], body["spec"]["finalizers"]) == ("Terminating", ["kubernetes"])
    refused = api.post("/api/v1/namespaces/room/configmaps", {"metadata": {"name": "x"}})
    assert refused.code == 403
    assert "because it is being terminated" in refused.message
    body["spec"]["finalizers"] = []
    api.put("/api/v1/namespaces/room/finalize", body)
    assert api.get("/api/v1/namespaces/room").code == 404


def test_a_definition_makes_its_kind_served(api: Api) -> None:
    """Applying a CRD serves the kind and counts generations; deleting it takes the objects along."""
    assert api.get("/apis/example.com/v1/widgets").code == 404
    crd = api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_raw_crd()).body
    assert {c["type"] for c in crd["status"]["conditions"]} == {"Established", "NamesAccepted"}
    path = "/apis/example.com/v1/widgets"
    made = api.post(path, {"metadata": {"name": "w"}, "spec": {"colour": "red"}, "status": {"x": 1}}).body
    assert (made["apiVersion"], made["kind"]) == ("example.com/v1", "Widget")
    assert "status" not in made
    assert api.merge(f"{path}/w/status", {"status": {"x": 2}}).body["metadata"]["generation"] == 1
    assert api.merge(f"{path}/w", {"spec": {"size": 3}}).body["metadata"]["generation"] == 2
    api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
    assert api.get(path).code == 404
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_raw_crd())
    assert api.get(path).body["items"] == []


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/gadgets", 404),
        ("GET", "/nowhere", 404),
        ("POST", "/api/v1/namespaces/default", 405),
        ("PUT", PODS, 405),
        ("POST", "/api/v1/namespaces/default/pods/web/frobnicate", 404),
    ],
)
def test_paths_and_verbs_that_are_not(api: Api, method: str, path: str, code: int) -> None:
    """404 for what is not there, 405 for what cannot be done."""
    assert api.call(method, path, {}).code == code


def test_unknown_patch_type(api: Api) -> None:
    """415 names the types there are."""
    api.post(PODS, a_raw_pod())
    answer = api.call("PATCH", f"{PODS}/web", {}, content_type="application/json")
    assert answer.code == 415
    assert "application/merge-patch+json" in answer.message
