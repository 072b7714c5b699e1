"""How fast the embedded scheduler is: `python benchmarks/embedded_scheduler.py [--smoke]` prints a table.

Decisions alone (filters, scores, placing in the model), per kind of pod; then the whole cluster: 50
Deployments created, found unschedulable, bound when nodes come, started by the kubelets. CPU seconds.
"""

import asyncio
import json
import sys
import time
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from karpenter.apis.core import Node, Pod
from karpenter.apis.meta import LabelSelector
from karpenter.base.clock import LoopClock
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.embedded.scheduler.filters import evaluate
from karpenter.embedded.scheduler.model import ClusterModel, Placed
from karpenter.embedded.scheduler.podclass import HOSTNAME, ZONE, PodClass, signature_of
from karpenter.embedded.scheduler.scores import total_scores


def filled_model(nodes: int) -> ClusterModel:
    """Return a model of empty 16-core nodes in three zones."""
    model = ClusterModel()
    for number in range(nodes):
        name = f"node-{number:04}"
        body = {
            "metadata": {"name": name, "labels": {ZONE: "abc"[number % 3], HOSTNAME: name}},
            "status": {
                "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        model.set_node(msgspec.convert(body, Node))
    return model


def pod_body(number: int, kind: str, classes: int) -> dict[str, Any]:
    """Return one pod of the given kind; every `classes`-th is of the same Deployment."""
    app = f"app-{number % classes}"
    spec: dict[str, Any] = {
        "containers": [
            {"name": "c", "image": "app", "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}
        ]
    }
    selector = {"matchLabels": {"app": app}}
    if kind == "spread":
        constraint = {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        spec["topologySpreadConstraints"] = [constraint]
    elif kind == "anti-affinity":
        term = {"topologyKey": HOSTNAME, "labelSelector": selector}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata = {"name": f"p-{number}", "namespace": "default", "labels": {"app": app}}
    return {"metadata": metadata, "spec": spec}


def decide(kind: str, pods: int, nodes: int, classes: int) -> tuple[float, int]:
    """Schedule pods one by one in the model; return CPU seconds and how many found a node."""
    model = filled_model(nodes)
    objects = [msgspec.convert(pod_body(i, kind, classes), Pod) for i in range(pods)]
    started, bound = time.process_time(), 0
    for pod in objects:
        owner = LabelSelector(match_labels=pod.metadata.labels)
        signature = signature_of(pod, owner)
        pod_class = model.classes.get(signature) or model.intern(PodClass(signature, pod, owner))
        rows = np.flatnonzero(evaluate(model, pod_class, key=pod.key).feasible)
        if len(rows):
            best = model.rows[int(rows[int(np.argmax(total_scores(model, pod_class, rows)))])]
            assert best is not None
            model.place(Placed(pod.key, best.name, pod_class))
            bound += 1
    return time.process_time() - started, bound


async def whole_cluster(deployments: int, replicas: int, nodes: int) -> list[tuple[str, float, str]]:
    """Run a cluster under virtual time; return CPU seconds per phase."""
    clock = LoopClock()
    cluster = EmbeddedCluster(clock=clock, rng=seeded(1))
    transport = cluster.transport()
    phases: list[tuple[str, float, str]] = []

    async def post(path: str, body: dict[str, Any]) -> None:
        answer = await transport.request("POST", path, body=json.dumps(body).encode())
        assert answer.status < 300, answer.body

    async def measured(name: str, virtual_seconds: float) -> None:
        before = time.process_time()
        await clock.sleep(virtual_seconds)
        pods = await cluster.client.list(Pod)
        running = sum(p.status.phase == "Running" for p in pods)
        phases.append((name, time.process_time() - before, f"{len(pods)} pods, {running} running"))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(cluster.run())
        await cluster.ready.wait()
        for number in range(deployments):
            pod = pod_body(number, "plain", deployments)
            template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
            selector = {"matchLabels": pod["metadata"]["labels"]}
            body = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": f"app-{number}"},
                "spec": {"replicas": replicas, "selector": selector, "template": template},
            }
            await post("/apis/apps/v1/namespaces/default/deployments", body)
        await measured("create, find unschedulable", 5)
        for number in range(nodes):
            body = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": f"node-{number:04}",
                    "labels": {ZONE: "abc"[number % 3]},
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
            }
            await post("/api/v1/nodes", body)
        await measured("nodes come, bind, start", 30)
        for number in range(deployments):
            scale = {"spec": {"replicas": 0}}
            path = f"/apis/apps/v1/namespaces/default/deployments/app-{number}"
            await transport.request(
                "PATCH", path, body=json.dumps(scale).encode(), content_type="application/merge-patch+json"
            )
        await measured("scale to nothing", 30)
        task.cancel()
    cluster.close()
    return phases


def main() -> None:
    """Print both tables."""
    scale = 10 if "--smoke" in sys.argv else 1
    pods, nodes, console = 5000 // scale, 200 // scale, Console()
    table = Table("pods", "classes", "nodes", "CPU s", "µs/pod", "placed", title="Decisions alone")
    for kind, classes in (
        ("plain", 50),
        ("plain", pods),
        ("spread", 50),
        ("anti-affinity", 50),
    ):
        count = min(pods, nodes * classes) if kind == "anti-affinity" else pods
        seconds, bound = decide(kind, count, nodes, classes)
        table.add_row(
            f"{count} {kind}",
            str(classes),
            str(nodes),
            f"{seconds:.2f}",
            f"{seconds / count * 1e6:.0f}",
            str(bound),
        )
    console.print(table)
    table = Table(
        "phase", "CPU s", "after it", title=f"Whole cluster: 50 Deployments of {pods // 50}, {nodes} nodes"
    )
    for name, seconds, after in run_virtual(whole_cluster(50, pods // 50, nodes)):
        table.add_row(name, f"{seconds:.2f}", after)
    console.print(table)


if __name__ == "__main__":
    main()
