"""What a pod needs, what it is, and what may be done to it: predicates by Karpenter's definitions."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Protocol

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import (
    Container,
    ContainerStatus,
    IntOrString,
    NodeSelectorTerm,
    Pod,
    ResourceRequirements,
    Volume,
)
from karpenter.apis.meta import SelectorRequirement
from karpenter.base.duration import parse_duration
from karpenter.base.quantity import Resources, add, maximum, resources_of, total
from karpenter.base.timestamps import parse_time
from karpenter.model import taints

STUCK_TERMINATING_SECONDS = 60.0
"""How long past its deletion time a pod still counts as going by itself."""

_EVICTION_COST_LIMIT = 10.0
_DELETION_COST_SCALE = 2.0**27
_PRIORITY_SCALE = 2.0**25


def pod_key(pod: Pod) -> str:
    """Return `namespace/name`."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def volume_claim_key(pod: Pod, volume: Volume) -> str:
    """Return `namespace/name` of the PersistentVolumeClaim behind one of the pod's volumes, or nothing.

    The claim of a generic ephemeral volume is called after the pod and the volume.
    """
    if volume.persistent_volume_claim is not None:
        return f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
    return f"{pod_key(pod)}-{volume.name}" if volume.ephemeral is not None else ""


# --- where it wants to run ------------------------------------------------------------------------------


def term_expressions(term: NodeSelectorTerm) -> list[SelectorRequirement]:
    """Return all that a node selector term asks for: of labels, and of fields as if they were labels.

    The only field that `matchFields` may name is `metadata.name`, the node's name.
    """
    return [*term.match_expressions, *term.match_fields]


def node_names(pod: Pod) -> frozenset[str] | None:
    """Return the nodes that `pod` names by `matchFields`, of which it needs one; None if it takes others.

    Empty when its terms contradict themselves.
    """
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if required is None:
        return None
    names: set[str] = set()
    for term in required.node_selector_terms:
        if not term_expressions(term):
            continue  # matches no node
        listed = [
            frozenset(field.values or ())
            for field in term.match_fields
            if field.key == labels.NODE_NAME_FIELD and field.operator == "In"
        ]
        if not listed:
            return None
        excluded = [f.values or () for f in term.match_fields if f.operator == "NotIn"]
        names.update(frozenset.intersection(*listed).difference(*excluded))
    return frozenset(names)


# --- resources ------------------------------------------------------------------------------------------


def requests(pod: Pod) -> Resources:
    """Return what `pod` takes of a node: its effective requests, and `pods: 1`.

    Sidecars add up with the containers; ordinary init containers count by their maximum; pod-level requests
    replace the sum; overhead comes on top. While a resize in place is under way the larger amount counts;
    one that the node can never grant does not count.
    """
    infeasible = any(
        c.type == "PodResizePending" and c.status == "True" and c.reason == "Infeasible"
        for c in pod.status.conditions
    )
    statuses = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}

    def counted(container: Container) -> Resources:
        status = statuses.get(container.name)
        return _while_resized(container.resources, status or _NO_STATUS, infeasible)

    amounts = _aggregate(
        pod,
        [counted(c) for c in pod.spec.containers],
        # An ordinary init container has run by the time of a resize: its status says nothing about the pod.
        [
            counted(c) if _is_sidecar(c) else resources_of(c.resources.requests)
            for c in pod.spec.init_containers
        ],
    )
    if pod.spec.resources is not None:
        amounts.update(_pod_level(_while_resized(pod.spec.resources, pod.status, infeasible)))
    amounts = add(amounts, resources_of(pod.spec.overhead))
    amounts["pods"] = 1
    return amounts


def limits(pod: Pod) -> Resources:
    """Return the effective limits of `pod`, aggregated as its requests are.

    Overhead adds to the limits there are; it makes none.
    """
    amounts = _aggregate(
        pod,
        [resources_of(c.resources.limits) for c in pod.spec.containers],
        [resources_of(c.resources.limits) for c in pod.spec.init_containers],
    )
    if pod.spec.resources is not None:
        amounts.update(_pod_level(resources_of(pod.spec.resources.limits)))
    overhead = resources_of(pod.spec.overhead)
    return {name: amount + overhead.get(name, 0) for name, amount in amounts.items()}


class _Granted(Protocol):
    """What a status says about a resize in place, of a container or of a pod."""

    @property
    def resources(self) -> ResourceRequirements | None: ...
    @property
    def allocated_resources(self) -> dict[str, IntOrString]: ...


_NO_STATUS = ContainerStatus()


def _while_resized(wanted: ResourceRequirements, status: _Granted, infeasible: bool) -> Resources:
    """Return the requests that count while a resize may be under way: the larger of old and new."""
    asked = resources_of(wanted.requests)
    if status.resources is None:
        return asked
    granted = maximum(resources_of(status.resources.requests), resources_of(status.allocated_resources))
    return granted if infeasible else maximum(asked, granted)


def _is_sidecar(container: Container) -> bool:
    """Tell whether an init container goes on running beside the others."""
    return container.restart_policy == "Always"


def _pod_level(amounts: Resources) -> Resources:
    """Return those of `amounts` that can be set for a whole pod."""
    return {
        name: amount
        for name, amount in amounts.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _aggregate(pod: Pod, containers: Sequence[Resources], init_containers: Sequence[Resources]) -> Resources:
    """Return what the containers take together: their sum with all sidecars, or more while the pod starts."""
    amounts = total(containers)
    sidecars: Resources = {}
    peak: Resources = {}
    for container, one in zip(pod.spec.init_containers, init_containers, strict=True):
        if _is_sidecar(container):
            amounts = add(amounts, one)
            sidecars = add(sidecars, one)
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add(one, sidecars))
    return maximum(amounts, peak)


def with_default_requests(pod: Pod) -> Pod:
    """Return `pod` with limits standing in for missing requests, as the API server would default them.

    A pod-level limit stands in for the pod-level request only where no container asks for that resource.
    """
    spec = msgspec.structs.replace(
        pod.spec,
        containers=[_defaulted(c) for c in pod.spec.containers],
        init_containers=[_defaulted(c) for c in pod.spec.init_containers],
    )
    level = spec.resources
    if level is not None and level.limits:
        asked = _aggregate(
            pod,
            [resources_of(c.resources.requests) for c in spec.containers],
            [resources_of(c.resources.requests) for c in spec.init_containers],
        )
        missing = {name: q for name, q in level.limits.items() if name not in asked}
        spec = msgspec.structs.replace(
            spec, resources=msgspec.structs.replace(level, requests={**missing, **level.requests})
        )
    return msgspec.structs.replace(pod, spec=spec)


def _defaulted(container: Container) -> Container:
    resources = container.resources
    if not resources.limits.keys() - resources.requests.keys():
        return container
    merged = ResourceRequirements(
        requests={**resources.limits, **resources.requests}, limits=resources.limits, claims=resources.claims
    )
    return msgspec.structs.replace(container, resources=merged)


def host_ports(pod: Pod) -> frozenset[tuple[str, int, str]]:
    """Return the (protocol, port, address) that `pod` takes on its node, by any container.

    On the host's network every container port is one of the host.
    """
    return frozenset(
        (port.protocol or "TCP", number, port.host_ip or "0.0.0.0")
        for container in _containers(pod)
        for port in container.ports
        if (number := port.host_port or (port.container_port if pod.spec.host_network else 0))
    )


def ports_conflict(left: tuple[str, int, str], right: tuple[str, int, str]) -> bool:
    """Tell whether two pods on one node may not both have these ports."""
    everywhere = ("0.0.0.0", "::")
    return left[:2] == right[:2] and (left[2] == right[2] or left[2] in everywhere or right[2] in everywhere)


def _containers(pod: Pod) -> Iterator[Container]:
    return chain(pod.spec.containers, pod.spec.init_containers)


# --- what it is -----------------------------------------------------------------------------------------


def _owned_by(pod: Pod, api_version: str, kind: str) -> bool:
    return any(o.api_version == api_version and o.kind == kind for o in pod.metadata.owner_references)


def is_terminal(pod: Pod) -> bool:
    """It has run to its end, one way or the other."""
    return pod.status.phase in ("Failed", "Succeeded")


def is_terminating(pod: Pod) -> bool:
    """It has been deleted and may still be running."""
    return pod.deleting


def is_active(pod: Pod) -> bool:
    """It is to run, or running."""
    return not is_terminal(pod) and not is_terminating(pod)


def is_stuck_terminating(pod: Pod, now: float) -> bool:
    """It should have been gone for a minute (its deletion time already includes the grace period)."""
    deleted = pod.metadata.deletion_timestamp
    return deleted is not None and now - parse_time(deleted) > STUCK_TERMINATING_SECONDS


def is_daemon(pod: Pod) -> bool:
    """It belongs to a DaemonSet."""
    return _owned_by(pod, "apps/v1", "DaemonSet")


def is_statefulset(pod: Pod) -> bool:
    """It belongs to a StatefulSet."""
    return _owned_by(pod, "apps/v1", "StatefulSet")


def is_mirror(pod: Pod) -> bool:
    """It stands for a static pod of its node."""
    return _owned_by(pod, "v1", "Node")


def failed_to_schedule(pod: Pod) -> bool:
    """The scheduler has found no node for it."""
    return any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions)


def has_dra_requirements(pod: Pod) -> bool:
    """It asks for devices through resource claims."""
    return bool(pod.spec.resource_claims) or any(c.resources.claims for c in _containers(pod))


def is_provisionable(pod: Pod) -> bool:
    """It waits for a node, and new capacity could help."""
    return (
        failed_to_schedule(pod)
        and not pod.spec.node_name
        and not pod.status.nominated_node_name
        and not is_daemon(pod)
        and not is_mirror(pod)
    )


def is_reschedulable(pod: Pod) -> bool:
    """It needs another node if its own goes away."""
    return (
        (is_active(pod) or (is_statefulset(pod) and is_terminating(pod)))
        and not is_daemon(pod)
        and not is_mirror(pod)
    )


# --- what may be done to it -----------------------------------------------------------------------------


def do_not_disrupt_active(pod: Pod, now: float) -> bool:
    """Its `karpenter.sh/do-not-disrupt` annotation holds: `true`, or a duration since its start not yet over.

    Text that is neither is ignored; a pod without a start time is protected.
    """
    text = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT)
    if text is None:
        return False
    if text == "true":
        return True
    try:
        seconds = parse_duration(text)
    except ValueError:
        return False
    if seconds <= 0:
        return False
    return pod.status.start_time is None or now - parse_time(pod.status.start_time) < seconds


def asks_for_surge(pod: Pod) -> bool:
    """It has opted in to have a stand-in before a drain takes it."""
    return pod.metadata.annotations.get(labels.SURGE) == "true"


def expects_stand_in(pod: Pod) -> bool:
    """Its workload may bring up another before it goes, which then needs a node in its place."""
    return asks_for_surge(pod) and _owned_by(pod, "apps/v1", "ReplicaSet")


def tolerates_disruption_taint(pod: Pod) -> bool:
    """It tolerates the taint of nodes that go away, so it is left on them."""
    return not taints.tolerates((taints.DISRUPTED,), pod.spec.tolerations)


def is_evictable(pod: Pod, now: float) -> bool:
    """It may be evicted now."""
    return (
        is_active(pod)
        and not tolerates_disruption_taint(pod)
        and not is_mirror(pod)
        and not do_not_disrupt_active(pod, now)
    )


def is_drainable(pod: Pod, now: float) -> bool:
    """A drain has to wait for it."""
    return not tolerates_disruption_taint(pod) and not is_stuck_terminating(pod, now) and not is_mirror(pod)


def is_waiting_eviction(pod: Pod, now: float) -> bool:
    """A drain still has to see it go."""
    return not is_terminal(pod) and is_drainable(pod, now)


def is_disruptable(pod: Pod, now: float) -> bool:
    """It does not keep its node from being disrupted."""
    return not do_not_disrupt_active(pod, now) or not is_active(pod)


def eviction_cost(pod: Pod) -> float:
    """Return how much evicting it hurts: 1 by default, moved by deletion cost and priority, within ±10.

    A deletion cost that is not a number counts as none.
    """
    cost = 1.0
    text = pod.metadata.annotations.get(labels.POD_DELETION_COST)
    if text is not None:
        with suppress(ValueError):
            cost += float(text) / _DELETION_COST_SCALE
    if pod.spec.priority is not None:
        cost += pod.spec.priority / _PRIORITY_SCALE
    return max(-_EVICTION_COST_LIMIT, min(_EVICTION_COST_LIMIT, cost))
