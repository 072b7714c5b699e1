"""Which storage class a claim has: the one it names, or the cluster's default."""

from collections.abc import Mapping

from karpenter.apis.workloads import StorageClass

NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Of classes whose volumes somebody makes by hand, local disks mostly."""

_DEFAULT_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def default_class(classes: Mapping[str, StorageClass]) -> StorageClass | None:
    """Return the default storage class: the newest that is marked as one, the first by name among equals."""
    marked = [c for c in classes.values() if _is_default(c)]
    newest = max((c.metadata.creation_timestamp or "" for c in marked), default="")
    return min(
        (c for c in marked if (c.metadata.creation_timestamp or "") == newest),
        key=lambda c: c.name,
        default=None,
    )


def class_of(name: str | None, classes: Mapping[str, StorageClass]) -> StorageClass | None:
    """Return the storage class behind a claim's `storageClassName`, or None when there is none.

    None means the default class, which the cluster fills in when there is one; the empty string means no
    class at all, whatever the default.
    """
    if name is None:
        return default_class(classes)
    return classes.get(name) if name else None


def _is_default(storage_class: StorageClass) -> bool:
    annotations = storage_class.metadata.annotations
    return any(annotations.get(name) == "true" for name in _DEFAULT_ANNOTATIONS)
