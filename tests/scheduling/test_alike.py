"""Pods are taken together only when nothing but their names and ages tells them apart."""

import pytest
from msgspec.structs import replace

from karpenter.apis.core import ContainerStatus, Pod, ResourceRequirements, Volume
from karpenter.model.pods import pod_key
from karpenter.scheduling.alike import alike
from karpenter.testing.builders import a_pod


def resized(name: str, cores: str) -> Pod:
    """Return a pod that is granted more than its spec asks for."""
    granted = ContainerStatus(name="main", resources=ResourceRequirements(requests={"cpu": cores}))
    pod = a_pod(name)
    return replace(pod, status=replace(pod.status, container_statuses=[granted]))


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (a_pod("a"), a_pod("b", created="2026-01-02T00:00:00Z", annotations={"x": "y"}), True),
        (a_pod("a", labels={"x": "1", "y": "2"}), a_pod("b", labels={"y": "2", "x": "1"}), True),
        (a_pod("a"), a_pod("b", namespace="other"), False),
        (a_pod("a"), a_pod("b", labels={"x": "1"}), False),
        (a_pod("a"), a_pod("b", cpu="2"), False),
        (a_pod("a"), a_pod("b", priority=1), False),
        (resized("a", "2"), resized("b", "2"), True),
        (resized("a", "2"), resized("b", "3"), False),
        (a_pod("a", spec={"volumes": [Volume()]}), a_pod("b", spec={"volumes": [Volume()]}), False),
    ],
)
def test_pods_are_alike_when_only_name_and_age_differ(left: Pod, right: Pod, same: bool) -> None:
    """Specs, labels, namespaces, what is granted while they run, and claims named after them all count."""
    groups = [[pod_key(pod) for pod in group.pods] for group in alike([left, right])]
    keys = [pod_key(left), pod_key(right)]
    assert groups == ([keys] if same else [[key] for key in keys])
