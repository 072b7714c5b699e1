"""The cluster in memory.

Informers feed it; `snapshot()` gives decisions an immutable picture. A row is rebuilt only when its Node, its
NodeClaim or its pods changed. What only this process knows is here too: which nodes are expected to get pods
soon, which are about to go, and which pods each claim on its way was bought for. All of it can be lost: after a
restart, claims on their way are capacity by their own figures, and everything else is decided again.

Unlike upstream, a claim that is not launched yet does not make the cluster "unsynced": it is capacity on its
way, and everything else goes on.
"""

from collections.abc import Iterable
from typing import NamedTuple

from karpenter.apis import labels
from karpenter.apis.core import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.workloads import DaemonSet, PodDisruptionBudget, StorageClass
from karpenter.base.clock import Clock
from karpenter.base.quantity import Resources, add
from karpenter.cloudprovider import CloudProvider
from karpenter.kube.informer import Cache, Change
from karpenter.model import pods as podlib
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.state.daemons import daemon_pods
from karpenter.state.plans import Plans
from karpenter.state.rows import is_gone, node_view

_REEVALUATE_SECONDS = 300.0  # upstream: consolidation looks again at least every five minutes


class _Version(NamedTuple):
    """What a row was built from; equal means that it is still right."""

    node: str
    claim: str
    pods: int
    marked: bool
    nominated_until: float
    planned: frozenset[str]


class Cluster:
    """Reads for everybody, and the little that only this process knows."""

    def __init__(
        self, cache: Cache, *, clock: Clock, provider: CloudProvider, batch_max_duration: float = 10.0
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._provider = provider
        self.nomination_seconds = max(2 * batch_max_duration, 10.0)
        self.pods = cache.informer(Pod)
        self.nodes = cache.informer(Node)
        self.claims = cache.informer(NodeClaim)
        self.pools = cache.informer(NodePool)
        self.daemonsets = cache.informer(DaemonSet)
        self.pdbs = cache.informer(PodDisruptionBudget)
        self._volume_claims = cache.informer(PersistentVolumeClaim)
        self._volumes = cache.informer(PersistentVolume)
        self._storage_classes = cache.informer(StorageClass)
        self._namespaces = cache.informer(Namespace)
        self.pods.add_index("nodeName", lambda p: (p.spec.node_name,) if p.spec.node_name else ())
        self.pods.add_index("owner", lambda p: (o.uid for o in p.metadata.owner_references))
        self.nodes.add_index("providerID", lambda n: (n.spec.provider_id,) if n.spec.provider_id else ())
        self.claims.add_index("providerID", _provider_ids)
        self._created: dict[str, NodeClaim] = {}
        self._marked: set[str] = set()
        self._nominated: dict[str, float] = {}
        self._pod_versions: dict[str, int] = {}
        self._pending: dict[str, Pod] = {}
        self._rows: dict[str, tuple[_Version, NodeView]] = {}
        self.plans = Plans(clock)
        self._unconsolidated_at = clock.now()
        self.pods.subscribe(self._on_pod)
        self.nodes.subscribe(self._on_node)
        self.claims.subscribe(self._on_claim)
        self.pools.subscribe(self._on_pool)

    def synced(self) -> bool:
        """Tell whether every informer has its first whole list."""
        return all(
            informer.synced
            for informer in (
                self.pods,
                self.nodes,
                self.claims,
                self.pools,
                self.daemonsets,
                self.pdbs,
                self._volume_claims,
                self._volumes,
                self._storage_classes,
                self._namespaces,
            )
        )

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now."""
        return Snapshot(
            taken_at=self._clock.now(),
            nodes=tuple(self._views()),
            pending=tuple(self._pending[key] for key in sorted(self._pending)),
            nodepools=tuple(self._managed_pools()),
            daemons=daemon_pods(self.daemonsets.items(), self.pods),
            pdbs=tuple(self.pdbs.items()),
            volume_claims={claim.key: claim for claim in self._volume_claims.items()},
            volumes={volume.name: volume for volume in self._volumes.items()},
            storage_classes={kind.name: kind for kind in self._storage_classes.items()},
            namespaces={space.name: space.metadata.labels for space in self._namespaces.items()},
        )

    # Lookups.

    def pods_on(self, node_name: str) -> list[Pod]:
        """Return the pods bound to a node, by key, terminal ones included."""
        return self.pods.by_index("nodeName", node_name)

    def claim_for(self, provider_id: str) -> NodeClaim | None:
        """Return the one claim of a machine; None when there is none, or more than one."""
        found = self.claims.by_index("providerID", provider_id) if provider_id else []
        return found[0] if len(found) == 1 else None

    def node_for(self, provider_id: str) -> Node | None:
        """Return the one Node of a machine; None when there is none, or more than one."""
        found = self.nodes.by_index("providerID", provider_id) if provider_id else []
        return found[0] if len(found) == 1 else None

    def pool_resources(self, pool: str) -> Resources:
        """Return the capacity of a pool's machines, with `nodes` counted; those about to go left out."""
        used: Resources = {}
        for view in self._views():
            if view.nodepool == pool and view.managed and not view.marked_for_deletion:
                used = add(used, view.capacity)
        return used

    def supports(self, group: str, kind: str) -> bool:
        """Tell whether a node class of this group and kind is one of our provider's."""
        return any(
            (node_class.resource.group, node_class.resource.kind) == (group, kind)  # type: ignore[attr-defined]
            for node_class in self._provider.node_classes
        )

    # What only this process knows.

    def note_claim_created(self, claim: NodeClaim, pods: Iterable[str] = ()) -> None:
        """Take a claim we just created into account before the watch tells of it, with its `pods` (keys)."""
        if self.claims.get(claim.name) is None:
            self._created[claim.name] = claim
        self.plans.make(claim.name, pods)

    def nominate(self, node_name: str) -> None:
        """Expect pods on the node: it is left alone for a while."""
        self._nominated[node_name] = self._clock.now() + self.nomination_seconds

    def mark_for_deletion(self, provider_ids: Iterable[str]) -> None:
        """Treat machines as going."""
        self._marked.update(provider_ids)
        self.mark_unconsolidated()

    def unmark_for_deletion(self, provider_ids: Iterable[str]) -> None:
        """Treat machines as staying again."""
        self._marked.difference_update(provider_ids)
        self.mark_unconsolidated()

    @property
    def unconsolidated_at(self) -> float:
        """Return when something last changed that consolidation should look at."""
        if self._clock.now() - self._unconsolidated_at > _REEVALUATE_SECONDS:
            self.mark_unconsolidated()
        return self._unconsolidated_at

    def mark_unconsolidated(self) -> None:
        """Note that consolidation should look again."""
        self._unconsolidated_at = self._clock.now()

    # Rows.

    def _views(self) -> list[NodeView]:
        """Return every machine, by name, rebuilding only what changed."""
        rows: dict[str, tuple[_Version, NodeView]] = {}
        for node, claim in self._machines():
            key = claim.metadata.uid if claim is not None else (node.metadata.uid if node else "")
            version = self._version(node, claim)
            known = self._rows.get(key)
            rows[key] = (
                known if known is not None and known[0] == version else self._build(version, node, claim)
            )
        self._rows = rows
        return sorted((view for _, view in rows.values()), key=lambda view: view.name)

    def _machines(self) -> Iterable[tuple[Node | None, NodeClaim | None]]:
        paired: set[str] = set()
        for claim in [*self.claims.items(), *self._created.values()]:
            if not self._is_managed(claim):
                continue
            node = self.node_for(claim.status.provider_id)
            if node is not None:
                paired.add(node.name)
            yield node, claim
        for node in self.nodes.items():
            # One of ours without a claim is either not paired yet or being cleaned up: no capacity to plan on.
            if node.name not in paired and labels.NODEPOOL not in node.metadata.labels:
                yield node, None

    def _is_managed(self, claim: NodeClaim) -> bool:
        return self.supports(claim.spec.node_class_ref.group, claim.spec.node_class_ref.kind)

    def _version(self, node: Node | None, claim: NodeClaim | None) -> _Version:
        provider_id = node.spec.provider_id if node else (claim.status.provider_id if claim else "")
        name = node.name if node else (claim.name if claim else "")
        planned = self.plans.of(claim.name) if claim is not None else frozenset()
        return _Version(
            node.metadata.resource_version if node else "",
            claim.metadata.resource_version if claim else "",
            self._pod_versions.get(name, 0) if node else -1,
            provider_id in self._marked if provider_id else False,
            self._nominated.get(name, 0.0),
            planned,
        )

    def _build(
        self, version: _Version, node: Node | None, claim: NodeClaim | None
    ) -> tuple[_Version, NodeView]:
        bound = [pod for pod in self.pods_on(node.name) if not podlib.is_terminal(pod)] if node else []
        keys = {pod.key for pod in bound}
        planned = [self._pod(key) for key in sorted(version.planned - keys)]
        pods = sorted([*bound, *(pod for pod in planned if pod is not None)], key=lambda pod: pod.key)
        view = node_view(
            node,
            claim,
            pods,
            marked_for_deletion=version.marked,
            nominated_until=version.nominated_until,
        )
        return version, view

    def _pod(self, key: str) -> Pod | None:
        namespace, _, name = key.rpartition("/")
        return self.pods.get(name, namespace)

    def _managed_pools(self) -> list[NodePool]:
        pools = [
            pool
            for pool in self.pools.items()
            if self.supports(
                pool.spec.template.spec.node_class_ref.group, pool.spec.template.spec.node_class_ref.kind
            )
        ]
        by_name = sorted(pools, key=lambda pool: pool.name, reverse=True)
        return sorted(by_name, key=lambda pool: -(pool.spec.weight or 0))

    # Events.

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.object
        for version in (change.old, pod):
            if version is not None and version.spec.node_name:
                node = version.spec.node_name
                self._pod_versions[node] = self._pod_versions.get(node, 0) + 1
        bound_before = change.old is not None and bool(change.old.spec.node_name)
        if change.type == "DELETED" or podlib.is_terminal(pod) or (pod.spec.node_name and not bound_before):
            self.plans.drop_pod(pod.key)
            self.mark_unconsolidated()
        if change.type != "DELETED" and podlib.is_provisionable(pod) and not pod.deleting:
            self._pending[pod.key] = pod
        else:
            self._pending.pop(pod.key, None)

    def _on_node(self, change: Change[Node]) -> None:
        if change.type == "DELETED":
            self._nominated.pop(change.object.name, None)
            self._pod_versions.pop(change.object.name, None)
        if change.type != "MODIFIED" or _reached(change, labels.INITIALIZED):
            self.mark_unconsolidated()

    def _on_claim(self, change: Change[NodeClaim]) -> None:
        claim = change.object
        self._created.pop(claim.name, None)
        if change.type == "DELETED":
            self._marked.discard(claim.status.provider_id)
            self.plans.drop_claim(claim.name)
        elif is_gone(None, claim):
            self.plans.drop_claim(claim.name)
        if change.type != "MODIFIED":
            self.mark_unconsolidated()

    def _on_pool(self, change: Change[NodePool]) -> None:
        if change.old is None or change.old.metadata.generation != change.object.metadata.generation:
            self.mark_unconsolidated()


def _provider_ids(claim: NodeClaim) -> tuple[str, ...]:
    return (claim.status.provider_id,) if claim.status.provider_id else ()


def _reached(change: Change[Node], label: str) -> bool:
    before = change.old.metadata.labels if change.old else {}
    return before.get(label) != change.object.metadata.labels.get(label)
