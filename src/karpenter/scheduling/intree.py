"""Volume plugins that used to be part of Kubernetes, and the CSI drivers that do their work today.

Since CSI migration has become mandatory, a volume or storage class that names one of these plugins is served
by the driver, and counts against the driver's attach limit. The pairs are those of Kubernetes' migration
table.
"""

from karpenter.apis.core import PersistentVolumeSpec, Volume

CSI_DRIVERS: dict[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/rbd": "rbd.csi.ceph.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
"""CSI driver by the plugin's name, as provisioners of storage classes write it."""

_SOURCES: dict[str, tuple[str, str]] = {
    "aws_elastic_block_store": ("kubernetes.io/aws-ebs", "volumeID"),
    "azure_disk": ("kubernetes.io/azure-disk", "diskURI"),
    "azure_file": ("kubernetes.io/azure-file", "shareName"),
    "cinder": ("kubernetes.io/cinder", "volumeID"),
    "gce_persistent_disk": ("kubernetes.io/gce-pd", "pdName"),
    "portworx_volume": ("kubernetes.io/portworx-volume", "volumeID"),
    "rbd": ("kubernetes.io/rbd", "image"),
    "vsphere_volume": ("kubernetes.io/vsphere-volume", "volumePath"),
}
"""Of each volume source: its plugin, and the field that says which volume it is."""

MIGRATED_TO = "pv.kubernetes.io/migrated-to"
"""Annotation of a PersistentVolume: the driver that has taken it over."""


def driver_of_provisioner(provisioner: str) -> str:
    """Return the CSI driver behind a storage class's provisioner."""
    return CSI_DRIVERS.get(provisioner, provisioner)


def driver_of_source(spec: PersistentVolumeSpec) -> str:
    """Return the CSI driver that attaches a PersistentVolume; empty when none does (NFS, local, ...)."""
    if spec.csi is not None:
        return spec.csi.driver
    for field, (plugin, _) in _SOURCES.items():
        if getattr(spec, field) is not None:
            return CSI_DRIVERS[plugin]
    return ""


def inline_volume(volume: Volume) -> tuple[str, str] | None:
    """Return the CSI driver and the volume's own name, when a pod names a cloud's disk without a claim."""
    for field, (plugin, identity) in _SOURCES.items():
        source = getattr(volume, field)
        if source is not None:
            return CSI_DRIVERS[plugin], str(source.get(identity, ""))
    return None
