"""Manifests that went wrong: sound ones with a few values replaced, removed, renamed or doubled."""

import copy
from collections.abc import Sequence
from typing import Any

Json = Any
Mutation = tuple[int, str, Json]
"""Which place (a number, taken modulo the places there are), what happens there, and with what value."""

CONTAINER: Json = {
    "name": "main",
    "image": "example.com/image:1",
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
    "ports": [{"containerPort": 80, "hostPort": 8080}],
}
_SELECTOR: Json = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
_TERM: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": _SELECTOR}
_EXPRESSION: Json = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
_RULE: Json = {"matchExpressions": [_EXPRESSION]}
POD_SPEC: Json = {
    "containers": [CONTAINER],
    "initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _SELECTOR,
            "minDomains": 1,
        }
    ],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_RULE]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _RULE}],
        },
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": _TERM}]
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]},
    },
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
    ],
    "priorityClassName": "high",
    "overhead": {"cpu": "10m"},
}
_TEMPLATE: Json = {"metadata": {"labels": {"app": "a"}}, "spec": POD_SPEC}
_ZONE = {"topology.kubernetes.io/zone": "test-zone-a"}
_ALLOWED: Json = [{"key": key, "values": [value]} for key, value in _ZONE.items()]


def _object(api_version: str, kind: str, name: str, **fields: Json) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def sound_manifests() -> list[Json]:
    """Return one object of each kind that planning reads, none of them wrong."""
    workload = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATE}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    stateful = {
        **workload,
        "serviceName": "s",
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        "ordinals": {"start": 1},
    }
    job = {
        "parallelism": 2,
        "completions": 3,
        "completionMode": "Indexed",
        "template": {"metadata": {}, "spec": {**POD_SPEC, "restartPolicy": "Never"}},
    }
    node_labels = {
        "karpenter.sh/nodepool": "pool",
        "node.kubernetes.io/instance-type": "m-4x-amd64-linux",
        "karpenter.sh/capacity-type": "on-demand",
        **_ZONE,
    }
    size = {"cpu": "4", "memory": "32Gi", "pods": "64"}
    pool_spec = {
        "requirements": [{**_EXPRESSION, "minValues": 1}],
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "starting", "effect": "NoExecute"}],
        "expireAfter": "720h",
    }
    pool = {
        "weight": 10,
        "limits": {"cpu": "1000", "memory": "1000Gi"},
        "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "10%"}]},
        "template": {"metadata": {"labels": {"team": "a"}}, "spec": pool_spec},
    }
    node = _object(
        "v1", "Node", "node-1", spec={"taints": []}, status={"allocatable": size, "capacity": size}
    )
    node["metadata"]["labels"] = node_labels
    return [
        _object("apps/v1", "Deployment", "web", spec=workload),
        _object("apps/v1", "StatefulSet", "db", spec=stateful),
        _object("apps/v1", "DaemonSet", "agent", spec={k: v for k, v in workload.items() if k != "replicas"}),
        _object("batch/v1", "Job", "job", spec=job),
        _object("v1", "Pod", "single", spec=POD_SPEC),
        _object("v1", "Pod", "running", spec={"nodeName": "node-1", "containers": [CONTAINER]}),
        _object("karpenter.sh/v1", "NodePool", "pool", spec=pool),
        _object("v1", "PersistentVolumeClaim", "data", spec={**claim, "volumeName": "volume"}),
        _object("v1", "PersistentVolume", "volume", spec=_volume()),
        _object(
            "storage.k8s.io/v1",
            "StorageClass",
            "fast",
            provisioner="example.com/fast",
            volumeBindingMode="WaitForFirstConsumer",
            allowedTopologies=[
                {"matchLabelExpressions": [{"key": k, "values": [v]} for k, v in _ZONE.items()]}
            ],
        ),
        _object("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000),
        _object("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": 1, "selector": _SELECTOR}),
        _object("v1", "Namespace", "default"),
        _object(
            "storage.k8s.io/v1",
            "CSINode",
            "node-1",
            spec={"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 3}}]},
        ),
        node,
    ]


def _volume() -> Json:
    return {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "example.com/fast", "volumeHandle": "h"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": k, "operator": "In", "values": [v]}]}
                    for k, v in _ZONE.items()
                ]
            }
        },
    }


def sound_scenario() -> Json:
    """Return a scenario with a little of everything."""
    offerings = [
        {"zone": zone, "capacityType": kind, "price": price, "available": True}
        for zone in ("a", "b")
        for kind, price in (("on-demand", 0.2), ("spot", 0.1))
    ]
    reserved = {
        "zone": "a",
        "capacityType": "reserved",
        "price": 0.01,
        "reservationID": "r",
        "reservationCapacity": 1,
    }
    types = [
        {
            "name": name,
            "capacity": {"cpu": cpu, "memory": "16Gi", "pods": 20},
            "overhead": {"kubeReserved": {"cpu": "100m"}},
            "requirements": [{"key": "example.com/family", "operator": "In", "values": ["m"]}],
            "offerings": [*offerings, reserved],
        }
        for name, cpu in (("small", "2"), ("large", 8))
    ]
    pod = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
    return {
        "name": "sound",
        "options": {"preferencePolicy": "Respect"},
        "instanceTypes": types,
        "nodePools": [{"metadata": {"name": "pool"}, "spec": {"limits": {"cpu": "100"}}}],
        "nodePoolInstanceTypes": {"pool": ["small", "large"]},
        "nodes": [
            {
                "metadata": {
                    "name": "n",
                    "labels": {"karpenter.sh/nodepool": "pool", "node.kubernetes.io/instance-type": "small"},
                }
            }
        ],
        "podGroups": [{"namePrefix": "p", "count": 3, "template": pod}],
        "pods": [{"metadata": {"name": "bound"}, "spec": {"nodeName": "n", "containers": [CONTAINER]}}],
        "daemonSets": [
            {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": pod}}
        ],
    }


def mangled(document: Json, mutations: Sequence[Mutation]) -> Json:
    """Return a copy of `document` to which each of `mutations` was done, one after the other."""
    document = copy.deepcopy(document)
    for number, deed, value in mutations:
        places = list(_places(document))
        if not places:
            return document
        holder, key = places[number % len(places)]
        if deed == "remove":
            del holder[key]
        elif deed == "rename" and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        elif deed == "wrap":
            holder[key] = [holder[key]]
        elif deed == "double" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[key] = copy.deepcopy(value)
    return document


def _places(value: Json) -> list[tuple[Json, Json]]:
    """Return every (container, key) within `value`, outermost first."""
    found: list[tuple[Json, Json]] = []
    level = [value]
    while level:
        inner = []
        for each in level:
            keys = list(each) if isinstance(each, dict) else range(len(each))
            found += [(each, key) for key in keys]
            inner += [each[key] for key in keys if isinstance(each[key], (dict, list))]
        level = inner
    return found
