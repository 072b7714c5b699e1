"""The real kubectl against `karpenter up`: the whole product as its users meet it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml


def _find_kubectl() -> str:
    beside = Path(sys.executable).with_name("kubectl")
    return str(beside) if beside.exists() else shutil.which("kubectl") or ""


KUBECTL = _find_kubectl()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KUBECTL, reason="no kubectl: neither beside this Python nor on PATH"),
]


class Cluster:
    """A running `karpenter up`, and kubectl pointed at it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        config = home / "kubeconfig"
        self._environment = {
            "HOME": str(home),
            "KUBECONFIG": str(config),
            "KUBECACHEDIR": str(home / "cache"),
            "PATH": os.environ["PATH"],
        }
        command = [sys.executable, "-m", "karpenter", "up", "--plain", "--seed", "3"]
        with (home / "up.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--kubeconfig", str(config)], cwd=home, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 30
        while not config.exists():
            assert self.process.poll() is None, (home / "up.log").read_text()
            assert time.monotonic() < deadline, "karpenter up did not start within 30 s"
            time.sleep(0.1)

    def kubectl(self, *args: str, stdin: str | None = None, code: int = 0) -> str:
        """Run kubectl; return what it printed on both streams."""
        done = subprocess.run(
            [KUBECTL, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            env=self._environment,
            check=False,
        )
        assert done.returncode == code, f"kubectl {' '.join(args)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def why(self, *args: str) -> str:
        """Run `karpenter why`; return what it printed."""
        command = [sys.executable, "-m", "karpenter", "why", *args]
        environment = {**os.environ, **self._environment}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, *args: str) -> list[list[str]]:
        """Return the table that `kubectl get` prints, by cells; the headings first."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.kubectl("get", *args).splitlines()]

    def node(self) -> str:
        return self.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the module, scaled to five pods."""
    cluster = Cluster(tmp_path_factory.mktemp("up"))
    try:
        assert "scaled" in cluster.kubectl("scale", "deployment", "scaleup", "--replicas", "5")
        done = cluster.kubectl("rollout", "status", "deployment", "scaleup", "--timeout=60s")
        assert "successfully rolled out" in done
        yield cluster
    finally:
        cluster.process.terminate()
        assert cluster.process.wait(10) == 0


def test_claims_and_pools_show_the_columns_people_know(cluster: Cluster) -> None:
    """NodePools and NodeClaims print as upstream's CRDs say."""
    pools, claims = cluster.rows("nodepools"), cluster.rows("nodeclaims")
    assert pools[0] == ["NAME", "NODECLASS", "NODES", "READY", "AGE"]
    assert pools[1][:2] == ["default", "default"]
    assert pools[1][3] == "True"
    assert int(pools[1][2]) == len(claims) - 1 >= 1
    assert claims[0] == ["NAME", "TYPE", "CAPACITY", "ZONE", "NODE", "READY", "AGE"]
    for row in claims[1:]:
        assert row[4] == row[0], "machines are named after their claims"
        assert row[5] == "True"
    assert {row[0] for row in cluster.rows("nodes")[1:]} == {row[0] for row in claims[1:]}


def test_waiting_describing_and_measuring(cluster: Cluster) -> None:
    """wait, describe, top, explain and api-resources answer with what is there."""
    waited = cluster.kubectl("wait", "--for=condition=Ready", "nodeclaims", "--all", "--timeout=30s")
    assert "condition met" in waited
    node = cluster.node()
    described = cluster.kubectl("describe", "node", node)
    assert f"Name:               {node}" in described
    assert "Non-terminated Pods:" in described
    assert "karpenter.sh/nodepool=default" in described
    assert "Kind:         NodePool" in cluster.kubectl("describe", "nodepool", "default")
    assert "Launched" in cluster.kubectl("describe", "nodeclaim", node)
    assert node in cluster.kubectl("top", "nodes")
    assert "scaleup-" in cluster.kubectl("top", "pods")
    assert "FIELD: budgets <[]Object>" in cluster.kubectl("explain", "nodepool.spec.disruption.budgets")
    kinds = cluster.kubectl("api-resources", "--api-group=karpenter.sh", "-o", "name").split()
    assert kinds == ["nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh", "nodepools.karpenter.sh"]


def test_the_operators_log_is_where_tutorials_look(cluster: Cluster) -> None:
    """`kubectl logs` of the karpenter pod shows the operator's decisions, following works too."""
    args = ["logs", "-n", "kube-system", "-l", "app.kubernetes.io/name=karpenter", "-c", "controller"]
    assert '"message":"launched nodeclaim"' in cluster.kubectl(*args, "--tail=-1")
    following = subprocess.Popen(
        [KUBECTL, *args, "-f", "--tail=1"], stdout=subprocess.PIPE, text=True, env=cluster._environment
    )
    try:
        assert following.stdout is not None
        assert following.stdout.readline().startswith('{"level":')
    finally:
        following.kill()
        following.communicate()


def test_nodes_are_labelled_tainted_and_cordoned(cluster: Cluster) -> None:
    """label, annotate, taint, cordon and uncordon do what they say."""
    node = cluster.node()
    assert "labeled" in cluster.kubectl("label", "node", node, "team=blue")
    assert cluster.kubectl("get", "nodes", "-l", "team=blue", "-o", "name").strip() == f"node/{node}"
    assert "annotated" in cluster.kubectl("annotate", "nodepool", "default", "team=blue")
    assert "tainted" in cluster.kubectl("taint", "nodes", node, "busy=yes:NoSchedule")
    assert "untainted" in cluster.kubectl("taint", "nodes", node, "busy-")
    assert "cordoned" in cluster.kubectl("cordon", node)
    assert "SchedulingDisabled" in cluster.kubectl("get", "node", node)
    assert "uncordoned" in cluster.kubectl("uncordon", node)


def test_a_pool_is_changed_on_either_side(cluster: Cluster) -> None:
    """diff shows a change, apply makes it on the client and on the server, and once only."""
    pool = yaml.safe_load(cluster.kubectl("get", "nodepool", "default", "-o", "yaml"))
    pool["metadata"] = {"name": "copy"}
    pool.pop("status")
    pool["spec"]["weight"] = 10
    text = yaml.safe_dump(pool)
    assert "created" in cluster.kubectl("apply", "-f", "-", stdin=text)
    assert "unchanged" in cluster.kubectl("apply", "-f", "-", stdin=text)
    changed = text.replace("weight: 10", "weight: 20")
    assert "+  weight: 20" in cluster.kubectl("diff", "-f", "-", stdin=changed, code=1)
    served = cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=changed)
    assert "serverside-applied" in served
    assert cluster.kubectl("get", "nodepool", "copy", "-o", "jsonpath={.spec.weight}") == "20"
    assert "deleted" in cluster.kubectl("delete", "nodepool", "copy")


@pytest.mark.parametrize("side", [[], ["--server-side"]], ids=["client", "server"])
def test_an_invalid_pool_is_refused_with_the_field(cluster: Cluster, side: list[str]) -> None:
    """Schema and rules of the CRD hold: the answer names object, field and limit."""
    pool = yaml.safe_load(cluster.kubectl("get", "nodepool", "default", "-o", "yaml"))
    pool["metadata"] = {"name": "wrong"}
    pool.pop("status")
    heavy = {**pool, "spec": {**pool["spec"], "weight": 900}}
    said = cluster.kubectl("apply", *side, "-f", "-", stdin=yaml.safe_dump(heavy), code=1)
    assert 'The NodePool "wrong" is invalid: spec.weight: Invalid value: 900' in said
    assert "should be less than or equal to 100" in said
    template = {**pool["spec"]["template"]["spec"]}
    template["requirements"] = [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["x"]}]
    own = {**pool, "spec": {**pool["spec"], "template": {"spec": template}}}
    said = cluster.kubectl("apply", *side, "-f", "-", stdin=yaml.safe_dump(own), code=1)
    assert 'label "karpenter.sh/nodepool" is restricted' in said


def test_the_pod_proxy_reaches_the_operator(cluster: Cluster) -> None:
    """What `karpenter why` asks, kubectl can ask itself; metrics are behind the same port."""
    pod = "/api/v1/namespaces/kube-system/pods/karpenter-0:8080/proxy"
    answer = json.loads(cluster.kubectl("get", "--raw", f"{pod}/why/nodepool/default"))
    assert (answer["kind"], answer["name"]) == ("nodepool", "default")
    assert "karpenter_nodes_created_total" in cluster.kubectl("get", "--raw", f"{pod}/metrics")
    assert "not found" in cluster.kubectl("get", "--raw", f"{pod.replace('-0', '-1')}/metrics", code=1)


def test_the_command_that_why_prints_unlocks_the_pod(cluster: Cluster) -> None:
    """A pod larger than any machine: the line that `karpenter why` prints is run as it is; the pod runs."""
    cluster.kubectl("create", "deployment", "big", "--image=nginx")
    cluster.kubectl("set", "resources", "deployment", "big", "--requests=cpu=2000")
    cluster.kubectl("rollout", "status", "deployment", "big", "--timeout=3s", code=1)
    waiting = ("get", "pods", "-l", "app=big", "--field-selector=spec.nodeName=", "-o", "name")
    name = cluster.kubectl(*waiting).strip().removeprefix("pod/")
    deadline = time.monotonic() + 20
    said = cluster.why("pod", name)
    while "kubectl patch" not in said and time.monotonic() < deadline:
        said = cluster.why("pod", name)
    assert "no instance type" in said
    line = next(line for line in said.splitlines() if line.strip().startswith("kubectl patch"))
    assert "patched" in cluster.kubectl(*shlex.split(line)[1:])
    done = cluster.kubectl("rollout", "status", "deployment", "big", "--timeout=60s")
    assert "successfully rolled out" in done
    cluster.kubectl("delete", "deployment", "big")


def test_a_drained_machine_loses_its_pods_to_others(cluster: Cluster) -> None:
    """A new Deployment runs; a drained node is empty; everything comes up again; deleting ends it."""
    assert "created" in cluster.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    cluster.kubectl("rollout", "status", "deployment", "web", "--timeout=60s")
    node = cluster.node()
    drained = cluster.kubectl("drain", node, "--ignore-daemonsets", "--timeout=60s")
    assert f"node/{node} drained" in drained
    for name in ("web", "scaleup"):
        cluster.kubectl("rollout", "status", "deployment", name, "--timeout=60s")
    assert cluster.kubectl("get", "pods", "--field-selector", f"spec.nodeName={node}", "-o", "name") == ""
    assert "deleted" in cluster.kubectl("delete", "deployment", "web")
    cluster.kubectl("wait", "--for=delete", "pod", "-l", "app=web", "--timeout=30s")


def test_scaled_to_nothing_no_machine_stays(cluster: Cluster) -> None:
    """Without pods the machines go, and their claims with them."""
    cluster.kubectl("scale", "deployment", "scaleup", "--replicas", "0")
    cluster.kubectl("wait", "--for=delete", "nodeclaims", "--all", "--timeout=80s")
    assert "No resources found" in cluster.kubectl("get", "nodes")
