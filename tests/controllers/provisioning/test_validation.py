"""Which waiting pods are left alone, and why."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis.core import (
    NodeSelectorTerm,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PVCSource,
    Volume,
)
from karpenter.apis.meta import ObjectMeta
from karpenter.apis.workloads import StorageClass
from karpenter.controllers.provisioning.validation import NOT_OURS, pod_error
from karpenter.model.snapshot import Snapshot
from karpenter.testing.builders import a_pod, a_term, an_expression, node_affinity
from karpenter.testing.storage import a_claim, a_user, a_volume, storage


def by_field(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    """Return a node selector term that looks at a field of the node."""
    return NodeSelectorTerm(match_fields=[an_expression(key, operator, values)])


EMPTY = Snapshot(taken_at=0.0, nodes=(), pending=(), nodepools=())


@pytest.mark.parametrize(
    ("pod", "error"),
    [
        ({}, ""),
        ({"node_selector": {"topology.kubernetes.io/zone": "a"}}, ""),
        ({"node_selector": {"kubernetes.io/hostname": "n"}}, ""),
        ({"affinity": node_affinity([by_field("metadata.name", "In", "n")])}, ""),
        ({"affinity": node_affinity([by_field("metadata.name", "NotIn", "n")])}, ""),
        ({"affinity": node_affinity([by_field("spec.unschedulable", "In", "n")])}, "key spec.unschedulable"),
        ({"affinity": node_affinity([by_field("metadata.name", "Exists")])}, "In or NotIn"),
        (
            {
                "affinity": node_affinity(
                    preferred=[(1, a_term(("karpenter.sh/nodepool", "DoesNotExist", ())))]
                )
            },
            "",
        ),
        ({"node_selector": {"karpenter.sh/other": "n"}}, "restricted"),
        ({"node_selector": {"karpenter.sh/capacity-type": "free"}}, "invalid values"),
        (
            {"affinity": node_affinity([a_term(("karpenter.sh/nodepool", "DoesNotExist", ()))])},
            NOT_OURS,
        ),
        ({"affinity": node_affinity([a_term(("size", "Gt", ("big",)))])}, "single positive integer"),
        ({"affinity": node_affinity([a_term(("size", "Near", ("1",)))])}, "unsupported operator"),
    ],
)
def test_selectors_must_make_sense(pod: dict[str, Any], error: str) -> None:
    """A selector that no node of ours could ever meet makes the pod none of our business."""
    found = pod_error(a_pod(**pod), EMPTY)
    assert (error in found) if error else not found


@pytest.mark.parametrize(
    ("storage_class", "mode", "error"),
    [
        ("fast", "WaitForFirstConsumer", ""),
        ("fast", "Immediate", "not yet bound"),
        ("fast", None, "not yet bound"),
        (
            "absent",
            "WaitForFirstConsumer",
            "storageclass absent of persistentvolumeclaim default/data",
        ),
        ("", "WaitForFirstConsumer", "must define a storage class"),
    ],
)
def test_volumes_must_be_in_order(storage_class: str, mode: str | None, error: str) -> None:
    """Only a claim that waits for its first consumer is helped by a new node."""
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="data", namespace="default"),
        spec=PersistentVolumeClaimSpec(storage_class_name=storage_class),
    )
    fast = StorageClass(metadata=ObjectMeta(name="fast"), volume_binding_mode=mode)
    snapshot = replace(EMPTY, volume_claims={claim.key: claim}, storage_classes={"fast": fast})
    volume = Volume(name="v", persistent_volume_claim=PVCSource(claim_name="data"))
    found = pod_error(a_pod(spec={"volumes": [volume]}), snapshot)
    assert (error in found) if error else not found


def test_a_claim_for_one_pod_at_a_time_is_waited_for() -> None:
    """No node helps while another pod has it; the pod that has it is not in its own way."""
    snapshot = storage(a_claim(volume="pv", access_modes=["ReadWriteOncePod"]), a_volume())
    users = {"default/data": "default/first"}
    assert "in use by pod default/first" in pod_error(a_user("data", name="second"), snapshot, None, users)
    assert not pod_error(a_user("data", name="first"), snapshot, None, users)
    assert not pod_error(a_user("data", name="second"), snapshot)
