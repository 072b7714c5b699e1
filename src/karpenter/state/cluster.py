"""The cluster in memory: fed by informers, read as immutable snapshots.

Every machine is a row (`karpenter.state.rows`), found by a token (`karpenter.state.pairing`). An informer's
event marks the rows it touches; `snapshot()` rebuilds only those.

Claims count from the moment they are created (`note_claim_created`), launched or not, with the pods they were
created for on them (`karpenter.state.reservations`). That is what keeps a second pass from buying the same
capacity again, and why an unlaunched claim need not stop anybody else's provisioning.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from karpenter.apis import labels as known
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node, PersistentVolumeClaim, Pod, TopologySpreadConstraint
from karpenter.apis.karpenter import NodeClaim, NodeClassRef, NodePool
from karpenter.apis.workloads import DaemonSet, PodDisruptionBudget
from karpenter.base.clock import Clock
from karpenter.base.quantity import Resources, add
from karpenter.cloudprovider import CloudProvider
from karpenter.kube.client import resource_of
from karpenter.kube.informer import Cache, Change, Informer
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import is_provisionable, is_reschedulable, is_terminal, pod_key, requests
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.state.buffers import Buffers
from karpenter.state.catalogues import Catalogues
from karpenter.state.daemons import daemon_pods
from karpenter.state.grants import Grants
from karpenter.state.pairing import Pairing, claim_token, node_token
from karpenter.state.podtimes import PodLedger
from karpenter.state.poolhealth import PoolHealth
from karpenter.state.readytimes import ReadyTimes
from karpenter.state.refusallog import RefusalLog
from karpenter.state.reservations import Reservations
from karpenter.state.rows import PlannedSize, is_too_early, view_of
from karpenter.state.spread import DefaultSpread
from karpenter.state.tables import Tables
from karpenter.state.unconfirmed import Unconfirmed
from karpenter.state.verdictlog import VerdictLog

CONSOLIDATION_REFRESH_SECONDS = 5 * 60.0
"""Consolidation looks again at least this often, whatever happened."""


class Cluster:
    """What we know of the cluster. All methods are synchronous and belong to the event loop's thread."""

    def __init__(
        self,
        cache: Cache,
        *,
        clock: Clock,
        provider: CloudProvider,
        batch_max_duration: float = 10.0,
        default_spread: Sequence[TopologySpreadConstraint] = (),
    ) -> None:
        """Subscribe; `batch_max_duration` is in seconds, `default_spread` for pods without constraints."""
        self._clock = clock
        self._provider = provider
        self.nomination_seconds = max(2 * batch_max_duration, 10.0)
        """How long a node is left alone after pods were promised to it."""
        self.pod_times = PodLedger()
        self.pool_health = PoolHealth()
        self.ready_times = ReadyTimes()
        self.grants = Grants()
        self.buffers = Buffers()
        self.verdicts = VerdictLog()
        """Why nodes are left alone: written by disruption, for whoever asks."""
        self.refusals = RefusalLog()
        """Why pods wait: written by provisioning, for whoever asks."""
        self._stand_ins: frozenset[str] = frozenset()
        self._headroom: dict[str, int] = {}
        self._pods = cache.informer(Pod)
        self._nodes = cache.informer(Node)
        self._claims = cache.informer(NodeClaim)
        self._pools = cache.informer(NodePool)
        self._daemon_sets = cache.informer(DaemonSet)
        self._tables = Tables(cache)
        self._default_spread = DefaultSpread(cache, default_spread)
        self._rows: dict[str, NodeView] = {}
        self._dirty: set[str] = set()
        self._sorted: tuple[NodeView, ...] | None = ()
        self._pool_sums: tuple[tuple[NodeView, ...], dict[str, Resources]] = (), {}
        self._waiting: dict[str, Pod] = {}
        self._pending: tuple[Pod, ...] | None = ()
        self._requests: dict[str, tuple[Pod, Resources]] = {}
        self._unconfirmed = Unconfirmed()
        self._pairing = Pairing(cache, self._unconfirmed)
        self._reservations = Reservations()
        self._marked: set[str] = set()
        self._nominated: dict[str, float] = {}
        self._catalogues = Catalogues(provider.reservation_label)
        self._planned: dict[str, PlannedSize] = {}
        self._by_weight: tuple[NodePool, ...] | None = None
        self._unconsolidated_at = self._changed_at = clock.now()
        self._subscribe()

    # --- what others ask ----------------------------------------------------------------------------------

    def synced(self) -> bool:
        """Tell whether every informer has its first whole list. Claims on their way do not matter."""
        own: list[Informer[Any]] = [self._pods, self._nodes, self._claims, self._pools, self._daemon_sets]
        others = [*self._tables.informers, *self._default_spread.informers]
        return all(informer.synced for informer in own + others)

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is known now; costs what has changed since the last one."""
        now = self._clock.now()
        self._end_reservations(now)
        nodes = self.nodes()
        return Snapshot(
            taken_at=now,
            nodes=nodes,
            pending=self._pending_pods(),
            nodepools=self.managed_pools(),
            daemons=daemon_pods(self._daemon_sets.items(), self._pods),
            pdbs=self._tables.pdbs(),
            stand_ins=self._stand_ins,
            volume_claims=self._tables.volume_claims(),
            volumes=self._tables.volumes(),
            storage_classes=self._tables.storage_classes(),
            namespaces=self._tables.namespaces(),
            headroom=self.buffers.pods(),
        )

    def nodes(self) -> tuple[NodeView, ...]:
        """Return the rows of all machines, by name."""
        for token in sorted(self._dirty):
            self._rebuild(token)
        self._dirty.clear()
        if self._sorted is None:
            self._sorted = tuple(sorted(self._rows.values(), key=lambda row: (row.name, row.provider_id)))
        return self._sorted

    def pdbs(self) -> tuple[PodDisruptionBudget, ...]:
        """Return all PodDisruptionBudgets, by key; the same tuple until one changes."""
        return self._tables.pdbs()

    def volume_claims(self) -> dict[str, PersistentVolumeClaim]:
        """Return all PersistentVolumeClaims, by key; not to be altered."""
        return self._tables.volume_claims()

    def pods_on(self, node_name: str) -> list[Pod]:
        """Return the pods bound to a node, terminal ones too, by key."""
        return self._pods.by_index("node", node_name) if node_name else []

    def claim_for(self, provider_id: str) -> NodeClaim | None:
        """Return the claim whose instance this is (the first by name, should there be several)."""
        found = self.claims_for(provider_id)
        return found[0] if found else None

    def claims_for(self, provider_id: str) -> list[NodeClaim]:
        """Return all claims of this instance, by name."""
        return self._pairing.claims_for(provider_id)

    def node_for(self, provider_id: str) -> Node | None:
        """Return the Node of an instance (the first by name, should there be several)."""
        found = self.nodes_for(provider_id)
        return found[0] if found else None

    def nodes_for(self, provider_id: str) -> list[Node]:
        """Return all Nodes that name this instance, by name."""
        return self._pairing.nodes_for(provider_id)

    def claims_of_pool(self, pool: str) -> list[NodeClaim]:
        """Return the pool's claims, those just created included, by name."""
        found = {c.name: c for c in self._claims.by_index("pool", pool)}
        for claim in self._unconfirmed.of_pool(pool):
            found.setdefault(claim.name, claim)
        return [found[name] for name in sorted(found)]

    def pool(self, name: str) -> NodePool | None:
        """Return a NodePool as it is now."""
        return self._pools.get(name)

    def managed_pools(self) -> tuple[NodePool, ...]:
        """Return the managed pools, in order of preference."""
        if self._by_weight is None:
            managed = [p for p in self._pools.items() if self.manages(p.spec.template.spec.node_class_ref)]
            managed.sort(key=lambda pool: pool.name, reverse=True)
            self._by_weight = tuple(sorted(managed, key=lambda pool: -(pool.spec.weight or 0)))
        return self._by_weight

    def catalogue(self, pool: str) -> tuple[InstanceType, ...]:
        """Return what the pool could buy when it was last asked; empty when it never was."""
        return self._catalogues.of(pool)

    def price(self, claim: NodeClaim) -> float | None:
        """Return what a claim's machine costs, USD per hour; None when its offering is not known."""
        return self._catalogues.price(claim)

    def needs_place(self, pod: Pod) -> bool:
        """Tell whether `pod`, as it is by now, still wants a place that no claim holds for it."""
        now = self._pods.get(pod.name, pod.namespace)
        if now is None or now.metadata.uid != pod.metadata.uid or self._reservations.claim_of(pod_key(pod)):
            return False
        return self._wants_place(now) or now.spec.node_name == pod.spec.node_name

    def manages(self, reference: NodeClassRef) -> bool:
        """Tell whether a node class reference is to a kind that the provider serves."""
        return any(
            (resource_of(kind).group, resource_of(kind).kind) == (reference.group, reference.kind)
            for kind in self._provider.node_classes
        )

    def pool_resources(self, pool: str) -> Resources:
        """Return what a pool has: capacity of its machines, `nodes` counted, those marked for deletion not.

        Unlaunched claims count with what they asked for.
        """
        rows = self.nodes()
        if self._pool_sums[0] is not rows:
            sums: dict[str, Resources] = {}
            for row in rows:
                if row.nodepool and not row.marked_for_deletion and row.claim is not None:
                    own = sums.setdefault(row.nodepool, {})
                    for name, amount in row.capacity.items():
                        own[name] = own.get(name, 0) + amount
            self._pool_sums = rows, sums
        return dict(self._pool_sums[1].get(pool, {}))

    def pool_commitment(self, pool: str) -> Resources:
        """Return the most that a pool may come to have: as `pool_resources`, but unlaunched claims count
        with the largest type they allow, and machines that go only when their replacements are there count
        until then. Limits are held against this."""
        result: Resources = {}
        for row in self.nodes():
            if row.nodepool != pool or row.claim is None or self._is_leaving(row):
                continue
            planned = self._planned.get(row.claim.name) if not row.provider_id else None
            result = add(result, planned.most if planned is not None else row.capacity)
        return result

    def _is_leaving(self, row: NodeView) -> bool:
        """Tell whether a machine's end has begun, not only been decided."""
        if not row.marked_for_deletion:
            return False
        node_goes = row.node is not None and row.node.deleting
        return node_goes or row.claim is None or self.is_ending(row.claim)

    def as_spread(self, pod: Pod) -> Pod:
        """Return `pod` with the topology spread constraints that hold for it: its own, or the defaults."""
        return self._default_spread.apply(pod)

    def price_commitments(self) -> dict[str, int]:
        """Return what each pool's machines and claims on their way cost, micro-USD per hour.

        As with other limits, what is on its way out does not count.
        """
        found: dict[str, int] = {}
        for row in self.nodes():
            if row.nodepool and row.claim is not None and not self._is_leaving(row):
                found[row.nodepool] = found.get(row.nodepool, 0) + self._catalogues.commitment(row.claim)
        return found

    def reserved_for(self, pod: Pod) -> str:
        """Return the name of the claim that `pod` is expected on, or nothing."""
        claim = self._reservations.claim_of(pod_key(pod))
        if not claim or self._reservations.is_over(claim, self._clock.now()):
            return ""
        return claim if self._wants_place(pod) else ""

    def planned_on(self, pod: Pod) -> str:
        """Return the claim that `pod` was planned for, wherever it is now; empty: there is none."""
        claim = self._reservations.claim_of(pod_key(pod))
        return "" if not claim or self._reservations.is_over(claim, self._clock.now()) else claim

    @property
    def unconsolidated_at(self) -> float:
        """When something last changed that consolidation should know of; never older than five minutes."""
        now = self._clock.now()
        if now - self._unconsolidated_at > CONSOLIDATION_REFRESH_SECONDS:
            self._unconsolidated_at = now
        return self._unconsolidated_at

    @property
    def changed_at(self) -> float:
        """When something last changed that consolidation should know of."""
        return self._changed_at

    # --- what others tell ---------------------------------------------------------------------------------

    def mark_unconsolidated(self) -> None:
        """Let consolidation look again."""
        self._unconsolidated_at = self._changed_at = self._clock.now()

    def nominate(self, node_name: str) -> None:
        """Note that pods were promised to a node (or to a claim without one, by the claim's name)."""
        node = self._nodes.get(node_name)
        claim = self.claim_for(node.spec.provider_id) if node is not None else self._pairing.claim(node_name)
        anchor = f"claim/{claim.name}" if claim is not None else node_name
        self._nominated[anchor] = self._clock.now() + self.nomination_seconds
        if claim is not None:
            self._touch(claim)
        elif node is not None:
            self._dirty.add(node_token(node))

    def note_stand_ins(self, pods: frozenset[str]) -> None:
        """Note the keys of all pods that would have a stand-in before a drain takes them."""
        if pods != self._stand_ins:
            self._stand_ins = pods
            self.mark_unconsolidated()

    def hold_headroom(self, counts: Mapping[str, int]) -> None:
        """Note how many virtual pods have their room on which machine, as everything there is of that kind.

        Machines go by their claim's name as `claim/<name>`, those without one by their Node's name.
        """
        changed = {m for m in counts.keys() | self._headroom.keys() if counts.get(m) != self._headroom.get(m)}
        self._headroom = dict(counts)
        for machine in sorted(changed):
            if machine.startswith("claim/"):
                self._touch_claim(machine.removeprefix("claim/"))
            else:
                self._touch_node(machine)
        if changed:
            self.mark_unconsolidated()

    def mark_for_deletion(self, provider_ids: Iterable[str]) -> None:
        """Take machines out of the capacity: they are about to go."""
        for provider_id in provider_ids:
            self._marked.add(provider_id)
            self._touch_marked(provider_id)

    def unmark_for_deletion(self, provider_ids: Iterable[str]) -> None:
        """Take machines back: they stay after all."""
        for provider_id in provider_ids:
            self._marked.discard(provider_id)
            self._touch_marked(provider_id)

    def note_claim_created(self, claim: NodeClaim) -> None:
        """Count a claim that the API server has accepted before the watch tells of it."""
        if self._claims.get(claim.name) is None:
            self._unconfirmed.create(claim, self._clock.now())
            self._take_in(claim)

    def unconfirmed(self, *, older_than_seconds: float = 0.0) -> list[NodeClaim]:
        """Return claims created that long ago and not yet told of by the watch, by name."""
        return self._unconfirmed.created_until(self._clock.now() - older_than_seconds)

    def forget_created(self, name: str) -> None:
        """Drop a created claim that the API server does not have any more."""
        if self._unconfirmed.seen(name) and self._claims.get(name) is None:
            self._drop(name)

    def note_claim_ended(self, claim: NodeClaim) -> bool:
        """Count a claim as going from the moment its deletion is accepted; tell whether that is news."""
        if claim.deleting or not self._unconfirmed.end(claim.metadata.uid):
            return False
        self._take_in(claim)
        self._touch_marked(claim.status.provider_id)
        return True

    def is_ending(self, claim: NodeClaim) -> bool:
        """Tell whether a claim is on its way out, as far as the API server or we ourselves know."""
        return claim.deleting or self._unconfirmed.is_ended(claim.metadata.uid)

    def note_catalogue(self, pool: str, types: tuple[InstanceType, ...]) -> None:
        """Tell what a pool can buy; unlaunched claims are sized by it."""
        if not self._catalogues.note(pool, types):
            return
        self.mark_unconsolidated()
        for claim in self.claims_of_pool(pool):
            if self._planned.pop(claim.name, None) is not None or not claim.status.provider_id:
                self._touch(claim)

    # --- informers ----------------------------------------------------------------------------------------

    def _subscribe(self) -> None:
        self._pods.add_index("node", lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])
        self._pods.add_index("owner", lambda pod: [o.uid for o in pod.metadata.owner_references if o.uid])
        self._claims.add_index("pool", lambda c: [c.metadata.labels.get(known.NODEPOOL, "")])
        self._claims.subscribe(self._on_claim)
        self._nodes.subscribe(self._on_node)
        self._pods.subscribe(self._on_pod)
        self._pools.subscribe(self._on_pool)
        self._tables.on_storage(self._touch_node)

    def _on_claim(self, change: Change[NodeClaim]) -> None:
        claim, old = change.object, change.old
        self._unconfirmed.seen(claim.name)
        if old is not None:
            self._touch(old)
        if change.type == "DELETED":
            self._unconfirmed.gone(claim.metadata.uid)
            self._drop(claim.name)
            self._touch(claim)
            self._marked.discard(claim.status.provider_id)
            self.mark_unconsolidated()
        else:
            if old is None or _markers(old) != _markers(claim):
                self.mark_unconsolidated()
            self._take_in(claim)
            if claim.deleting and not (old is not None and old.deleting):
                self._touch_marked(claim.status.provider_id)

    def _take_in(self, claim: NodeClaim) -> None:
        """Note a claim as it is now: its row, and the pods it holds."""
        if claim.status.provider_id:
            self._planned.pop(claim.name, None)
        self._touch(claim)
        now = self._clock.now()
        self._reserved_anew(
            self._reservations.release(claim.name)
            if self.is_ending(claim)
            else self._reservations.hold(claim, self.nomination_seconds, now)
        )

    def _reserved_anew(self, claims: Iterable[str]) -> None:
        """Some claims may hold other pods than before."""
        for name in claims:
            self._touch_claim(name)
            self._pending = None

    def _drop(self, claim_name: str) -> None:
        self._dirty.add(f"claim/{claim_name}")
        self._planned.pop(claim_name, None)
        self._nominated.pop(f"claim/{claim_name}", None)
        self._reserved_anew(self._reservations.release(claim_name))

    def _on_node(self, change: Change[Node]) -> None:
        node, old = change.object, change.old
        self._dirty.add(node_token(node))
        if old is not None:
            self._dirty.add(node_token(old))
        self._dirty.update(claim_token(claim) for claim in self._pairing.owners_of(node))
        if node.deleting and not (old is not None and old.deleting):
            self._touch_marked(node.spec.provider_id)
        if change.type == "DELETED":
            self._nominated.pop(node.name, None)
            if not self.claims_for(node.spec.provider_id):
                self._marked.discard(node.spec.provider_id)
        initialized = [n and n.metadata.labels.get(known.INITIALIZED) for n in (node, old)]
        if change.type != "MODIFIED" or initialized[0] != initialized[1]:
            self.mark_unconsolidated()

    def _on_pod(self, change: Change[Pod]) -> None:
        pod, old = change.object, change.old
        key = pod_key(pod)
        for each in (pod, old):
            if each is not None and each.spec.node_name:
                self._touch_node(each.spec.node_name)
        holder = self._reservations.claim_of(key)
        if holder:
            self._touch_claim(holder)
        gone = change.type == "DELETED"
        if gone:
            self._requests.pop(key, None)
            self.pod_times.forget([key])
            self.refusals.forget(key)
            self.ready_times.forget(pod)
        else:
            self.ready_times.note(pod)
        waits = not gone and is_provisionable(pod) and not pod.deleting and not is_terminal(pod)
        if waits:
            self._waiting[key] = pod
            self._pending = None
        elif self._waiting.pop(key, None) is not None:
            self._pending = None
        if gone or (pod.spec.node_name and (old is None or not old.spec.node_name)):
            self.mark_unconsolidated()

    def _on_pool(self, change: Change[NodePool]) -> None:
        self._by_weight = None
        if change.type == "DELETED":
            self._catalogues.forget(change.object.name)
        if change.old is None or change.old.metadata.generation != change.object.metadata.generation:
            self.mark_unconsolidated()

    # --- rows ---------------------------------------------------------------------------------------------

    def _rebuild(self, token: str) -> None:
        """Make one row anew, or drop it."""
        node, claim = self._pairing.parts(token)
        self._sorted = None
        if (node is None and claim is None) or (claim is None and node is not None and is_too_early(node)):
            self._rows.pop(token, None)
            return
        pods = {pod_key(p): p for p in self.pods_on(node.name) if not is_terminal(p)} if node else {}
        if claim is not None:
            for key in self._reservations.pods_of(claim.name):
                pod = self._pods.get(*reversed(key.split("/", 1)))
                if pod is not None and self._wants_place(pod):
                    pods.setdefault(key, pod)
        anchor = f"claim/{claim.name}" if claim is not None else node.name if node is not None else ""
        until = max(
            self._nominated.get(anchor, 0.0), self._nominated.get(node.name, 0.0) if node is not None else 0.0
        )
        self._rows[token] = view_of(
            node,
            claim,
            pods=list(pods.values()),
            requests={key: self._requests_of(key, pod) for key, pod in pods.items()},
            managed=claim is not None and self.manages(claim.spec.node_class_ref),
            marked=token in self._marked or (claim is not None and self.is_ending(claim)),
            nominated_until=until,
            planned=self._planned_size(claim) if claim is not None and node is None else None,
            storage=self._tables.storage_of(node.name) if node is not None else None,
            headroom_pods=self._headroom.get(anchor, 0),
        )

    def _planned_size(self, claim: NodeClaim) -> PlannedSize | None:
        if claim.status.provider_id:
            return None
        known_size = self._planned.get(claim.name)
        if known_size is None:
            pool = claim.metadata.labels.get(known.NODEPOOL, "")
            known_size = self._planned[claim.name] = PlannedSize(claim, self.catalogue(pool))
        return known_size

    def _requests_of(self, key: str, pod: Pod) -> Resources:
        cached = self._requests.get(key)
        if cached is None or cached[0] is not pod:
            cached = self._requests[key] = (pod, requests(pod))
        return cached[1]

    def _touch_node(self, node_name: str) -> None:
        node = self._nodes.get(node_name)
        if node is not None:
            self._dirty.add(node_token(node))

    def _touch_claim(self, name: str) -> None:
        claim = self._pairing.claim(name)
        if claim is not None:
            self._touch(claim)

    def _touch(self, claim: NodeClaim) -> None:
        self._dirty.update((claim_token(claim), self._pairing.token_of(claim)))

    def _touch_marked(self, provider_id: str) -> None:
        """A machine that goes, or stays after all: its row, and the claims that its pods are expected on."""
        if not provider_id:
            return
        self._dirty.add(provider_id)
        node = self.node_for(provider_id)
        for pod in self.pods_on(node.name) if node is not None else ():
            holder = self._reservations.claim_of(pod_key(pod))
            if holder:
                self._touch_claim(holder)
        self.mark_unconsolidated()

    # --- pods ---------------------------------------------------------------------------------------------

    def _wants_place(self, pod: Pod) -> bool:
        """Tell whether a reservation for `pod` still means something: it has no node, or one that goes."""
        if is_terminal(pod):
            return False
        if not pod.spec.node_name:
            return not pod.deleting
        node = self._nodes.get(pod.spec.node_name)
        if node is None or not is_reschedulable(pod):
            return False
        token = node_token(node)
        claim = self.claim_for(node.spec.provider_id)
        return token in self._marked or node.deleting or (claim is not None and self.is_ending(claim))

    def _pending_pods(self) -> tuple[Pod, ...]:
        if self._pending is None:
            self._pending = tuple(
                self._waiting[key] for key in sorted(self._waiting) if not self._reservations.claim_of(key)
            )
        return self._pending

    def _end_reservations(self, now: float) -> None:
        for name in self._reservations.due(now):
            self._reserved_anew(self._reservations.release(name))


def _markers(claim: NodeClaim) -> tuple[bool, ...]:
    """Return what a claim says about whether it may be disrupted."""
    return tuple(is_true(claim.status.conditions, marker) for marker in ("Consolidatable", "Drifted"))
