"""Pruning, defaults and rules of built-in kinds; schemas and CEL of custom ones."""

from typing import Any

import pytest

from karpenter.apis.crds import load_crds
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.defaults import qos_class
from karpenter.embedded.kinds import BUILTIN
from karpenter.embedded.pruning import prune, unknown_fields
from karpenter.embedded.shapes import shape_of
from karpenter.embedded.store import Store
from karpenter.testing.embeddedapi import PODS, Api, a_raw_crd, a_raw_deployment, a_raw_pod

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def api() -> Api:
    return Api()


def with_container(**fields: Any) -> dict[str, Any]:
    return a_raw_pod() | {"spec": {"containers": [{"name": "app", "image": "nginx", **fields}]}}


def test_a_new_pod_has_what_users_expect(api: Api) -> None:
    """The defaults that kubectl shows and schedulers read."""
    spec = api.post(PODS, a_raw_pod()).body["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["serviceAccountName"] == "default"
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]
    assert api.get(f"{PODS}/web").body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_own_tolerations_stand(api: Api) -> None:
    """A pod that tolerates everything gets no more tolerations."""
    spec = api.post(PODS, a_raw_pod(tolerations=[{"operator": "Exists"}])).body["spec"]
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_limits_are_requests_where_none_are_given(api: Api) -> None:
    """As scheduling counts them."""
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    made = api.post(PODS, with_container(resources=resources)).body
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert made["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
def test_image_pull_policy(api: Api, image: str, policy: str) -> None:
    """Follows the tag."""
    made = api.post(PODS, with_container(image=image)).body
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}}, "Guaranteed"),
        ({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "2", "memory": "1"}}, "Burstable"),
        ({"requests": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service(resources: dict[str, Any], expected: str) -> None:
    """Only cpu and memory count."""
    assert qos_class({"containers": [{"resources": resources}]}) == expected


def test_priority_comes_from_the_class(api: Api) -> None:
    """By name, by default class, built in; an unknown class or a contradicting number is forbidden."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.post(path, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    spec = api.post(PODS, a_raw_pod("a", priorityClassName="high")).body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    critical = api.post(PODS, a_raw_pod("b", priorityClassName="system-node-critical")).body
    assert critical["spec"]["priority"] == 2_000_001_000
    assert "no PriorityClass with name nope" in api.post(PODS, a_raw_pod(priorityClassName="nope")).message
    assert api.post(PODS, a_raw_pod(priority=5)).code == 403
    api.post(path, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    assert api.post(PODS, a_raw_pod("c")).body["spec"]["priorityClassName"] == "usual"


def test_deployment_defaults(api: Api) -> None:
    """Replicas, strategy, history, and the template's pod."""
    deployment = a_raw_deployment()
    del deployment["spec"]["replicas"]
    spec = api.post(DEPLOYMENTS, deployment).body["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def test_a_job_selects_its_own_pods(api: Api) -> None:
    """Its selector and template labels carry its uid."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}
    path = "/apis/batch/v1/namespaces/default/jobs"
    job = api.post(path, {"metadata": {"name": "j"}, "spec": {"template": template}}).body
    labels = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
    assert job["spec"]["selector"] == {"matchLabels": labels}
    assert job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (with_container(resources={"requests": {"cpu": "lots"}}), "requests[cpu]"),
        (with_container(resources={"requests": {"cpu": "-1"}}), "greater than or equal to 0"),
        (with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), "cpu limit of 1"),
        (with_container(name="Bad_Name"), "spec.containers[0].name"),
        (a_raw_pod(restartPolicy="Sometimes"), 'Unsupported value: "Sometimes"'),
        (a_raw_pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]), "tolerations[0].value"),
        (a_raw_pod(tolerations=[{"effect": "NoSchedule"}]), "must be Exists when `key` is empty"),
        (a_raw_pod(nodeSelector={"a": "b c"}), "spec.nodeSelector"),
        (
            a_raw_pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "z"}]),
            "spec.topologySpreadConstraints[0].maxSkew",
        ),
    ],
)
def test_unsound_pods(api: Api, pod: dict[str, Any], words: str) -> None:
    """422, with a cause per field."""
    answer = api.post(PODS, pod)
    assert answer.code == 422
    assert words in answer.message
    assert answer.body["details"]["causes"]


def test_every_problem_is_named_at_once(api: Api) -> None:
    """One answer, two causes."""
    pod = a_raw_pod(restartPolicy="x") | {}
    pod["spec"]["containers"] = [{"name": "a"}]
    answer = api.post(PODS, pod)
    fields = [cause["field"] for cause in answer.body["details"]["causes"]]
    assert fields == ["spec.containers[0].image", "spec.restartPolicy"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (a_raw_deployment() | {"spec": {"replicas": "3"}}, 'spec.replicas: expected an integer, got "3"'),
        (a_raw_deployment() | {"spec": {"strategy": "fast"}}, "spec.strategy: expected an object"),
        (a_raw_deployment() | {"spec": {"template": []}}, "spec.template: expected an object, got []"),
        (a_raw_deployment() | {"spec": {"paused": "yes"}}, "spec.paused: expected true or false"),
        (a_raw_deployment() | {"spec": 3}, "spec: expected an object, got 3"),
    ],
)
def test_wrong_types_are_named(api: Api, body: dict[str, Any], words: str) -> None:
    """400 before anything looks into the object."""
    answer = api.post(DEPLOYMENTS, body)
    assert answer.code == 400
    assert words in answer.message


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
def test_unknown_fields(api: Api, validation: str) -> None:
    """Strict refuses, Warn warns, all others prune in silence."""
    pod = a_raw_pod(colour="red")
    pod["spec"]["containers"][0]["imagee"] = "x"
    answer = api.post(PODS, pod, fieldValidation=validation)
    assert (answer.code == 400) is (validation == "Strict")
    if validation == "Strict":
        assert 'unknown field "spec.colour"' in answer.message
        assert 'unknown field "spec.containers[0].imagee"' in answer.message
    else:
        assert "colour" not in answer.body["spec"]
        assert ("spec.colour" in answer.headers.get("warning", "")) is (validation == "Warn")


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"spec": {"nodeSelector": {"a": "b"}}}, 422),
        ({"spec": {"containers": [{"name": "app", "image": "nginx:2"}]}}, 200),
        ({"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]}}, 422),
        ({"spec": {"activeDeadlineSeconds": 5}}, 200),
        ({"metadata": {"labels": {"a": "b"}}}, 200),
    ],
)
def test_pods_are_mostly_fixed(api: Api, patch: dict[str, Any], code: int) -> None:
    """Images and a few numbers may change, the rest may not."""
    api.post(PODS, a_raw_pod())
    answer = api.strategic(f"{PODS}/web", patch)
    assert answer.code == code
    if code == 422:
        assert "pod updates may not change fields" in answer.message


def test_a_gated_pod_may_still_be_directed(api: Api) -> None:
    """While a scheduling gate is left, node selectors may be added."""
    api.post(PODS, a_raw_pod(schedulingGates=[{"name": "g"}]))
    assert api.merge(f"{PODS}/web", {"spec": {"nodeSelector": {"a": "b"}}}).code == 200
    assert api.merge(f"{PODS}/web", {"spec": {"schedulingGates": None}}).code == 200


def test_selectors_never_change(api: Api) -> None:
    """A deployment's selector is immutable, and matches its template."""
    api.post(DEPLOYMENTS, a_raw_deployment())
    change = {"spec": {"selector": {"matchLabels": {"app": "other"}}}}
    answer = api.merge(f"{DEPLOYMENTS}/web", change)
    assert answer.code == 422
    assert "spec.selector: Invalid value" in answer.message
    assert "field is immutable" in answer.message
    mismatched = a_raw_deployment("other")
    mismatched["spec"]["template"]["metadata"]["labels"] = {"app": "else"}
    assert "does not match template" in api.post(DEPLOYMENTS, mismatched).message


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/v1/nodes", {"spec": {"taints": [{"key": "a", "effect": "Maybe"}]}}, "spec.taints[0].effect"),
        (
            "/api/v1/nodes",
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}},
            "spec.taints[1]: Duplicate value",
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
            "cannot be both set",
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"spec": {"minAvailable": "half"}},
            "spec.minAvailable",
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            {"spec": {}},
            "spec.accessModes: Required value",
        ),
        ("/apis/storage.k8s.io/v1/storageclasses", {}, "provisioner: Required value"),
        (CRDS, {"spec": {"group": "g.io", "names": {"plural": "ps", "kind": "P"}}}, 'must be "ps.g.io"'),
    ],
)
def test_other_kinds_have_rules_too(api: Api, path: str, body: dict[str, Any], words: str) -> None:
    """A refusal names the field."""
    answer = api.post(path, {"metadata": {"name": "x"}, **body})
    assert answer.code == 422
    assert words in answer.message


def test_custom_kinds_follow_their_schema(api: Api) -> None:
    """Defaults, pruning, bounds and CEL, with the value's path."""
    spec = {
        "type": "object",
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer", "default": 9}},
        "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min exceeds max"}],
    }
    api.post(CRDS, a_raw_crd(schema={"type": "object", "properties": {"spec": spec}}))
    path = "/apis/example.com/v1/widgets"
    made = api.post(path, {"metadata": {"name": "w"}, "spec": {"min": 1, "other": 2}})
    assert made.body["spec"] == {"min": 1, "max": 9}
    assert "unknown field" in made.headers["warning"]
    refused = api.merge(f"{path}/w", {"spec": {"min": 10}})
    assert refused.code == 422
    assert "min exceeds max" in refused.message
    assert "spec.min" in api.merge(f"{path}/w", {"spec": {"min": "one"}}).message


def test_a_definition_with_a_broken_rule_is_refused(api: Api) -> None:
    """CEL that does not parse never gets in."""
    spec = {"type": "object", "x-kubernetes-validations": [{"rule": "self ><", "message": "m"}]}
    answer = api.post(CRDS, a_raw_crd(schema={"type": "object", "properties": {"spec": spec}}))
    assert answer.code == 422
    assert "cannot be served" in answer.message


def test_our_definitions_are_served_from_the_start(api: Api) -> None:
    """A store given CRDs serves them, and leaves the given objects as they were."""
    crds = load_crds()
    before = str(crds)
    server = ApiServer(Store(api.clock, api.store.rng, crds=crds))
    assert server.handle("GET", "/apis/karpenter.sh/v1/nodepools").status == 200
    assert str(crds) == before


def test_prune_reports_paths() -> None:
    """Unknown fields go, nulls go, free maps stay."""
    pod = a_raw_pod(colour=1, hostname=None)
    pod["metadata"]["annotations"] = {"any": "thing"}
    found = prune(shape_of(next(k for k in BUILTIN if k.group_resource == "pods")), pod)
    assert found.unknown == ["spec.colour"]
    assert "hostname" not in pod["spec"]
    assert pod["metadata"]["annotations"] == {"any": "thing"}
    assert unknown_fields({"a": [{"b": 1, "c": 2}], "n": None}, {"a": [{"b": 1}]}) == ["a[0].c"]
