"""How many units of room a buffer keeps, and the virtual pods that stand for them."""

from typing import Any

import msgspec
import pytest

from karpenter.apis.autoscaling import CapacityBuffer, CapacityBufferSpec
from karpenter.apis.core import (
    Container,
    EphemeralSource,
    PodSpec,
    PodTemplateSpec,
    PVCSource,
    ResourceRequirements,
    SchedulingGate,
    TemplateMeta,
    Volume,
)
from karpenter.apis.meta import ObjectMeta
from karpenter.base.quantity import resources_of
from karpenter.controllers.capacitybuffer.sizing import desired_units
from karpenter.controllers.capacitybuffer.virtualpods import virtual_pods
from karpenter.model.pods import is_provisionable, requests

UNIT = resources_of({"cpu": "500m", "memory": "1Gi", "pods": 1})


@pytest.mark.parametrize(
    ("spec", "scale", "units"),
    [
        ({"replicas": 3}, None, 3),
        ({"replicas": 0}, None, 0),
        ({}, None, 0),
        ({"percentage": 20}, 10, 2),
        ({"percentage": 20}, 11, 3),
        ({"percentage": 1}, 1, 1),
        ({"percentage": 0}, 10, 0),
        ({"percentage": 50}, 0, 0),
        ({"percentage": 50}, None, 0),
        ({"percentage": 250}, 2, 5),
        ({"replicas": 3, "percentage": 20}, 10, 3),
        ({"replicas": 1, "percentage": 20}, 10, 2),
        ({"replicas": 5, "limits": {"cpu": "1200m"}}, None, 2),
        ({"replicas": 1, "limits": {"cpu": "1200m"}}, None, 1),
        ({"limits": {"cpu": "2", "memory": "3Gi"}}, None, 3),
        ({"limits": {"cpu": "100m"}}, None, 0),
        ({"replicas": 4, "limits": {"example.com/gpu": 1}}, None, 4),
        ({"limits": {"example.com/gpu": 1}}, None, 0),
    ],
)
def test_units_of_a_buffer(spec: dict[str, Any], scale: int | None, units: int) -> None:
    """The larger of replicas and the share of the workload, within limits; limits alone are filled."""
    assert desired_units(msgspec.convert(spec, CapacityBufferSpec), UNIT, scale) == units


def test_units_without_requests_cannot_be_limited() -> None:
    """What asks for nothing is not counted against limits."""
    spec = CapacityBufferSpec(replicas=7, limits={"cpu": "1"})
    assert desired_units(spec, resources_of({"pods": 1}), None) == 7


def test_virtual_pods_stand_for_the_template() -> None:
    """Numbered, of lowest priority, with requests from limits, without node, claims of volumes or gates."""
    template = PodTemplateSpec(
        metadata=TemplateMeta(labels={"app": "web"}, annotations={"a": "b"}),
        spec=PodSpec(
            node_name="somewhere",
            priority=5,
            priority_class_name="high",
            scheduling_gates=[SchedulingGate(name="later")],
            node_selector={"team": "blue"},
            containers=[Container(name="main", resources=ResourceRequirements(limits={"cpu": "2"}))],
            volumes=[
                Volume(name="claim", persistent_volume_claim=PVCSource(claim_name="data")),
                Volume(name="scratch", ephemeral=EphemeralSource()),
                Volume(name="disk", gce_persistent_disk={"pdName": "d"}),
            ],
        ),
    )
    buffer = CapacityBuffer(metadata=ObjectMeta(name="spare", namespace="shop", uid="u-1"))
    pods = virtual_pods(buffer, template, 2)
    assert [(p.key, p.metadata.uid) for p in pods] == [
        ("shop/capacity-buffer-spare-1", "u-1-1"),
        ("shop/capacity-buffer-spare-2", "u-1-2"),
    ]
    for pod in pods:
        assert is_provisionable(pod)
        assert requests(pod)["cpu"] == 2000
        assert pod.spec.priority == -(2**31)
        assert pod.spec.node_selector == {"team": "blue"}
        assert [v.name for v in pod.spec.volumes] == ["disk"]
        assert (pod.spec.scheduling_gates, pod.spec.priority_class_name) == ([], "")
        assert pod.metadata.labels == {"app": "web"}
        assert pod.metadata.annotations == {
            "a": "b",
            "karpenter.sh/capacity-buffer-fake-pod": "true",
            "karpenter.sh/capacity-buffer-name": "spare",
            "karpenter.sh/capacity-buffer-namespace": "shop",
        }
    assert template.spec.node_name == "somewhere"
    assert virtual_pods(buffer, template, 0) == ()
