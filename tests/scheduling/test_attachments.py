"""Attach limits: which volumes a pod brings, and how many a node takes."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import CSISource, ObjectReference, PVCSource, Volume
from karpenter.scheduling.volumes import (
    attached,
    attachments,
    learned_volume_limits,
    limits_of_node,
    limits_of_type,
    over_limit,
)
from karpenter.testing.builders import a_pod, a_view, an_instance_type
from karpenter.testing.storage import (
    a_claim,
    a_storage_class,
    a_user,
    a_volume,
    an_ephemeral_volume,
    storage,
)

EBS = "ebs.csi.aws.com"


@pytest.mark.parametrize(
    ("spec", "annotations", "driver"),
    [
        ({"csi": CSISource(driver="any.example.com")}, {}, "any.example.com"),
        ({"aws_elastic_block_store": {"volumeID": "v"}}, {}, EBS),
        ({"gce_persistent_disk": {"pdName": "v"}}, {}, "pd.csi.storage.gke.io"),
        ({"azure_disk": {"diskName": "v"}}, {}, "disk.csi.azure.com"),
        ({"azure_file": {"shareName": "v"}}, {}, "file.csi.azure.com"),
        ({"cinder": {"volumeID": "v"}}, {}, "cinder.csi.openstack.org"),
        ({"vsphere_volume": {"volumePath": "v"}}, {}, "csi.vsphere.vmware.com"),
        ({"portworx_volume": {"volumeID": "v"}}, {}, "pxd.portworx.com"),
        ({"rbd": {"image": "v"}}, {}, "rbd.csi.ceph.com"),
        ({}, {"pv.kubernetes.io/migrated-to": "new.example.com"}, "new.example.com"),
        ({"local": {"path": "/mnt"}}, {}, ""),
        ({"host_path": {"path": "/mnt"}}, {}, ""),
        ({}, {}, ""),
    ],
)
def test_a_bound_volume_counts_for_its_driver(
    spec: dict[str, object], annotations: dict[str, str], driver: str
) -> None:
    """CSI volumes, every cloud's old in-tree ones by the driver that took over; NFS and local ones never."""
    snapshot = storage(a_claim("data", "pv"), a_volume(annotations=annotations, spec=spec))
    assert attachments(a_user("data"), snapshot) == ({driver: {"default/data"}} if driver else {})


@pytest.mark.parametrize(
    ("storage_class", "driver"),
    [
        ("fast", "fast.example.com"),
        ("intree", EBS),
        ("local", ""),
        ("missing", ""),
        ("", ""),
        (None, "newest.example.com"),
    ],
)
def test_an_unbound_claim_counts_for_its_provisioner(storage_class: str | None, driver: str) -> None:
    """By its storage class, translated from an in-tree name; without a class by the newest default one."""
    classes = [
        a_storage_class("fast", "fast.example.com"),
        a_storage_class("intree", "kubernetes.io/aws-ebs"),
        a_storage_class("local", "kubernetes.io/no-provisioner"),
        a_storage_class("default-old", "old.example.com", created="2025-01-01T00:00:00Z", default=True),
        a_storage_class("default-new", "newest.example.com", created="2026-01-01T00:00:00Z", default=True),
        a_storage_class(
            "default-same", "later-name.example.com", created="2026-01-01T00:00:00Z", default=True
        ),
    ]
    snapshot = storage(a_claim("data", storage_class=storage_class), *classes)
    assert attachments(a_user("data"), snapshot) == ({driver: {"default/data"}} if driver else {})


def test_a_bound_claim_whose_volume_is_not_known_yet_counts_by_its_class() -> None:
    """News of the volume may come after that of the claim."""
    snapshot = storage(a_claim("data", "pv", "fast"), a_storage_class("fast", "fast.example.com"))
    assert attachments(a_user("data"), snapshot) == {"fast.example.com": {"default/data"}}


def test_an_ephemeral_volume_counts_before_its_claim_is_made() -> None:
    """By the template's storage class; afterwards by the claim, named after pod and volume."""
    pod = a_pod("web", spec={"volumes": [an_ephemeral_volume("scratch", "fast")]})
    fast = a_storage_class("fast", "fast.example.com")
    assert attachments(pod, storage(fast)) == {"fast.example.com": {"default/web-scratch"}}
    made = a_claim("web-scratch", storage_class="other")
    other = a_storage_class("other", "other.example.com")
    assert attachments(pod, storage(fast, other, made)) == {"other.example.com": {"default/web-scratch"}}


def test_a_disk_named_by_the_pod_itself_counts() -> None:
    """Without any claim; volumes that are no attachments do not, nor do claims nobody knows."""
    disk = Volume(name="disk", aws_elastic_block_store={"volumeID": "vol-1"})
    missing = Volume(name="gone", persistent_volume_claim=PVCSource(claim_name="gone"))
    pod = a_pod(spec={"volumes": [Volume(name="empty"), disk, missing]})
    assert attachments(pod, storage()) == {EBS: {"vol-1"}}


def test_pods_that_share_a_claim_attach_it_once() -> None:
    """On a node the union counts."""
    csi = {"csi": CSISource(driver=EBS)}
    snapshot = storage(
        *(a_claim(name, f"pv-{name}") for name in ("one", "two")),
        *(a_volume(f"pv-{name}", spec=csi) for name in ("one", "two")),
    )
    pods = [a_user("one", name="a", node_name="node"), a_user("one", "two", name="b", node_name="node")]
    assert attached(a_view(pods=pods), snapshot) == {EBS: {"default/one", "default/two"}}


def test_a_volume_counts_until_it_is_detached() -> None:
    """Also when its pod is gone; one that a pod on the node uses counts once, whoever tells of it."""
    used = {"csi": CSISource(driver=EBS), "claim_ref": ObjectReference(namespace="default", name="used")}
    snapshot = storage(a_claim("used", "pv-used"), a_volume("pv-used", spec=used))
    node = replace(
        a_view(pods=[a_user("used", node_name="node")]),
        attached_volumes=((EBS, "pv-left"), (EBS, "pv-used"), ("other", "pv-x")),
    )
    assert attached(node, snapshot) == {EBS: {"default/used", "pv-left"}, "other": {"pv-x"}}


@pytest.mark.parametrize(
    ("present", "more", "error"),
    [
        ({}, {EBS: {"a", "b"}}, ""),
        ({EBS: {"a"}}, {EBS: {"a", "b"}}, ""),
        ({EBS: {"a", "b"}}, {EBS: {"c"}}, f"would exceed volume limit: 3 volumes of {EBS}, 2 allowed"),
        ({EBS: {"a", "b", "c"}}, {EBS: {"a"}}, ""),
        ({EBS: {"a", "b", "c"}}, {"other": {"x"}}, ""),
        ({}, {"other": {"x", "y", "z"}}, ""),
    ],
)
def test_the_limit(present: dict[str, set[str]], more: dict[str, set[str]], error: str) -> None:
    """New volumes of a driver must fit beside those there are; shared claims always do."""
    here, new = ({driver: frozenset(keys) for driver, keys in one.items()} for one in (present, more))
    assert over_limit(here, new, {EBS: 2}) == error


def test_limits_are_learned_from_running_nodes_of_a_type() -> None:
    """The least seen counts, the provider's word more; a starting node is planned with it."""
    kind = {labels.INSTANCE_TYPE: "medium"}
    running = [
        replace(a_view(name, labels=kind), volume_limits={EBS: count})
        for name, count in (("a", 25), ("b", 24))
    ]
    starting = replace(a_view("c", labels=kind, initialized=False), volume_limits={"other": 3})
    learned = learned_volume_limits(storage(nodes=(*running, starting)))
    assert learned == {("medium", EBS): 24}
    medium = an_instance_type("medium")
    assert limits_of_type(medium, learned) == {EBS: 24}
    assert limits_of_type(replace(medium, volume_limits={EBS: 39}), learned) == {EBS: 39}
    assert limits_of_type(an_instance_type("large"), learned) == {}
    assert limits_of_node(starting, learned) == {EBS: 24, "other": 3}
    assert limits_of_node(running[0], learned) == {EBS: 25}
