"""Time and memory of decoding a list of realistic pods (7.5 kB each, with managed fields, which are dropped).

python benchmarks/list_decode.py [--pods 10000] [--smoke]
"""

import argparse
import gc
import os
import resource
import time
from pathlib import Path
from typing import Any

import msgspec

from karpenter.apis.core import Pod
from karpenter.kube.client import ObjectList

PAGE = 500


def realistic_pod(number: int) -> dict[str, Any]:
    """Return a pod as an API server sends it: two containers, probes, volumes, status, managed fields."""
    env = [{"name": f"SETTING_{i}", "value": f"value-{i}-{number}"} for i in range(12)]
    container = {
        "image": f"registry.example.com/team/service:{number % 7}",
        "env": env,
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/service", "readOnly": True}],
    }
    fields: dict[str, Any] = {
        f"f:field{i}": {"f:part": {}, f'k:{{"type":"T{i}"}}': {".": {}, "f:status": {}}} for i in range(60)
    }
    stamp = "2026-01-01T00:00:00Z"
    return {
        "metadata": {
            "name": f"service-{number % 50}-{number:06d}",
            "namespace": f"team-{number % 20}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": stamp,
            "labels": {"app": f"service-{number % 50}", "pod-template-hash": "7d9f8b6c5", "tier": "backend"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0" * 64},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"service-{number % 50}",
                    "uid": "0" * 36,
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": "kubelet", "operation": "Update", "time": stamp, "fieldsV1": fields}
            ],
        },
        "spec": {
            "nodeName": f"node-{number % 300}",
            "containers": [{"name": "main", **container}, {"name": "proxy", **container}],
            "volumes": [{"name": "config", "configMap": {"name": "service"}}],
            "tolerations": [
                {"key": f"node.kubernetes.io/{kind}", "operator": "Exists", "effect": "NoExecute"}
                for kind in ("not-ready", "unreachable")
            ],
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": stamp}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {
                    "name": name,
                    "ready": True,
                    "image": "i",
                    "imageID": "sha256:" + "0" * 64,
                    "restartCount": 0,
                }
                for name in ("main", "proxy")
            ],
        },
    }


def pages(count: int) -> list[bytes]:
    """Return `count` pods as the pages of a list."""
    return [
        msgspec.json.encode(
            {
                "metadata": {"resourceVersion": "9"},
                "items": [realistic_pod(i) for i in range(start, min(count, start + PAGE))],
            }
        )
        for start in range(0, count, PAGE)
    ]


def resident_bytes() -> int:
    """Return the memory this process holds now."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def pods_asked_for(default: int) -> int:
    """Return what the command line says: `--pods N`, or few with `--smoke`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=default)
    parser.add_argument("--smoke", action="store_true", help="500 pods")
    arguments = parser.parse_args()
    return 500 if arguments.smoke else int(arguments.pods)


def main() -> None:
    count = pods_asked_for(10_000)
    bodies = pages(count)
    size = sum(map(len, bodies))
    print(f"{count} pods, {size / 1e6:.1f} MB, {size / count / 1e3:.2f} kB each, {os.cpu_count()} CPUs")
    decoder = msgspec.json.Decoder(ObjectList[Pod])
    decoder.decode(bodies[0])
    gc.collect()
    before, started = resident_bytes(), time.perf_counter()
    held = [pod for body in bodies for pod in decoder.decode(body).items]
    seconds, memory = time.perf_counter() - started, resident_bytes() - before
    print(f"{'decode to structs':24} {seconds * 1e3:8.0f} ms {memory / 1e6:8.0f} MB held ({len(held)} pods)")
    started = time.perf_counter()
    gc.collect()
    print(f"{'full collection after':24} {(time.perf_counter() - started) * 1e3:8.0f} ms")


if __name__ == "__main__":
    main()
