"""metrics.k8s.io over a cluster where nothing really runs: usage is what running pods request."""

from typing import Any

from karpenter.base.clock import format_time
from karpenter.base.quantity import Resources, add, format_units, resources_of, total
from karpenter.embedded.selecting import Accepts
from karpenter.embedded.store import Store

WINDOW = "30s"


def node_metrics(store: Store, namespace: str, name: str, accepts: Accepts | None) -> list[dict[str, Any]]:
    """Return NodeMetrics of all nodes (or the one named), sorted by name."""
    usage: dict[str, Resources] = {}
    for record in store.records("pods"):
        node = record.fields["spec.nodeName"]
        if node and record.fields["status.phase"] == "Running" and name in ("", node):
            spec = record.object().get("spec") or {}
            usage[node] = add(usage.get(node, {}), total(_requests(c) for c in spec.get("containers") or []))
    return [
        {
            "metadata": {
                "name": record.name,
                "labels": dict(record.labels),
                "creationTimestamp": format_time(store.clock.now()),
            },
            "timestamp": format_time(store.clock.now()),
            "window": WINDOW,
            "usage": _usage(usage.get(record.name, {})),
        }
        for record in store.records("nodes")
        if name in ("", record.name) and (accepts is None or accepts(record))
    ]


def pod_metrics(store: Store, namespace: str, name: str, accepts: Accepts | None) -> list[dict[str, Any]]:
    """Return PodMetrics of running pods (of a namespace, or the one named), sorted by key."""
    result = []
    for record in store.records("pods", namespace):
        if record.fields["status.phase"] != "Running" or name not in ("", record.name):
            continue
        if accepts is not None and not accepts(record):
            continue
        spec = record.object().get("spec") or {}
        containers = [
            {"name": c["name"], "usage": _usage(_requests(c))} for c in spec.get("containers") or []
        ]
        meta = {"name": record.name, "namespace": record.namespace, "labels": dict(record.labels)}
        meta["creationTimestamp"] = format_time(store.clock.now())
        result.append(
            {
                "metadata": meta,
                "timestamp": format_time(store.clock.now()),
                "window": WINDOW,
                "containers": containers,
            }
        )
    return result


def _requests(container: dict[str, Any]) -> Resources:
    requests = (container.get("resources") or {}).get("requests") or {}
    return resources_of({name: str(requests[name]) for name in ("cpu", "memory") if name in requests})


def _usage(resources: Resources) -> dict[str, str]:
    return {name: format_units(name, resources.get(name, 0)) for name in ("cpu", "memory")}
