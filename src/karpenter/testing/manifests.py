"""Raw objects as users write them, for scenarios."""

from collections.abc import Mapping, Sequence
from typing import Any

Raw = dict[str, Any]


def node_class(name: str = "default", *, delay: str = "2s") -> Raw:
    """Return a KWOKNodeClass whose machines join `delay` after their launch."""
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name},
        "spec": {"nodeRegistrationDelay": delay},
    }


def pool(
    name: str = "default",
    *,
    requirements: Sequence[Raw] = (),
    limits: Mapping[str, Any] | None = None,
    weight: int | None = None,
    template: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    consolidate_after: str = "5s",
    budgets: Sequence[Raw] = ({"nodes": "100%"},),
    node_class: str = "default",
) -> Raw:
    """Return a NodePool; `template` adds to the spec of its claims (taints, expireAfter …)."""
    spec: Raw = {
        "template": {
            "metadata": {"labels": dict(labels or {})},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": node_class},
                "requirements": list(requirements),
                **(template or {}),
            },
        },
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": consolidate_after,
            "budgets": list(budgets),
        },
    }
    if limits:
        spec["limits"] = dict(limits)
    if weight is not None:
        spec["weight"] = weight
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def pod_spec(*, cpu: str = "1", memory: str = "1Gi", **spec: Any) -> Raw:
    """Return a PodSpec with one container; `spec` adds fields by their API names."""
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}


def deployment(
    name: str = "web", replicas: int = 0, *, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Raw:
    """Return a Deployment of pods labelled `app: <name>`; `spec` is handed to `pod_spec`."""
    return _workload("Deployment", name, annotations, spec, {"replicas": replicas})


def daemon_set(name: str = "agent", **spec: Any) -> Raw:
    """Return a DaemonSet; `spec` is handed to `pod_spec`."""
    return _workload("DaemonSet", name, None, spec, {})


def disruption_budget(app: str, **spec: Any) -> Raw:
    """Return a PodDisruptionBudget for the pods labelled `app`."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def _workload(kind: str, name: str, annotations: Mapping[str, str] | None, spec: Raw, more: Raw) -> Raw:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            **more,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": dict(annotations or {})},
                "spec": pod_spec(**spec),
            },
        },
    }
