"""Objects for tests and examples, in one line each: sensible defaults, only what matters is said.

Everything is deterministic: a uid follows from the name, times from arguments.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import (
    Affinity,
    Container,
    ContainerPort,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    Toleration,
)
from karpenter.apis.karpenter import (
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodeClaimTemplateMeta,
    NodeClaimTemplateSpec,
    NodeClassRef,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    RequirementSpec,
    ResourceRequests,
)
from karpenter.apis.meta import Condition, ObjectMeta, OwnerReference, SelectorRequirement
from karpenter.base.quantity import Resources, resources_of, total
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.pods import is_daemon, pod_key, requests
from karpenter.model.problem import PoolOffer, Problem, SolveOptions
from karpenter.model.requirements import Requirement, Requirements
from karpenter.model.snapshot import NodeView, Snapshot

EPOCH = "2026-01-01T00:00:00Z"
"""When built objects were created, unless said otherwise."""

NODE_CLASS = NodeClassRef(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")

Expression = tuple[str, str, Sequence[str]]
"""A requirement in short: key, operator, values."""


def an_expression(key: str, operator: str, values: Sequence[str] = ()) -> SelectorRequirement:
    """Return one expression of a node selector term."""
    return SelectorRequirement(key=key, operator=operator, values=list(values))


def a_term(*expressions: Expression) -> NodeSelectorTerm:
    """Return a node selector term: all of `expressions`."""
    return NodeSelectorTerm(match_expressions=[an_expression(*e) for e in expressions])


def node_affinity(
    required: Iterable[NodeSelectorTerm] = (), preferred: Iterable[tuple[int, NodeSelectorTerm]] = ()
) -> Affinity:
    """Return a node affinity: one of `required`, and weighted preferences."""
    terms = list(required)
    return Affinity(
        node_affinity=NodeAffinity(
            required=NodeSelector(node_selector_terms=terms) if terms else None,
            preferred=[PreferredSchedulingTerm(weight=w, preference=t) for w, t in preferred],
        )
    )


def an_owner(kind: str, name: str = "owner", api_version: str = "apps/v1") -> OwnerReference:
    """Return a controller's owner reference."""
    return OwnerReference(
        api_version=api_version, kind=kind, name=name, uid=f"uid-{kind.lower()}-{name}", controller=True
    )


def a_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    cpu: str | None = "1",
    memory: str | None = "1Gi",
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    affinity: Affinity | None = None,
    tolerations: Iterable[Toleration] = (),
    host_ports: Iterable[int] = (),
    priority: int | None = None,
    owner: OwnerReference | None = None,
    node_name: str = "",
    phase: str | None = None,
    created: str = EPOCH,
    deleted: str | None = None,
    spec: Mapping[str, object] | None = None,
) -> Pod:
    """Return a pod with one container: unschedulable and pending, or running when it has a node.

    `requests` adds to `cpu` and `memory` (None leaves those out); `spec` replaces fields of the PodSpec.
    """
    amounts: dict[str, int | str] = {}
    if cpu is not None:
        amounts["cpu"] = cpu
    if memory is not None:
        amounts["memory"] = memory
    amounts.update(requests or {})
    pod_spec = PodSpec(
        node_name=node_name,
        node_selector=dict(node_selector or {}),
        affinity=affinity,
        tolerations=list(tolerations),
        containers=[
            Container(
                name="main",
                image="example.com/image:1",
                resources=ResourceRequirements(requests=amounts),
                ports=[ContainerPort(container_port=port, host_port=port) for port in host_ports],
            )
        ],
        priority=priority,
    )
    pending = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{namespace}-{name}",
            creation_timestamp=created,
            deletion_timestamp=deleted,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            owner_references=[owner] if owner else [],
        ),
        spec=msgspec.structs.replace(pod_spec, **dict(spec or {})),
        status=PodStatus(
            phase=phase or ("Running" if node_name else "Pending"), conditions=[] if node_name else [pending]
        ),
    )


def some_pods(count: int, name: str = "pod", **fields: object) -> list[Pod]:
    """Return `count` equal pods, `name-0000` and so on."""
    first = a_pod(name, **fields)  # type: ignore[arg-type]
    return [
        msgspec.structs.replace(
            first,
            metadata=msgspec.structs.replace(
                first.metadata, name=f"{name}-{i:04d}", uid=f"{first.metadata.uid}-{i:04d}"
            ),
        )
        for i in range(count)
    ]


def a_daemon(name: str = "daemon", **fields: object) -> Pod:
    """Return a pod of a DaemonSet, as it would run on a new node."""
    defaults: dict[str, object] = {"cpu": "100m", "memory": "100Mi", "namespace": "kube-system"}
    owner = an_owner("DaemonSet", name)
    return a_pod(name, owner=owner, **{**defaults, **fields})  # type: ignore[arg-type]


def a_nodepool(
    name: str = "default",
    *,
    requirements: Iterable[Expression | RequirementSpec] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    startup_taints: Iterable[Taint] = (),
    limits: Mapping[str, str] | None = None,
    weight: int | None = None,
    replicas: int | None = None,
    node_class: NodeClassRef = NODE_CLASS,
    expire_after: str = "720h",
    termination_grace_period: str | None = None,
    ready: bool = True,
) -> NodePool:
    """Return a NodePool that may buy anything, unless `requirements` say otherwise."""
    specs = [
        r if isinstance(r, RequirementSpec) else RequirementSpec(key=r[0], operator=r[1], values=list(r[2]))
        for r in requirements
    ]
    conditions = [Condition(type="Ready", status="True", reason="Ready")] if ready else []
    return NodePool(
        api_version="karpenter.sh/v1",
        kind="NodePool",
        metadata=ObjectMeta(name=name, uid=f"uid-nodepool-{name}", generation=1, creation_timestamp=EPOCH),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=NodeClaimTemplateMeta(
                    labels=dict(labels or {}), annotations=dict(annotations or {})
                ),
                spec=NodeClaimTemplateSpec(
                    requirements=specs,
                    node_class_ref=node_class,
                    taints=list(taints),
                    startup_taints=list(startup_taints),
                    expire_after=expire_after,
                    termination_grace_period=termination_grace_period,
                ),
            ),
            limits=dict(limits or {}),
            weight=weight,
            replicas=replicas,
        ),
        status=NodePoolStatus(conditions=conditions),
    )


def a_nodeclaim(
    name: str = "claim",
    *,
    nodepool: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    requirements: Iterable[Expression] = (),
    requests: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    startup_taints: Iterable[Taint] = (),
    provider_id: str = "",
    node_name: str = "",
    capacity: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    conditions: Iterable[str] = (),
    node_class: NodeClassRef = NODE_CLASS,
    created: str = EPOCH,
    deleted: str | None = None,
) -> NodeClaim:
    """Return a NodeClaim; `conditions` lists the types that are true (`Launched`, …)."""
    return NodeClaim(
        api_version="karpenter.sh/v1",
        kind="NodeClaim",
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-nodeclaim-{name}",
            labels={known.NODEPOOL: nodepool, **(labels or {})},
            annotations=dict(annotations or {}),
            creation_timestamp=created,
            deletion_timestamp=deleted,
            finalizers=[known.TERMINATION_FINALIZER],
        ),
        spec=NodeClaimSpec(
            requirements=[RequirementSpec(key=k, operator=o, values=list(v)) for k, o, v in requirements],
            resources=ResourceRequests(requests=dict(requests or {})),
            node_class_ref=node_class,
            taints=list(taints),
            startup_taints=list(startup_taints),
        ),
        status=NodeClaimStatus(
            provider_id=provider_id,
            node_name=node_name,
            capacity=dict(capacity or {}),
            allocatable=dict(allocatable or {}),
            conditions=[Condition(type=t, status="True", reason=t) for t in conditions],
        ),
    )


def a_node(
    name: str = "node",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    provider_id: str | None = None,
    capacity: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    ready: bool = True,
    unschedulable: bool = False,
    created: str = EPOCH,
) -> Node:
    """Return a Node of 4 cores, 16 GiB and 110 pods, ready."""
    size = dict(capacity or {"cpu": "4", "memory": "16Gi", "pods": "110"})
    return Node(
        api_version="v1",
        kind="Node",
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-node-{name}",
            labels={known.KUBERNETES_HOSTNAME: name, **(labels or {})},
            annotations=dict(annotations or {}),
            creation_timestamp=created,
        ),
        spec=NodeSpec(
            provider_id=f"kwok://{name}" if provider_id is None else provider_id,
            taints=list(taints),
            unschedulable=unschedulable,
        ),
        status=NodeStatus(
            capacity=dict(size),
            allocatable=dict(allocatable or size),
            conditions=[Condition(type="Ready", status="True" if ready else "False", reason="KubeletReady")],
        ),
    )


def an_offering(
    zone: str = "zone-a",
    capacity_type: str = known.CAPACITY_ON_DEMAND,
    price: float = 1.0,
    *,
    available: bool = True,
    labels: Mapping[str, str] | None = None,
) -> Offering:
    """Return one way to buy an instance type."""
    requirements = Requirements.from_labels(
        {known.ZONE: zone, known.CAPACITY_TYPE: capacity_type, **(labels or {})}
    )
    return Offering(requirements=requirements, price=price, available=available)


def an_instance_type(
    name: str = "medium",
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: str = "110",
    price: float | None = None,
    zones: Iterable[str] = ("zone-a", "zone-b"),
    capacity_types: Iterable[str] = (known.CAPACITY_ON_DEMAND,),
    offerings: Iterable[Offering] | None = None,
    arch: str = "amd64",
    labels: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
    overhead: Mapping[str, str] | None = None,
) -> InstanceType:
    """Return an instance type; without a `price` it costs 5 cents per core and 0.5 cents per GiB an hour.

    Spot is 40 % of the price. `extra` adds resources, `labels` single-valued requirements.
    """
    capacity = resources_of({"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})})
    if price is None:
        price = round(0.05 * capacity["cpu"] / 1000 + 0.005 * capacity["memory"] / 2**30, 6)
    if offerings is None:
        offerings = [
            an_offering(zone, ct, round(price * (0.4 if ct == known.CAPACITY_SPOT else 1.0), 6))
            for zone in zones
            for ct in capacity_types
        ]
    offered = tuple(offerings)
    requirements = Requirements.from_labels(
        {known.INSTANCE_TYPE: name, known.ARCH: arch, known.OS: "linux", **(labels or {})}
    ).add(
        Requirement.of(known.ZONE, "In", sorted({o.zone for o in offered})),
        Requirement.of(known.CAPACITY_TYPE, "In", sorted({o.capacity_type for o in offered})),
    )
    return InstanceType(
        name=name,
        requirements=requirements,
        offerings=offered,
        capacity=capacity,
        overhead=resources_of(dict(overhead or {})),
    )


def some_instance_types() -> list[InstanceType]:
    """Return a small catalogue: 2, 4, 8 and 16 cores, amd64, two zones, on-demand and spot."""
    both = (known.CAPACITY_ON_DEMAND, known.CAPACITY_SPOT)
    return [
        an_instance_type(f"general-{cores}", cpu=str(cores), memory=f"{4 * cores}Gi", capacity_types=both)
        for cores in (2, 4, 8, 16)
    ]


def a_view(
    name: str = "node",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    allocatable: Mapping[str, str] | None = None,
    pods: Iterable[Pod] = (),
    nodepool: str = "default",
    initialized: bool = True,
    marked_for_deletion: bool = False,
) -> NodeView:
    """Return a managed node of 4 cores, 16 GiB and 110 pods as a snapshot shows it, with `pods` on it."""
    size = dict(allocatable or {"cpu": "4", "memory": "16Gi", "pods": "110"})
    bound = tuple(sorted(pods, key=pod_key))
    node = a_node(name, labels=labels, taints=taints, allocatable=size)
    claim = a_nodeclaim(f"{name}-claim", nodepool=nodepool, provider_id=node.spec.provider_id, node_name=name)
    amounts: Resources = resources_of(size)
    return NodeView(
        name=name,
        provider_id=node.spec.provider_id,
        node=node,
        claim=claim,
        nodepool=nodepool,
        labels={**node.metadata.labels, known.NODEPOOL: nodepool},
        taints=tuple(taints),
        capacity={**amounts, "nodes": 1},
        allocatable=amounts,
        pods=bound,
        requested=total(requests(p) for p in bound),
        daemon_requested=total(requests(p) for p in bound if is_daemon(p)),
        managed=True,
        registered=True,
        initialized=initialized,
        marked_for_deletion=marked_for_deletion,
    )


def an_offer(
    pool: NodePool | None = None,
    instance_types: Iterable[InstanceType] | None = None,
    *,
    remaining: Mapping[str, str] | None = None,
) -> PoolOffer:
    """Return a pool with its catalogue; what is left of its limits follows from them unless given."""
    pool = pool or a_nodepool()
    types = some_instance_types() if instance_types is None else instance_types
    left = resources_of(pool.spec.limits if remaining is None else dict(remaining))
    return PoolOffer(pool=pool, instance_types=tuple(sorted(types, key=lambda t: t.name)), remaining=left)


def a_problem(
    pods: Iterable[Pod],
    *,
    pools: Iterable[PoolOffer | NodePool] | None = None,
    instance_types: Iterable[InstanceType] | None = None,
    nodes: Iterable[NodeView] = (),
    daemons: Iterable[Pod] = (),
    respect_preferences: bool = True,
    min_values_strict: bool = True,
    well_known_labels: frozenset[str] = known.WELL_KNOWN_LABELS,
) -> Problem:
    """Return a problem over `pods`, sorted as the state room would sort them."""
    types = some_instance_types() if instance_types is None else list(instance_types)
    given: list[PoolOffer | NodePool] = [a_nodepool()] if pools is None else list(pools)
    offers = [o if isinstance(o, PoolOffer) else an_offer(o, types) for o in given]
    # Two passes: by name descending, then (stable) by weight descending.
    offers.sort(key=lambda o: o.pool.name, reverse=True)
    offers.sort(key=lambda o: -(o.pool.spec.weight or 0))
    wanted = tuple(sorted(pods, key=pod_key))
    views = tuple(sorted(nodes, key=lambda n: n.name))
    return Problem(
        snapshot=Snapshot(
            taken_at=1_767_225_600.0,
            nodes=views,
            pending=wanted,
            nodepools=tuple(o.pool for o in offers),
            daemons=tuple(sorted(daemons, key=pod_key)),
        ),
        pods=wanted,
        nodes=tuple(n for n in views if not n.marked_for_deletion),
        pools=tuple(offers),
        options=SolveOptions(
            respect_preferences=respect_preferences,
            min_values_strict=min_values_strict,
            well_known_labels=well_known_labels,
        ),
    )
