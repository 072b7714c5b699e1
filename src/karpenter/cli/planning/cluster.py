"""From what the files contain to the question for the solver: a Snapshot, and a Problem over it.

What the API server and the controllers would have filled in by the time of planning is filled in here: host
names, provider ids, claims of nodes that say which pool they belong to, readiness, priorities.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from karpenter.apis import conditions
from karpenter.apis import labels as known
from karpenter.apis.core import Node, PersistentVolumeClaim, Pod, Taint
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import Condition, ObjectMeta, OwnerReference
from karpenter.base.quantity import Resources, add, format_resources, resources_of, subtract
from karpenter.cli.planning.catalogues import RESERVATION_ID
from karpenter.cli.planning.inventory import SYSTEM_PRIORITIES, Inventory
from karpenter.controllers.provisioning.demand import Demand, demand_in, usable_pools
from karpenter.controllers.provisioning.money import left_for_all, offer_of
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import is_daemon, is_mirror, is_terminal, pod_key, requests
from karpenter.model.problem import Problem, SolveOptions
from karpenter.model.requirements import Requirements
from karpenter.model.sizes import cautious
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.model.volumerules import VolumeRules
from karpenter.providers.kwok.catalogue import EC2_LABELS, KWOK_LABELS
from karpenter.state.catalogues import Catalogues as PriceIndex
from karpenter.state.daemons import daemon_pod
from karpenter.state.rows import PlannedSize, Storage, view_of

Catalogues = Mapping[str, tuple[InstanceType, ...]]
"""What each pool can buy."""
Ask = Callable[[Snapshot], Problem]
"""Returns the question for the solver, given a cluster."""

_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")
_READY = Condition(type="Ready", status="True", reason="KubeletReady")
_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_LIVE = ("Launched", "Registered", "Initialized", "Consolidatable")


def snapshot_of(inventory: Inventory, catalogues: Catalogues, now: float) -> Snapshot:
    """Return the cluster that the files describe, at epoch second `now`; notes go to the inventory."""
    pods = {key: _with_priority(inventory, pod) for key, pod in sorted(inventory.pods.items())}
    views = _views(inventory, pods, catalogues)
    pools = sorted(inventory.pools.values(), key=lambda pool: pool.name, reverse=True)
    pools.sort(key=lambda pool: -(pool.spec.weight or 0))
    running = defaultdict(list)
    for pod in pods.values():
        for owner in pod.metadata.owner_references:
            if owner.kind == "DaemonSet":
                running[(pod.namespace, owner.name)].append(pod)
    daemons = [
        _with_priority(inventory, daemon_pod(d, running[(d.namespace, d.name)]))
        for _, d in sorted(inventory.daemon_sets.items())
    ]
    pending = _pending(inventory, pods, {view.name for view in views})
    return Snapshot(
        taken_at=now,
        nodes=views,
        pending=pending,
        nodepools=tuple(_ready(inventory, pool) for pool in pools),
        daemons=tuple(daemons),
        pdbs=tuple(inventory.budgets[key] for key in sorted(inventory.budgets)),
        volume_claims=_volume_claims(inventory, pods),
        volumes=dict(sorted(inventory.volumes.items())),
        storage_classes=dict(sorted(inventory.storage_classes.items())),
        namespaces=_namespaces(inventory, pods),
    )


def problem_of(
    snapshot: Snapshot,
    catalogues: Catalogues,
    *,
    respect_preferences: bool = True,
    min_values_strict: bool = True,
    reserved_capacity: bool = True,
    price_limit: int | None = None,
    expendable_below: int | None = None,
) -> tuple[Problem, Demand]:
    """Return the question for the solver, and the demand it is about.

    `price_limit` is for all nodes together, micro-USD per hour.
    """
    demand = demand_in(snapshot, VolumeRules(), lambda _: False)
    spending = cache(lambda: spending_of(snapshot, catalogues))
    types = [t for pool in sorted(catalogues) for t in catalogues[pool]]
    problem = Problem(
        snapshot=snapshot,
        pods=demand.pods,
        nodes=tuple(n for n in snapshot.nodes if not n.marked_for_deletion),
        pools=tuple(
            offer
            for pool in usable_pools(snapshot)
            if catalogues.get(pool.name)
            and (offer := offer_of(pool, catalogues[pool.name], _remaining(snapshot, pool), spending))
        ),
        options=SolveOptions(
            respect_preferences=respect_preferences,
            min_values_strict=min_values_strict,
            well_known_labels=(labels := well_known_labels(types)),
            reserved_capacity=reserved_capacity,
            reservation_label=RESERVATION_ID if RESERVATION_ID in labels else "",
            price_remaining=left_for_all(price_limit, spending),
            expendable_below=expendable_below,
        ),
    )
    return problem, demand


def spending_of(snapshot: Snapshot, catalogues: Catalogues) -> dict[str, int]:
    """Return what each pool's machines cost, micro-USD per hour."""
    prices = PriceIndex()
    for name, types in catalogues.items():
        prices.note(name, types)
    spent: dict[str, int] = {}
    for row in snapshot.nodes:
        if row.claim is not None and not row.marked_for_deletion:
            spent[row.nodepool] = spent.get(row.nodepool, 0) + prices.commitment(row.claim)
    return spent


def well_known_labels(types: Sequence[InstanceType]) -> frozenset[str]:
    """Return the labels that pods may select without a pool defining them: whatever machines have."""
    offered = {key for t in types for key in t.requirements}
    offered.update(key for t in types for o in t.offerings for key in o.requirements)
    return known.WELL_KNOWN_LABELS | KWOK_LABELS | EC2_LABELS | offered


# --- pods -----------------------------------------------------------------------------------------------


def _with_priority(inventory: Inventory, pod: Pod) -> Pod:
    """Return `pod` with the priority of its class, as the API server resolves it on creation."""
    name = pod.spec.priority_class_name
    if pod.spec.priority is not None:
        return pod
    if not name:
        default = min((c.value for c in inventory.priorities.values() if c.global_default), default=None)
        value = default
    elif name in inventory.priorities:
        value = inventory.priorities[name].value
    else:
        value = SYSTEM_PRIORITIES.get(name)
        if value is None:
            inventory.note_once(f"PriorityClass/{name} is not among the files: its pods count as priority 0")
    return pod if value is None else msgspec.structs.replace(pod, spec=inventory.shared_spec(pod.spec, value))


def _pending(inventory: Inventory, pods: Mapping[str, Pod], nodes: set[str]) -> tuple[Pod, ...]:
    """Return the pods that want a node, as if kube-scheduler had looked for one in vain."""
    waiting = []
    for pod in pods.values():
        if pod.spec.node_name:
            if pod.spec.node_name not in nodes and not is_terminal(pod):
                name = pod.spec.node_name
                inventory.note_once(f"Node/{name} is not among the files: its pods are left out")
            continue
        if is_terminal(pod) or pod.deleting or is_daemon(pod) or is_mirror(pod):
            continue
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            inventory.note_once(f"Pod/{pod.name}: held back by scheduling gates ({gates}); left out")
            continue
        others = [c for c in pod.status.conditions if c.type != "PodScheduled"]
        status = msgspec.structs.replace(
            pod.status, phase=pod.status.phase or "Pending", conditions=[*others, _UNSCHEDULABLE]
        )
        waiting.append(msgspec.structs.replace(pod, status=status))
    return tuple(sorted(waiting, key=pod_key))


def _namespaces(inventory: Inventory, pods: Mapping[str, Pod]) -> dict[str, dict[str, str]]:
    names = {pod.namespace for pod in pods.values()} | inventory.namespaces.keys()
    found = {}
    for name in sorted(names):
        given = inventory.namespaces.get(name)
        labels = given.metadata.labels if given is not None else {}
        found[name] = {"kubernetes.io/metadata.name": name, **labels}
    return found


def _volume_claims(inventory: Inventory, pods: Mapping[str, Pod]) -> dict[str, PersistentVolumeClaim]:
    """Return the claims, bound ones marked so, and those that ephemeral volumes make."""
    found = {key: _bound(claim) for key, claim in inventory.volume_claims.items()}
    for pod in pods.values():
        for volume in pod.spec.volumes:
            if volume.ephemeral is None or volume.ephemeral.volume_claim_template is None:
                continue
            name = f"{pod.name}-{volume.name}"
            spec = volume.ephemeral.volume_claim_template.spec
            owner = OwnerReference(
                api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True
            )
            metadata = ObjectMeta(name=name, namespace=pod.namespace, uid=f"pvc/{pod.namespace}/{name}")
            made = PersistentVolumeClaim(metadata=msgspec.structs.replace(metadata, owner_references=[owner]))
            if spec is not None:
                made = msgspec.structs.replace(made, spec=spec)
            found.setdefault(f"{pod.namespace}/{name}", made)
    return dict(sorted(found.items()))


def _bound(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    if not claim.spec.volume_name:
        return claim
    annotations = {"pv.kubernetes.io/bind-completed": "yes", **claim.metadata.annotations}
    return msgspec.structs.replace(
        claim,
        metadata=msgspec.structs.replace(claim.metadata, annotations=annotations),
        status=msgspec.structs.replace(claim.status, phase=claim.status.phase or "Bound"),
    )


# --- machines -------------------------------------------------------------------------------------------


def _views(inventory: Inventory, pods: Mapping[str, Pod], catalogues: Catalogues) -> tuple[NodeView, ...]:
    on_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods.values():
        if pod.spec.node_name and not is_terminal(pod):
            on_node[pod.spec.node_name].append(pod)
    by_name = {t.name: t for pool in sorted(catalogues) for t in catalogues[pool]}
    claims = {c.status.provider_id: c for _, c in sorted(inventory.claims.items()) if c.status.provider_id}
    nodes = [_completed(node, by_name) for _, node in sorted(inventory.nodes.items())]
    views = []
    taken = set()
    for node in nodes:
        claim = claims.get(node.spec.provider_id)
        if claim is None and known.NODEPOOL in node.metadata.labels:
            node = _registered(node)
            claim = _claim_for(node)
        elif claim is not None:
            taken.add(claim.name)
        views.append(_view(inventory, node, claim, on_node[node.name], None))
    for name, claim in sorted(inventory.claims.items()):
        if name not in taken and not claim.deleting:
            types = catalogues.get(claim.metadata.labels.get(known.NODEPOOL, ""), ())
            views.append(_view(inventory, None, claim, on_node[name], PlannedSize(claim, types)))
    return tuple(sorted(views, key=lambda view: view.name))


def _view(
    inventory: Inventory,
    node: Node | None,
    claim: NodeClaim | None,
    bound: Sequence[Pod],
    planned: PlannedSize | None,
) -> NodeView:
    csi_node = inventory.csi_nodes.get(node.name) if node is not None else None
    return view_of(
        node,
        claim,
        pods=bound,
        requests={pod_key(pod): requests(pod) for pod in bound},
        managed=claim is not None,
        marked=False,
        nominated_until=0.0,
        planned=planned,
        storage=Storage.of(csi_node),
    )


def _completed(node: Node, types: Mapping[str, InstanceType]) -> Node:
    """Return `node` with what its kubelet and the cloud would have written: host name, id, size, taint."""
    labels = {known.KUBERNETES_HOSTNAME: node.name, **node.metadata.labels}
    spec, status = node.spec, node.status
    if not spec.provider_id:
        spec = msgspec.structs.replace(spec, provider_id=f"plan:///{node.name}")
    if spec.unschedulable and not any(t.matches(_CORDONED) for t in spec.taints):
        spec = msgspec.structs.replace(spec, taints=[*spec.taints, _CORDONED])
    machine = types.get(labels.get(known.INSTANCE_TYPE, ""))
    allocatable, capacity = status.allocatable, status.capacity
    if machine is not None:
        as_labelled = Requirements.from_labels(labels)
        possible = [o for o in machine.offerings if not as_labelled.intersects(o.requirements)]
        machine = cautious([machine.bought_as(o) for o in possible]) if possible else machine
        allocatable = allocatable or dict(format_resources(machine.allocatable))
        capacity = capacity or dict(format_resources(machine.capacity))
    status = msgspec.structs.replace(
        status,
        allocatable=allocatable or capacity,
        capacity=capacity or allocatable,
        conditions=status.conditions or [_READY],
    )
    metadata = msgspec.structs.replace(node.metadata, labels=labels)
    return msgspec.structs.replace(node, metadata=metadata, spec=spec, status=status)


def _registered(node: Node) -> Node:
    labels = {**node.metadata.labels, known.REGISTERED: "true", known.INITIALIZED: "true"}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))


def _claim_for(node: Node) -> NodeClaim:
    """Return the claim of a node that says which pool it belongs to, and whose claim is not given."""
    empty = NodeClaim()
    return msgspec.structs.replace(
        empty,
        metadata=ObjectMeta(
            name=node.name,
            uid=f"nodeclaim/{node.name}",
            labels=node.metadata.labels,
            annotations=node.metadata.annotations,
            deletion_timestamp=node.metadata.deletion_timestamp,
        ),
        spec=msgspec.structs.replace(empty.spec, taints=node.spec.taints),
        status=msgspec.structs.replace(
            empty.status,
            provider_id=node.spec.provider_id,
            node_name=node.name,
            capacity=node.status.capacity,
            allocatable=node.status.allocatable,
            conditions=[Condition(type=type, status="True", reason=type) for type in _LIVE],
        ),
    )


# --- pools ----------------------------------------------------------------------------------------------


def _ready(inventory: Inventory, pool: NodePool) -> NodePool:
    """Return `pool` as ready, unless it says that it is not."""
    ready = conditions.get(pool.status.conditions, "Ready")
    if pool.static:
        inventory.note_once(
            f"NodePool/{pool.name}: keeps its replicas whatever the demand; buys nothing here"
        )
    if ready is not None:
        if ready.status != "True":
            why = ready.message or ready.reason or ready.status
            inventory.note_once(f"NodePool/{pool.name}: not ready ({why}); buys nothing here")
        return pool
    status = msgspec.structs.replace(
        pool.status,
        conditions=[*pool.status.conditions, Condition(type="Ready", status="True", reason="Ready")],
    )
    return msgspec.structs.replace(pool, status=status)


def _remaining(snapshot: Snapshot, pool: NodePool) -> Resources:
    """Return what is left of the pool's limits; machines on their way count as they are."""
    limits = resources_of(pool.spec.limits)
    if not limits:
        return {}
    used: Resources = {}
    for view in snapshot.nodes:
        if view.nodepool == pool.name and view.claim is not None and not view.marked_for_deletion:
            used = add(used, view.capacity)
    left = subtract(limits, {name: used.get(name, 0) for name in limits})
    return {name: max(0, amount) for name, amount in left.items()}
