"""What a planned claim becomes when it is launched at once: an initialized node of its cheapest offering.

For telling how a cluster looks after a command without carrying it out. The cloud may choose otherwise among
the types that the claim lists; the cheapest is what claims are priced by.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.annotations import PLANNED_LOT, PLANNED_PRICE
from karpenter.apis.core import Node, NodeSpec, NodeStatus, Pod
from karpenter.apis.karpenter import NodeClaim, NodeClaimSpec, NodeClaimStatus
from karpenter.apis.meta import Condition, ObjectMeta
from karpenter.base.quantity import fits, format_resources
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.problem import PlannedClaim
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.stock import STEP

_LIVE = ("Launched", "Registered", "Initialized", "Consolidatable")


class Launch(NamedTuple):
    """An instance type, and how it is bought."""

    kind: InstanceType
    offering: Offering
    price: float
    """USD per hour; as agreed where it depends on how many are bought."""


def launch_of(claim: PlannedClaim, types: Mapping[str, InstanceType]) -> Launch:
    """Return the cheapest available offering of the claim's types that meets it; ties by name, zone, kind.

    Raises:
        ValueError: there is none.
    """
    best: tuple[float, str, str, str, Offering] | None = None
    for name in claim.instance_types:
        kind = types[name]
        for offering in kind.offerings:
            if not offering.available or claim.requirements.intersects(offering.requirements):
                continue
            if offering.overrides and not fits(claim.requests, kind.bought_as(offering).allocatable):
                continue
            found = (offering.price, name, offering.zone, offering.capacity_type, offering)
            if best is None or found[:4] < best[:4]:
                best = found
        if best is not None and best[0] <= claim.price:
            break  # they are listed cheapest first
    if best is None:
        raise ValueError(f"a claim of NodePool {claim.pool.name} has no offering that meets it")
    price, name, _, _, offering = best
    return Launch(types[name], offering, claim.price if STEP in claim.lot else price)


def node_of(claim: PlannedClaim, launch: Launch, name: str, pods: Iterable[Pod]) -> NodeView:
    """Return the node `name` that the claim becomes, with `pods` on it; it may be consolidated at once.

    Daemons do not run there yet: the solver keeps room for them as on any node.
    """
    kind = launch.kind.bought_as(launch.offering)
    bare = _bare(claim, kind, launch.offering, name)
    labels = bare.metadata.labels
    template = claim.pool.spec.template
    return NodeView(
        name=name,
        provider_id=bare.spec.provider_id,
        node=bare,
        claim=_claim(claim, bare),
        nodepool=claim.pool.name,
        labels=labels,
        taints=tuple(template.spec.taints),
        capacity={**kind.capacity, "nodes": 1},
        allocatable=dict(kind.allocatable),
        volume_limits=dict(kind.volume_limits),
        managed=True,
        registered=True,
        initialized=True,
    ).with_pods(bound(pods, name))


def bound(pods: Iterable[Pod], node: str) -> list[Pod]:
    """Return `pods` as they are once they run on `node`."""
    running = []
    for pod in pods:
        spec, status = replace(pod.spec, node_name=node), replace(pod.status, phase="Running", conditions=[])
        running.append(replace(pod, spec=spec, status=status))
    return running


def _bare(claim: PlannedClaim, kind: InstanceType, offering: Offering, name: str) -> Node:
    ready = Condition(type="Ready", status="True", reason="KubeletReady")
    return Node(
        api_version="v1",
        kind="Node",
        metadata=ObjectMeta(
            name=name, uid=f"node/{name}", labels=_labels(claim, kind.requirements, offering, name)
        ),
        spec=NodeSpec(provider_id=f"plan:///{name}", taints=claim.pool.spec.template.spec.taints),
        status=NodeStatus(
            capacity=dict(format_resources(kind.capacity)),
            allocatable=dict(format_resources(kind.allocatable)),
            conditions=[ready],
        ),
    )


def _labels(claim: PlannedClaim, kind: Requirements, offering: Offering, name: str) -> dict[str, str]:
    """Return what the claim settles, what type and offering say, then the pool's own."""
    single: dict[str, str] = {}
    for requirements in (claim.requirements, kind, offering.requirements):
        single |= {key: value for key in requirements if (value := requirements.single_value(key))}
    template = claim.pool.spec.template
    reference = template.spec.node_class_ref
    return {
        **claim.requirements.labels(),
        **single,
        **template.metadata.labels,
        known.NODEPOOL: claim.pool.name,
        known.nodeclass_label(reference.group, reference.kind): reference.name,
        known.KUBERNETES_HOSTNAME: name,
        known.REGISTERED: "true",
        known.INITIALIZED: "true",
    }


def _claim(planned: PlannedClaim, node: Node) -> NodeClaim:
    template = planned.pool.spec.template
    annotations = {PLANNED_PRICE: f"{planned.price:.9f}"}
    if planned.lot:
        annotations[PLANNED_LOT] = planned.lot
    return NodeClaim(
        metadata=ObjectMeta(
            name=node.name,
            uid=f"nodeclaim/{node.name}",
            labels=node.metadata.labels,
            annotations=annotations,
        ),
        spec=NodeClaimSpec(
            requirements=planned.requirements.to_specs(),
            node_class_ref=template.spec.node_class_ref,
            taints=template.spec.taints,
            startup_taints=template.spec.startup_taints,
            expire_after=template.spec.expire_after,
            termination_grace_period=template.spec.termination_grace_period,
        ),
        status=NodeClaimStatus(
            provider_id=node.spec.provider_id,
            node_name=node.name,
            capacity=node.status.capacity,
            allocatable=node.status.allocatable,
            conditions=[Condition(type=type, status="True", reason=type) for type in _LIVE],
        ),
    )
