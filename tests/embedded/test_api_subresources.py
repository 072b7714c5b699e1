"""Eviction, binding, scale, logs and metrics."""

import asyncio
from typing import Any

import pytest

from karpenter.base.clock import LoopClock
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.logs import PodLogs
from karpenter.testing.embeddedapi import PODS, Api, a_raw_crd, a_raw_deployment, a_raw_pod

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def api() -> Api:
    return Api()


def running_pod(api: Api, name: str = "web", **labels: str) -> dict[str, Any]:
    api.post(PODS, a_raw_pod(name, labels=labels or {"app": "x"}, nodeName="n"))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return api.merge(f"{PODS}/{name}/status", {"status": ready}).body


def budget(api: Api, name: str, allowed: int, *, observed: int = 1, app: str = "x") -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    api.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    api.merge(f"{BUDGETS}/{name}/status", {"status": {**status, "observedGeneration": observed}})


def evict(api: Api, name: str = "web", **options: Any) -> Any:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return api.post(f"{PODS}/{name}/eviction", {**body, "deleteOptions": options})


def test_eviction_without_budget_deletes(api: Api) -> None:
    """The pod gets its grace period, and says why it goes."""
    running_pod(api)
    assert evict(api).code == 201
    pod = api.get(f"{PODS}/web").body
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert [c["type"] for c in pod["status"]["conditions"]] == ["Ready", "DisruptionTarget"]


def test_eviction_takes_one_of_the_allowed_disruptions(api: Api) -> None:
    """The second eviction finds none left: 429 naming the budget."""
    running_pod(api, "a")
    running_pod(api, "b")
    budget(api, "guard", 1)
    assert evict(api, "a").code == 201
    status = api.get(f"{BUDGETS}/guard").body["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]
    refused = evict(api, "b")
    assert (refused.code, refused.body["reason"]) == (429, "TooManyRequests")
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    [cause] = refused.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert "guard needs 1 healthy pods and has 1 currently" in cause["message"]
    assert "deletionTimestamp" not in api.get(f"{PODS}/b").body["metadata"]


def test_a_budget_not_yet_computed_says_when_to_retry(api: Api) -> None:
    """A new budget blocks until its controller has seen it."""
    running_pod(api)
    budget(api, "guard", 1, observed=0)
    refused = evict(api)
    assert (refused.code, refused.headers["retry-after"]) == (429, "10")


def test_two_budgets_on_one_pod(api: Api) -> None:
    """An error of the configuration: 500."""
    running_pod(api)
    budget(api, "one", 1)
    budget(api, "two", 1)
    refused = evict(api)
    assert refused.code == 500
    assert "more than one PodDisruptionBudget" in refused.message


def test_pods_that_do_not_run_need_no_budget(api: Api) -> None:
    """Pending pods go, whatever the budget says."""
    api.post(PODS, a_raw_pod(labels={"app": "x"}))
    budget(api, "guard", 0)
    assert evict(api).code == 201
    assert api.get(f"{PODS}/web").code == 404


def test_eviction_preconditions_and_dry_run(api: Api) -> None:
    """Another uid conflicts; a dry run takes nothing."""
    pod = running_pod(api)
    budget(api, "guard", 1)
    assert evict(api, preconditions={"uid": "other"}).code == 409
    assert evict(api, dryRun=["All"]).code == 201
    assert api.get(f"{BUDGETS}/guard").body["status"]["disruptionsAllowed"] == 1
    assert evict(api, preconditions={"uid": pod["metadata"]["uid"]}).code == 201
    assert evict(api, "nobody").code == 404


def test_binding_puts_a_pod_on_a_node(api: Api) -> None:
    """nodeName and the PodScheduled condition are set; a second binding conflicts."""
    api.post(PODS, a_raw_pod())
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"name": "n"}}
    assert api.post(f"{PODS}/web/binding", body).code == 201
    pod = api.get(f"{PODS}/web").body
    assert pod["spec"]["nodeName"] == "n"
    [condition] = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = api.post(f"{PODS}/web/binding", body)
    assert again.code == 409
    assert 'already assigned to node "n"' in again.message


def test_gated_pods_are_not_bound(api: Api) -> None:
    """A scheduling gate holds the pod back."""
    api.post(PODS, a_raw_pod(schedulingGates=[{"name": "wait"}]))
    assert api.post(f"{PODS}/web/binding", {"target": {"name": "n"}}).code == 409


def test_scale_of_a_deployment(api: Api) -> None:
    """Scale shows and sets replicas."""
    api.post("/apis/apps/v1/namespaces/default/deployments", a_raw_deployment(replicas=2))
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    scale = api.get(f"{path}/scale").body
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    assert scale["status"]["selector"] == "app=web"
    assert api.merge(f"{path}/scale", {"spec": {"replicas": 5}}).body["spec"]["replicas"] == 5
    assert api.get(path).body["spec"]["replicas"] == 5
    scale["spec"]["replicas"] = 7
    assert api.put(f"{path}/scale", scale).code == 409
    assert api.merge(f"{path}/scale", {"spec": {"replicas": -1}}).code == 422


def test_scale_of_a_custom_kind(api: Api) -> None:
    """A CRD's scale subresource follows its paths; kinds without have none."""
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_raw_crd(scale=True))
    api.post("/apis/example.com/v1/widgets", {"metadata": {"name": "w"}, "spec": {"size": 4}})
    path = "/apis/example.com/v1/widgets/w"
    assert api.merge(f"{path}/scale", {"spec": {"replicas": 6}}).code == 200
    assert api.get(path).body["spec"]["size"] == 6
    assert api.get("/api/v1/namespaces/default/scale").code == 404


def test_logs(api: Api) -> None:
    """tailLines, sinceSeconds and timestamps; the wrong container is an error."""
    api.post(PODS, a_raw_pod())
    for line in ("one", "two", "three"):
        api.server.logs.append("default", "web", "app", line)
        api.clock.advance(10)
    assert api.get(f"{PODS}/web/log").body["text"] == "one\ntwo\nthree\n"
    assert api.get(f"{PODS}/web/log", tailLines="1").body["text"] == "three\n"
    assert api.get(f"{PODS}/web/log", sinceSeconds="20").body["text"] == "two\nthree\n"
    stamped = api.get(f"{PODS}/web/log", timestamps="true", tailLines="1").body["text"]
    assert stamped == "2026-01-01T00:00:20.000000Z three\n"
    assert "container nope is not valid" in api.get(f"{PODS}/web/log", container="nope").message


def test_following_logs_ends_with_the_pod() -> None:
    """A follow gives old lines, new lines, and ends when the pod is closed."""

    async def main() -> list[str]:
        logs, clock = PodLogs(LoopClock()), LoopClock()
        logs.append("d", "p", "c", "old")

        async def write() -> None:
            for index in range(3):
                await clock.sleep(1)
                logs.append("d", "p", "c", f"new {index}")
            logs.close("d", "p")

        writer = asyncio.create_task(write())
        seen = [line async for line in logs.follow("d", "p", "c")]
        await writer
        return seen

    assert run_virtual(main()) == ["old", "new 0", "new 1", "new 2"]


def test_metrics_are_requests(api: Api) -> None:
    """Usage of running pods and of their nodes is what they request."""
    resources = {"requests": {"cpu": "250m", "memory": "64Mi"}}
    containers = [{"name": "app", "image": "i", "resources": resources}]
    for name in ("a", "b"):
        api.post(PODS, a_raw_pod(name, nodeName="n") | {"spec": {"nodeName": "n", "containers": containers}})
        api.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
    api.post("/api/v1/nodes", {"metadata": {"name": "n"}})
    metrics = "/apis/metrics.k8s.io/v1beta1"
    assert api.get(f"{metrics}/nodes").body["items"][0]["usage"] == {"cpu": "500m", "memory": "128Mi"}
    pod = api.get(f"{metrics}/namespaces/default/pods/a").body
    assert pod["containers"] == [{"name": "app", "usage": {"cpu": "250m", "memory": "64Mi"}}]
    assert api.get(f"{metrics}/nodes/none").code == 404
