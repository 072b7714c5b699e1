"""The pods that stand for a capacity buffer in planning. Pure; they are never created."""

import msgspec

from karpenter.apis.autoscaling import CapacityBuffer
from karpenter.apis.core import Pod, PodStatus, PodTemplateSpec
from karpenter.apis.meta import Condition, ObjectMeta
from karpenter.model.pods import with_default_requests

FAKE_POD = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE = "karpenter.sh/capacity-buffer-namespace"

LOWEST_PRIORITY = -(2**31)


def virtual_pods(buffer: CapacityBuffer, template: PodTemplateSpec, count: int) -> tuple[Pod, ...]:
    """Return `count` pods of `template` for `buffer`, numbered from 1.

    They want what the template's pods would want, except for volume claims (there are none yet to be found)
    and scheduling gates; requests are filled in from limits, as the API server would for real pods.
    """
    spec = msgspec.structs.replace(
        template.spec,
        node_name="",
        volumes=[
            v for v in template.spec.volumes if v.persistent_volume_claim is None and v.ephemeral is None
        ],
        scheduling_gates=[],
        priority=LOWEST_PRIORITY,
        priority_class_name="",
    )
    unit = with_default_requests(Pod(spec=spec))
    return tuple(_numbered(buffer, template, unit, number) for number in range(1, count + 1))


def _numbered(buffer: CapacityBuffer, template: PodTemplateSpec, unit: Pod, number: int) -> Pod:
    meta = buffer.metadata
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(
            name=f"capacity-buffer-{meta.name}-{number}",
            namespace=meta.namespace,
            uid=f"{meta.uid}-{number}",
            creation_timestamp=meta.creation_timestamp,
            labels=template.metadata.labels,
            annotations={
                **template.metadata.annotations,
                FAKE_POD: "true",
                BUFFER_NAME: meta.name,
                BUFFER_NAMESPACE: meta.namespace,
            },
        ),
        spec=unit.spec,
        status=PodStatus(
            conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")],
        ),
    )
