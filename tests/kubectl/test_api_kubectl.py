"""The real kubectl against the HTTP door: what people type must work."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from karpenter.apis.crds import load_crds
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.http import HttpDoor, write_kubeconfig
from karpenter.embedded.store import Store
from karpenter.testing.embeddedapi import a_raw_crd, a_raw_deployment, a_raw_pod

Json = dict[str, Any]
TOKEN = "not-a-secret"


def find_kubectl() -> str:
    beside = Path(sys.executable).with_name("kubectl")
    return str(beside) if beside.exists() else shutil.which("kubectl") or ""


KUBECTL = find_kubectl()
pytestmark = pytest.mark.skipif(not KUBECTL, reason="no kubectl: neither beside this Python nor on PATH")


class Cluster:
    """A served API, and kubectl pointed at it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.server = ApiServer(Store(SystemClock(), seeded(1)))
        self.loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.environment = {
            "HOME": str(home),
            "KUBECONFIG": str(home / "config"),
            "KUBECACHEDIR": str(home / "cache"),
            "PATH": os.environ["PATH"],
        }

    def start(self) -> None:
        self.thread.start()
        assert self._started.wait(10)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self.thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        async with HttpDoor(self.server, token=TOKEN) as door:
            write_kubeconfig(self.home / "config", url=door.url, token=TOKEN)
            self._started.set()
            await self._stop.wait()

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Json:
        """Act as a controller would, on the server's own thread."""

        async def act() -> Json:
            raw = msgspec.json.encode(body) if body is not None else b""
            answer = self.server.handle(method, path, {}, {"content-type": content_type}, raw)
            assert answer.status < 400, answer.body
            return msgspec.json.decode(answer.body)  # type: ignore[no-any-return]

        return asyncio.run_coroutine_threadsafe(act(), self.loop).result(10)

    def kubectl(self, *args: str, stdin: str | None = None, fails: bool = False, **env: str) -> str:
        """Run kubectl; return what it printed (both streams)."""
        done = subprocess.run(
            [KUBECTL, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            env={**self.environment, **env},
            check=False,
        )
        text = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, f"kubectl {' '.join(args)}: {text}"
        return text

    def json(self, *args: str) -> Json:
        return msgspec.json.decode(self.kubectl(*args, "-o", "json"))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server for the module, with a node, a deployment, a running pod, a CRD and an event in it."""
    cluster = Cluster(tmp_path_factory.mktemp("kubectl"))
    cluster.start()
    for name in ("default", "kube-system", "kube-node-lease"):
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    node: Json = {"metadata": {"name": "n1", "labels": {"zone": "a"}}}
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    node["status"] = {"capacity": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.0", "osImage": "Linux"}
    cluster.request("POST", "/api/v1/nodes", node)
    pod = a_raw_pod("web", labels={"app": "web"}, nodeName="n1", terminationGracePeriodSeconds=0)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m", "memory": "64Mi"}}
    created = cluster.request("POST", "/api/v1/namespaces/default/pods", pod)
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "app", "ready": True, "restartCount": 2, "state": {"running": {}}}],
    }
    path = "/api/v1/namespaces/default/pods/web/status"
    cluster.request("PATCH", path, {"status": status}, "application/merge-patch+json")
    event = {
        "metadata": {"name": "web.1"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": created["metadata"]["uid"],
        },
        "reason": "Scheduled",
        "message": "bound to n1",
        "type": "Normal",
        "firstTimestamp": created["metadata"]["creationTimestamp"],
        "lastTimestamp": created["metadata"]["creationTimestamp"],
    }
    cluster.request("POST", "/api/v1/namespaces/default/events", event)
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    crd = a_raw_crd(scale=True, columns=columns)
    cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    for crd in load_crds():
        cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    yield cluster
    cluster.stop()


def manifest(cluster: Cluster, name: str, *objects: Json) -> str:
    path = cluster.home / f"{name}.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_get_prints_the_usual_columns(cluster: Cluster) -> None:
    """Tables of pods and nodes, plain and wide."""
    lines = cluster.kubectl("get", "pods").splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["web", "1/1", "Running", "2"]
    wide = cluster.kubectl("get", "pods", "-o", "wide").splitlines()
    assert wide[1].split()[5:7] == ["10.0.0.1", "n1"]
    node = cluster.kubectl("get", "nodes", "-o", "wide").splitlines()[1].split()
    assert node[:3] == ["n1", "Ready", "<none>"]
    assert node[4] == "v1.36.0"


def test_get_in_every_format(cluster: Cluster) -> None:
    """yaml, json, name, jsonpath and custom columns."""
    assert yaml.safe_load(cluster.kubectl("get", "pod", "web", "-o", "yaml"))["metadata"]["name"] == "web"
    assert cluster.json("get", "pods")["items"][0]["kind"] == "Pod"
    assert cluster.kubectl("get", "pods", "-o", "name") == "pod/web\n"
    assert cluster.kubectl("get", "pod", "web", "-o", "jsonpath={.spec.nodeName}") == "n1"
    assert "web" in cluster.kubectl("get", "pods", "-o", "custom-columns=N:.metadata.name")


def test_get_selects_and_sorts(cluster: Cluster) -> None:
    """-l, --field-selector, --sort-by, -A, several kinds at once, and a name that is not."""
    assert "No resources found" in cluster.kubectl("get", "pods", "-l", "app=other")
    assert "web" in cluster.kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName=n1")
    names = cluster.kubectl("get", "ns", "--sort-by", ".metadata.name", "-o", "name").split()
    assert names == sorted(names)
    assert "node/n1" in cluster.kubectl("get", "pods,nodes")
    assert 'pods "nope" not found' in cluster.kubectl("get", "pod", "nope", fails=True)
    assert "Scheduled" in cluster.kubectl("get", "events")


def test_get_watch_streams_rows(cluster: Cluster) -> None:
    """-w prints a row per change."""
    process = subprocess.Popen(
        [KUBECTL, "get", "configmaps", "-w"],
        stdout=subprocess.PIPE,
        text=True,
        env=cluster.environment,
    )
    try:
        time.sleep(0.3)
        cluster.request("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "seen"}})
        assert process.stdout is not None
        header, row = process.stdout.readline(), process.stdout.readline()
    finally:
        process.terminate()
        process.communicate()
    assert header.split() == ["NAME", "DATA", "AGE"]
    assert row.split()[:2] == ["seen", "0"]


def test_describe(cluster: Cluster) -> None:
    """Pods with their events, nodes with their pods, custom objects."""
    pod = cluster.kubectl("describe", "pod", "web")
    assert "Node:             n1" in pod
    assert "bound to n1" in pod
    node = cluster.kubectl("describe", "node", "n1")
    assert "Non-terminated Pods:          (1 in total)" in node
    assert "250m (6%)" in node
    cluster.request("POST", "/apis/example.com/v1/widgets", {"metadata": {"name": "shown"}})
    assert "Kind:         Widget" in cluster.kubectl("describe", "widget", "shown")


def test_client_side_apply_and_diff(cluster: Cluster) -> None:
    """apply creates, is idempotent, changes; diff shows what would change; prune of a dropped field."""
    deployment = a_raw_deployment("cs", replicas=2)
    path = manifest(cluster, "cs", deployment)
    assert "created" in cluster.kubectl("apply", "-f", path)
    assert "unchanged" in cluster.kubectl("apply", "-f", path)
    deployment["spec"]["replicas"] = 3
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2"
    manifest(cluster, "cs", deployment)
    shown = cluster.kubectl("diff", "-f", path, fails=True)
    assert "+  replicas: 3" in shown
    assert "configured" in cluster.kubectl("apply", "-f", path)
    live = cluster.json("get", "deployment", "cs")
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    assert len(live["spec"]["template"]["spec"]["containers"]) == 1


def test_server_side_apply_and_conflicts(cluster: Cluster) -> None:
    """--server-side merges, a scaled field conflicts, --force-conflicts takes it back."""
    path = manifest(cluster, "ss", a_raw_deployment("ss", replicas=2))
    assert "serverside-applied" in cluster.kubectl("apply", "--server-side", "-f", path)
    assert "scaled" in cluster.kubectl("scale", "deployment", "ss", "--replicas", "5")
    assert ".spec.replicas" in cluster.kubectl("apply", "--server-side", "-f", path, fails=True)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", path)
    assert cluster.json("get", "deployment", "ss")["spec"]["replicas"] == 2


def test_strict_validation_names_the_unknown_field(cluster: Cluster) -> None:
    """A typo is an error, with its path."""
    deployment = a_raw_deployment("typo")
    deployment["spec"]["replica"] = 3
    path = manifest(cluster, "typo", deployment)
    assert 'unknown field "spec.replica"' in cluster.kubectl("apply", "-f", path, fails=True)
    assert "created" in cluster.kubectl("apply", "-f", path, "--validate=ignore")


def test_custom_objects(cluster: Cluster) -> None:
    """Apply, print with the CRD's columns, short names, scale and delete."""
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"size": 2},
    }
    path = manifest(cluster, "widget", widget)
    assert "created" in cluster.kubectl("apply", "-f", path)
    assert cluster.kubectl("get", "wd", "w").splitlines()[1].split() == ["w", "2"]
    cluster.kubectl("scale", "widget", "w", "--replicas", "4")
    assert cluster.json("get", "widget", "w")["spec"]["size"] == 4
    assert "configured" in cluster.kubectl("apply", "-f", path)
    assert cluster.json("get", "widget", "w")["spec"]["size"] == 2
    assert "deleted" in cluster.kubectl("delete", "-f", path)


def test_node_pools(cluster: Cluster) -> None:
    """Our own kind: applied both ways, refused by its rules, printed, described, explained, scaled."""
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": node_class, "requirements": []}}
    pool: Json = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {"template": template},
    }
    path = manifest(cluster, "pool", pool)
    assert "created" in cluster.kubectl("apply", "-f", path)
    assert "serverside-applied" in cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", path)
    live = cluster.json("get", "nodepool", "general")
    assert live["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    pool["spec"]["weight"] = 1000
    assert "spec.weight" in cluster.kubectl("apply", "-f", manifest(cluster, "heavy", pool), fails=True)
    pool["spec"]["weight"] = 10
    assert "+  weight: 10" in cluster.kubectl("diff", "-f", manifest(cluster, "light", pool), fails=True)
    columns = cluster.kubectl("get", "nodepools").splitlines()[0].split()
    assert columns[:3] == ["NAME", "NODECLASS", "NODES"]
    assert "Consolidation Policy" in cluster.kubectl("describe", "nodepool", "general")
    assert "consolidateAfter" in cluster.kubectl("explain", "nodepool.spec.disruption")
    pool["metadata"]["name"] = "static"
    pool["spec"] = {"template": template, "replicas": 1}
    cluster.kubectl("apply", "-f", manifest(cluster, "static", pool))
    cluster.kubectl("scale", "nodepool", "static", "--replicas", "3")
    assert cluster.json("get", "nodepool", "static")["spec"]["replicas"] == 3
    assert "deleted" in cluster.kubectl("delete", "nodepool", "general", "static")


def test_imperative_creates_send_protobuf(cluster: Cluster) -> None:
    """create namespace, deployment, configmap, serviceaccount, job, and a dry run."""
    cluster.kubectl("create", "namespace", "made")
    cluster.kubectl(
        "create", "deployment", "d", "--image", "nginx", "--replicas", "3", "--port", "80", "-n", "made"
    )
    made = cluster.json("get", "deployment", "d", "-n", "made")
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["template"]["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "protocol": "TCP"}
    ]
    cluster.kubectl("create", "configmap", "c", "--from-literal", "a=b", "-n", "made")
    assert cluster.json("get", "configmap", "c", "-n", "made")["data"] == {"a": "b"}
    cluster.kubectl("create", "serviceaccount", "s", "-n", "made")
    cluster.kubectl("create", "secret", "generic", "s", "--from-literal", "k=v", "-n", "made")
    assert cluster.json("get", "secret", "s", "-n", "made")["data"] == {"k": "dg=="}
    cluster.kubectl("create", "job", "j", "--image", "busybox", "-n", "made")
    assert "Running" in cluster.kubectl("get", "jobs", "-n", "made")
    dry = cluster.kubectl("create", "namespace", "never", "--dry-run=server")
    assert "created (server dry run)" in dry
    assert "AlreadyExists" in cluster.kubectl("create", "namespace", "made", fails=True)


def test_labels_annotations_and_patches(cluster: Cluster) -> None:
    """label, annotate, and patch in its four forms."""
    cluster.kubectl("label", "node", "n1", "team=a")
    cluster.kubectl("annotate", "node", "n1", "note=hello")
    meta = cluster.json("get", "node", "n1")["metadata"]
    assert (meta["labels"]["team"], meta["annotations"]["note"]) == ("a", "hello")
    cluster.kubectl("label", "node", "n1", "team-")
    cluster.kubectl("patch", "node", "n1", "-p", '{"metadata":{"labels":{"s":"1"}}}')
    cluster.kubectl("patch", "node", "n1", "--type=merge", "-p", '{"metadata":{"labels":{"m":"1"}}}')
    operation = '[{"op":"add","path":"/metadata/labels/j","value":"1"}]'
    cluster.kubectl("patch", "node", "n1", "--type=json", "-p", operation)
    status = '{"status":{"phase":"Running"}}'
    cluster.kubectl("patch", "node", "n1", "--subresource=status", "--type=merge", "-p", status)
    node = cluster.json("get", "node", "n1")
    assert {key: node["metadata"]["labels"].get(key) for key in ("team", "s", "m", "j")} == {
        "team": None,
        "s": "1",
        "m": "1",
        "j": "1",
    }
    assert node["status"]["phase"] == "Running"


def test_taint_cordon_and_drain(cluster: Cluster) -> None:
    """taint by merge key, cordon, drain by eviction, uncordon."""
    cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})
    cluster.kubectl("taint", "node", "n2", "a=b:NoSchedule")
    cluster.kubectl("taint", "node", "n2", "c=d:NoExecute")
    assert sorted(t["key"] for t in cluster.json("get", "node", "n2")["spec"]["taints"]) == ["a", "c"]
    cluster.kubectl("taint", "node", "n2", "a:NoSchedule-")
    cluster.kubectl("cordon", "n2")
    assert "SchedulingDisabled" in cluster.kubectl("get", "node", "n2")
    pod = a_raw_pod("victim", nodeName="n2", terminationGracePeriodSeconds=0)
    cluster.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert "evicted" in cluster.kubectl("drain", "n2", "--force")
    cluster.kubectl("uncordon", "n2")
    node = cluster.json("get", "node", "n2")
    assert node["spec"] == {"taints": [{"key": "c", "value": "d", "effect": "NoExecute"}]}
    assert 'pods "victim" not found' in cluster.kubectl("get", "pod", "victim", fails=True)


def test_drain_is_held_up_by_a_budget(cluster: Cluster) -> None:
    """drain prints the server's reason and gives up by its timeout."""
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    cluster.request("POST", path, {"metadata": {"name": "guard"}, "spec": spec})
    status = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0}
    cluster.request("PATCH", f"{path}/guard/status", {"status": status}, "application/merge-patch+json")
    assert "guard" in cluster.kubectl("get", "pdb")
    text = cluster.kubectl("drain", "n1", "--force", "--timeout", "1s", fails=True)
    assert "would violate the pod's disruption budget" in text
    cluster.kubectl("uncordon", "n1")
    cluster.kubectl("delete", "pdb", "guard")


def test_logs_and_follow(cluster: Cluster) -> None:
    """logs, --tail, and -f until the pod goes."""
    cluster.request("POST", "/api/v1/namespaces/default/pods", a_raw_pod("chatty"))

    def say(line: str) -> None:
        cluster.loop.call_soon_threadsafe(cluster.server.logs.append, "default", "chatty", "app", line)

    say("one")
    say("two")
    assert cluster.kubectl("logs", "chatty") == "one\ntwo\n"
    assert cluster.kubectl("logs", "chatty", "--tail", "1") == "two\n"
    process = subprocess.Popen(
        [KUBECTL, "logs", "-f", "chatty"], stdout=subprocess.PIPE, text=True, env=cluster.environment
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
    say("three")
    assert process.stdout.readline() == "three\n"
    cluster.kubectl("delete", "pod", "chatty")
    process.communicate(timeout=10)
    assert process.returncode == 0


def test_wait_and_rollout_status(cluster: Cluster) -> None:
    """wait for a condition and for deletion; rollout status reads the deployment's status."""
    assert "condition met" in cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=5s")
    assert "timed out" in cluster.kubectl(
        "wait", "--for=condition=Nope", "pod/web", "--timeout=1s", fails=True
    )
    cluster.kubectl("apply", "-f", manifest(cluster, "ro", a_raw_deployment("ro")))
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    path = "/apis/apps/v1/namespaces/default/deployments/ro/status"
    cluster.request("PATCH", path, {"status": status}, "application/merge-patch+json")
    text = cluster.kubectl("rollout", "status", "deployment/ro", "--timeout=5s")
    assert "successfully rolled out" in text
    cluster.kubectl("rollout", "restart", "deployment/ro")
    template = cluster.json("get", "deployment", "ro")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]


def test_explain_and_discovery(cluster: Cluster) -> None:
    """explain of built-in and custom kinds, api-resources, api-versions, version."""
    text = cluster.kubectl("explain", "pod.spec")
    assert "containers" in text
    assert "The containers that run for as long as the pod does." in text
    assert "size\t<integer>" in cluster.kubectl("explain", "widget.spec")
    assert "maxSurge" in cluster.kubectl("explain", "deployment.spec.strategy", "--recursive")
    resources = cluster.kubectl("api-resources")
    assert "deployments" in resources
    assert "widgets" in resources
    assert "apps/v1" in cluster.kubectl("api-versions")
    assert "Server Version: v1.36" in cluster.kubectl("version")


def test_top(cluster: Cluster) -> None:
    """top shows requests as usage."""
    assert cluster.kubectl("top", "pods").splitlines()[1].split() == ["web", "250m", "64Mi"]
    assert cluster.kubectl("top", "nodes").splitlines()[1].split()[:2] == ["n1", "250m"]


def test_edit_and_replace(cluster: Cluster) -> None:
    """edit writes what the editor leaves; replace puts the whole object."""
    cluster.request(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "ed"}, "data": {"k": "old"}}
    )
    editor = cluster.home / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i "s/k: old/k: new/" "$1"\n')
    editor.chmod(0o755)
    assert "edited" in cluster.kubectl("edit", "configmap", "ed", KUBE_EDITOR=str(editor))
    body = cluster.json("get", "configmap", "ed")
    assert body["data"] == {"k": "new"}
    body["data"] = {"k": "newer"}
    cluster.kubectl("replace", "-f", "-", stdin=msgspec.json.encode(body).decode())
    assert cluster.json("get", "configmap", "ed")["data"] == {"k": "newer"}


def test_delete_and_namespaces(cluster: Cluster) -> None:
    """delete by label and with --cascade; a namespace becomes Terminating until its controller acts."""
    for name in ("x1", "x2"):
        labels = {"metadata": {"name": name, "labels": {"go": "1"}}}
        cluster.request("POST", "/api/v1/namespaces/default/configmaps", labels)
    assert cluster.kubectl("delete", "configmap", "-l", "go=1").count("deleted") == 2
    cluster.kubectl("apply", "-f", manifest(cluster, "cas", a_raw_deployment("cas")))
    cluster.kubectl("delete", "deployment", "cas", "--cascade=orphan", "--wait=false")
    assert cluster.json("get", "deployment", "cas")["metadata"]["finalizers"] == ["orphan"]
    cluster.kubectl("create", "namespace", "doomed")
    cluster.kubectl("delete", "namespace", "doomed", "--wait=false")
    assert "Terminating" in cluster.kubectl("get", "namespace", "doomed")


def test_auth_and_tokens(cluster: Cluster) -> None:
    """can-i says yes, whoami knows us, and a wrong token is refused."""
    assert cluster.kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "kubernetes-admin" in cluster.kubectl("auth", "whoami")
    config = (cluster.home / "config").read_text().replace(TOKEN, "wrong")
    other = cluster.home / "wrong"
    other.write_text(config)
    text = cluster.kubectl(
        "get", "pods", fails=True, KUBECONFIG=str(other), KUBECACHEDIR=str(cluster.home / "c2")
    )
    assert "must be logged in" in text or "credentials" in text


def test_run_and_kubeconfig_mode(cluster: Cluster) -> None:
    """run makes a pod; the kubeconfig is its owner's alone."""
    cluster.kubectl("run", "one-off", "--image", "busybox", "--restart", "Never", "--", "sleep", "1")
    pod = cluster.json("get", "pod", "one-off")
    assert pod["spec"]["containers"][0]["args"] == ["sleep", "1"]
    assert (cluster.home / "config").stat().st_mode & 0o777 == 0o600
