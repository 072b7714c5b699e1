"""Kinds that change seldom: handed out as whole tables, made again only after a change."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from karpenter.apis.core import Namespace, PersistentVolume, PersistentVolumeClaim
from karpenter.apis.workloads import CSINode, PodDisruptionBudget, StorageClass, VolumeAttachment
from karpenter.kube.informer import Cache, Change, Informer
from karpenter.state.rows import Storage

T = TypeVar("T")


class Tables:
    """Budgets, volumes, storage classes and namespaces, as a snapshot wants them."""

    def __init__(self, cache: Cache) -> None:
        """Subscribe to the informers behind the tables."""
        self._pdbs = cache.informer(PodDisruptionBudget)
        self._volume_claims = cache.informer(PersistentVolumeClaim)
        self._volumes = cache.informer(PersistentVolume)
        self._storage_classes = cache.informer(StorageClass)
        self._namespaces = cache.informer(Namespace)
        self._csi_nodes = cache.informer(CSINode)
        self._attachments = cache.informer(VolumeAttachment)
        self._attachments.add_index("nodeName", lambda attachment: (attachment.spec.node_name,))
        self.informers: tuple[Informer[Any], ...] = (
            self._pdbs,
            self._volume_claims,
            self._volumes,
            self._storage_classes,
            self._namespaces,
            self._csi_nodes,
            self._attachments,
        )
        """All of them: nothing can be decided before each has its first whole list."""
        self._made: dict[int, object] = {}
        for informer in self.informers:
            self._forget_when_changed(informer)

    def pdbs(self) -> tuple[PodDisruptionBudget, ...]:
        """Return all budgets, by key."""
        return self._once(self._pdbs, lambda: tuple(self._pdbs.items()))

    def volume_claims(self) -> dict[str, PersistentVolumeClaim]:
        """Return PersistentVolumeClaims by key."""
        return self._once(self._volume_claims, lambda: {o.key: o for o in self._volume_claims.items()})

    def volumes(self) -> dict[str, PersistentVolume]:
        """Return PersistentVolumes by name."""
        return self._once(self._volumes, lambda: {o.key: o for o in self._volumes.items()})

    def storage_classes(self) -> dict[str, StorageClass]:
        """Return StorageClasses by name."""
        return self._once(self._storage_classes, lambda: {o.key: o for o in self._storage_classes.items()})

    def namespaces(self) -> dict[str, dict[str, str]]:
        """Return the labels of namespaces, by name."""
        return self._once(
            self._namespaces, lambda: {o.name: dict(o.metadata.labels) for o in self._namespaces.items()}
        )

    def storage_of(self, node_name: str) -> Storage:
        """Return what the CSI drivers of a node can attach, and have attached."""
        attachments = self._attachments.by_index("nodeName", node_name)
        return Storage.of(self._csi_nodes.get(node_name), attachments)

    def on_storage(self, touch: Callable[[str], None]) -> None:
        """Call `touch` with the name of every node for which `storage_of` may have changed."""
        self._csi_nodes.subscribe(lambda change: touch(change.object.name))
        self._attachments.subscribe(lambda change: touch(change.object.spec.node_name))

    def _once(self, informer: Informer[Any], make: Callable[[], T]) -> T:
        key = id(informer)
        if key not in self._made:
            self._made[key] = make()
        return cast(T, self._made[key])

    def _forget_when_changed(self, informer: Informer[Any]) -> None:
        def on_change(_: Change[Any]) -> None:
            self._made.pop(id(informer), None)

        informer.subscribe(on_change)
