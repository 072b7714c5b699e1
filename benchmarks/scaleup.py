"""Thousands of pods at once through HTTP to `karpenter up`: how long until all run, and whose time it was.

    python benchmarks/scaleup.py [--pods 5000] [--deployments 50] [--smoke]

`operator` is from the closing of a batch to its last NodeClaim created, from the operator's
own log; `peak memory` is the whole process: API server, scheduler, kubelets,
workload controllers and operator.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.clock import SystemClock
from karpenter.cli.manifests import Document
from karpenter.cli.up.applying import apply_manifests
from karpenter.kube.client import Client
from karpenter.kube.config import ConfigError, load_config
from karpenter.kube.http import HttpTransport
from karpenter.kube.transport import TransportError

_SIZES = [("100m", "128Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "1Gi"), ("1", "4Gi"), ("2", "3Gi")]
_POOL = """
{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}, spec: {}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
      - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["2"]}
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
"""


def deployments(count: int, pods: int) -> list[Document]:
    """Return `count` Deployments of differing sizes with `pods` replicas in all."""
    result = []
    for number in range(count):
        cpu, memory = _SIZES[number % len(_SIZES)]
        name = f"load-{number:03d}"
        container = {
            "name": "main",
            "image": "pause",
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
        }
        spec = {
            "replicas": pods // count + (number < pods % count),
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        }
        metadata = {"name": name, "namespace": "default"}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        result.append(Document("deployments", deployment))
    return result


async def _client(process: subprocess.Popen[bytes], kubeconfig: Path) -> Client:
    for _ in range(300):
        if process.poll() is not None:
            raise SystemExit("karpenter up ended by itself")
        try:
            client = Client(HttpTransport(load_config(str(kubeconfig), environ={}), clock=SystemClock()))
            await client.list(NodeClaim)
        except (ConfigError, TransportError, OSError):
            await asyncio.sleep(0.1)
        else:
            return client
    raise SystemExit("karpenter up did not come up within 30 s")


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


async def _operator_seconds(client: Client) -> list[float]:
    """Return how long each batch took from its closing to its last NodeClaim, from the operator's log."""
    answer = await client.transport.request(
        "GET", "/api/v1/namespaces/kube-system/pods/karpenter-0/log", query={"container": "controller"}
    )
    batches: list[float] = []
    closed = 0.0
    for line in answer.body.decode().splitlines():
        record = json.loads(line)
        moment = datetime.fromisoformat(record["time"]).timestamp()
        if record["message"] == "found provisionable pod(s)":
            closed = moment
            batches.append(0.0)
        elif record["message"] == "created nodeclaim":
            batches[-1] = moment - closed
    return batches


async def _measure(folder: Path, pods: int, count: int) -> None:
    pool, kubeconfig = folder / "pool.yaml", folder / "kubeconfig"
    pool.write_text(_POOL)
    command = [sys.executable, "-m", "karpenter", "up", "--plain", "--seed", "1"]
    command += ["--manifests", str(pool), "--kubeconfig", str(kubeconfig)]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            client = await _client(process, kubeconfig)
            started = time.monotonic()
            await apply_manifests(client.transport, deployments(count, pods))
            applied = time.monotonic() - started
            ready = 0
            while ready < pods:
                if time.monotonic() - started > 600:
                    raise SystemExit(f"only {ready} of {pods} pods run after 600 s; see {folder}/up.log")
                await asyncio.sleep(1.0)
                listed = await client.list(Pod, "default")
                ready = sum(is_true(pod.status.conditions, "Ready") for pod in listed)
            running = time.monotonic() - started
            nodes = await client.list(Node)
            shares = await _operator_seconds(client)
            print(
                "| pods | deployments | nodes | applied s | all running s | batches "
                "| operator s, slowest batch | operator s, all | peak memory MiB |"
            )
            print("|---|---|---|---|---|---|---|---|---|")
            print(
                f"| {pods} | {count} | {len(nodes)} | {applied:.1f} | {running:.1f} | {len(shares)} "
                f"| {max(shares):.2f} | {sum(shares):.2f} | {_peak_mib(process.pid):.0f} |"
            )
            await client.transport.close()
        finally:
            process.kill()
            process.wait()


def main() -> None:
    """Run the measurement and print its row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--deployments", type=int, default=50)
    parser.add_argument("--smoke", action="store_true", help="200 pods of 10 deployments")
    arguments = parser.parse_args()
    pods, count = (200, 10) if arguments.smoke else (arguments.pods, arguments.deployments)
    folder = Path(tempfile.mkdtemp(prefix="karpenter-scaleup-"))
    asyncio.run(_measure(folder, pods, count))


if __name__ == "__main__":
    main()
