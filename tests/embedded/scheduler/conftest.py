"""Builders for pure scheduler tests."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from karpenter.apis.core import Node, Pod
from karpenter.apis.meta import LabelSelector
from karpenter.embedded.scheduler.filters import evaluate, reasons
from karpenter.embedded.scheduler.model import ClusterModel, Placed
from karpenter.embedded.scheduler.podclass import PodClass, signature_of
from karpenter.embedded.scheduler.volumes import VolumePlan


class Bench:
    """A model with short words to fill and ask it."""

    def __init__(self) -> None:
        self.model = ClusterModel()
        self.count = 0

    def node(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        *,
        cpu: str = "4",
        memory: str = "16Gi",
        pods: str = "10",
        taints: list[dict[str, str]] | None = None,
        unschedulable: bool = False,
        **more: str,
    ) -> None:
        """Add or change a node that is ready."""
        spec: dict[str, Any] = {"unschedulable": unschedulable}
        if taints:
            spec["taints"] = taints
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **more}
        status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
        body = {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec, "status": status}
        self.model.set_node(msgspec.convert(body, Node))

    def pod_class(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        namespace: str = "default",
        requests: Mapping[str, str] | None = None,
        owner: LabelSelector | None = None,
        **spec: Any,
    ) -> PodClass:
        """Return the class of a pod of one container."""
        self.count += 1
        if "containers" not in spec:
            spec["containers"] = [{"name": "c", "resources": {"requests": dict(requests or {})}}]
        metadata = {"name": f"p{self.count}", "namespace": namespace, "labels": dict(labels or {})}
        pod = msgspec.convert({"metadata": metadata, "spec": spec}, Pod)
        return self.model.intern(PodClass(signature_of(pod, owner), pod, owner))

    def place(
        self, node: str, pod_class: PodClass, *, start_time: str = "", terminating: bool = False
    ) -> str:
        """Put a pod of the class on a node and return its key."""
        self.count += 1
        key = f"{pod_class.namespace}/p{self.count}"
        self.model.place(Placed(key, node, pod_class, terminating, start_time))
        return key

    def feasible(self, pod_class: PodClass, volumes: VolumePlan | None = None) -> list[str]:
        """Return the names of the nodes that pass all filters."""
        passes = evaluate(self.model, pod_class, volumes).feasible
        return sorted(name for name, node in self.model.nodes.items() if passes[node.row])

    def why(self, pod_class: PodClass) -> dict[str, int]:
        """Return the reasons against the nodes that do not pass."""
        return reasons(self.model, evaluate(self.model, pod_class))

    def scores(self, scorer: Callable[..., Any], pod_class: PodClass) -> dict[str, int]:
        """Return one scorer's points by node name."""
        names = sorted(self.model.nodes)
        rows = np.array([self.model.nodes[name].row for name in names])
        return dict(zip(names, scorer(self.model, pod_class, rows).tolist(), strict=True))


@pytest.fixture
def bench() -> Bench:
    """Return an empty model to fill."""
    return Bench()
