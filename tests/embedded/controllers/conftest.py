"""A cluster under virtual time and a client's few words for it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from karpenter.apis.core import Node, Pod
from karpenter.apis.meta import KubeObject
from karpenter.base.clock import LoopClock
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.embedded.controllers.stages import KubeletLatencies

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{namespace}/cronjobs",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}


class World:
    """A running cluster, and short ways to act on it."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.clock = cluster.clock

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send one request that must succeed and return the decoded answer."""
        data = None if body is None else json.dumps(body).encode()
        answer = await self.cluster.transport().request(method, path, body=data, **options)
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return json.loads(answer.body)

    async def create(self, kind: str, name: str, *, namespace: str = "default", **fields: Any) -> Any:
        """Create an object; `metadata` in the fields is merged."""
        metadata = {"name": name, **fields.pop("metadata", {})}
        path = PATHS[kind].format(namespace=namespace)
        group = path.split("/namespaces/")[0] if "{" in PATHS[kind] else path.rpartition("/")[0]
        api_version = group.removeprefix("/apis/").removeprefix("/api/")
        body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
        return await self.request("POST", path, body)

    async def merge(
        self, kind: str, name: str, document: Any, *, namespace: str = "default", sub: str = ""
    ) -> Any:
        """Merge-patch an object."""
        path = f"{PATHS[kind].format(namespace=namespace)}/{name}" + (f"/{sub}" if sub else "")
        return await self.request("PATCH", path, document, content_type="application/merge-patch+json")

    async def get(self, kind: str, name: str, *, namespace: str = "default") -> Any:
        """Return an object as the API shows it."""
        return await self.request("GET", f"{PATHS[kind].format(namespace=namespace)}/{name}")

    async def names(self, kind: str, *, namespace: str = "default") -> list[str]:
        """Return the names of all objects of a kind."""
        found = await self.request("GET", PATHS[kind].format(namespace=namespace))
        return [item["metadata"]["name"] for item in found["items"]]

    async def delete(self, kind: str, name: str, *, namespace: str = "default", policy: str = "") -> None:
        """Delete an object, with a propagation policy if one is given."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1"} | (
            {"propagationPolicy": policy} if policy else {}
        )
        await self.request("DELETE", f"{PATHS[kind].format(namespace=namespace)}/{name}", body)

    async def node(self, name: str, *, cpu: str = "4", zone: str = "a", **fields: Any) -> None:
        """Create a simulated node."""
        labels = {
            "topology.kubernetes.io/zone": zone,
            "kubernetes.io/hostname": name,
            **fields.pop("labels", {}),
        }
        metadata = {"labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        await self.create("Node", name, metadata=metadata, status={"allocatable": amounts}, **fields)

    async def deployment(self, name: str, replicas: int, *, cpu: str = "100m", **spec: Any) -> None:
        """Create a Deployment of one container that asks for `cpu`."""
        template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(cpu)}
        selector = {"matchLabels": {"app": name}}
        await self.create(
            "Deployment",
            name,
            spec={"replicas": replicas, "selector": selector, "template": template, **spec},
        )

    async def pods(self, namespace: str = "default", **labels: str) -> list[Pod]:
        """Return the pods with these labels, by name."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return await self.client.list(Pod, namespace, label_selector=selector)

    async def nodes(self) -> list[Node]:
        """Return all nodes."""
        return await self.client.list(Node)

    async def list(self, kind: type[KubeObject]) -> list[Any]:
        """Return all objects of a kind."""
        return await self.client.list(kind)

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> float:
        """Wait until something holds, looking every 100 ms; returns how long it took."""
        start = self.clock.now()
        while not await holds():
            assert self.clock.now() - start < seconds, "did not come about in time"
            await self.clock.sleep(0.1)
        return self.clock.now() - start


def pod_spec(cpu: str = "100m", **fields: Any) -> dict[str, Any]:
    """Return a pod spec of one container."""
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], "terminationGracePeriodSeconds": 1, **fields}


Scenario = Callable[[World], Awaitable[Any]]


@pytest.fixture
def play() -> Callable[..., Any]:
    """Run a scenario against a fresh cluster under virtual time and return its result."""

    def run(
        scenario: Scenario, *, seed: int = 1, latencies: KubeletLatencies | None = None, **options: Any
    ) -> Any:
        async def main() -> Any:
            clock = LoopClock()
            cluster = EmbeddedCluster(clock=clock, rng=seeded(seed), latencies=latencies, **options)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(cluster.run())
                await cluster.ready.wait()
                result = await scenario(World(cluster))
                task.cancel()
            cluster.close()
            return result

        return run_virtual(main())

    return run


@pytest.fixture
def spec() -> Callable[..., dict[str, Any]]:
    """Return the maker of pod specs."""
    return pod_spec
