"""What a pod needs, what it is, and what may be done to it: predicates by Karpenter's definitions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

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
from karpenter.base.quantity import Resources, add, maximum, resources_of
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
    replace the sum; overhead comes on top. While a resize in place is under way the larger amount counts.
    """
    infeasible = any(
        c.type == "PodResizePending" and c.status == "True" and c.reason == "Infeasible"
        for c in pod.status.conditions
    )
    statuses = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    amounts = _aggregate(
        pod,
        [_container_requests(c, statuses.get(c.name), infeasible) for c in pod.spec.containers],
        [_container_requests(c, statuses.get(c.name), infeasible) for c in pod.spec.init_containers],
        pod.spec.resources.requests if pod.spec.resources else None,
    )
    amounts["pods"] = 1
    return amounts


def limits(pod: Pod) -> Resources:
    """Return the effective limits of `pod`, aggregated as its requests are."""
    return _aggregate(
        pod,
        [resources_of(c.resources.limits) for c in pod.spec.containers],
        [resources_of(c.resources.limits) for c in pod.spec.init_containers],
        pod.spec.resources.limits if pod.spec.resources else None,
    )


def _container_requests(container: Container, status: ContainerStatus | None, infeasible: bool) -> Resources:
    wanted = resources_of(container.resources.requests)
    if status is None or status.resources is None:
        return wanted
    granted = maximum(resources_of(status.resources.requests), resources_of(status.allocated_resources))
    return granted if infeasible else maximum(wanted, granted)


def _aggregate(
    pod: Pod,
    containers: Sequence[Resources],
    init_containers: Sequence[Resources],
    pod_level: Mapping[str, IntOrString] | None,
) -> Resources:
    amounts: Resources = {}
    for one in containers:
        amounts = add(amounts, one)
    sidecars: Resources = {}
    peak: Resources = {}
    for container, one in zip(pod.spec.init_containers, init_containers, strict=True):
        if container.restart_policy == "Always":
            amounts = add(amounts, one)
            sidecars = add(sidecars, one)
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add(one, sidecars))
    amounts = maximum(amounts, peak)
    for name, amount in resources_of(pod_level).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            amounts[name] = amount
    return add(amounts, resources_of(pod.spec.overhead)) if pod.spec.overhead else amounts


def with_default_requests(pod: Pod) -> Pod:
    """Return `pod` with limits standing in for missing requests, as the API server would default them."""
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            pod.spec,
            containers=[_defaulted(c) for c in pod.spec.containers],
            init_containers=[_defaulted(c) for c in pod.spec.init_containers],
        ),
    )


def _defaulted(container: Container) -> Container:
    resources = container.resources
    if not resources.limits.keys() - resources.requests.keys():
        return container
    merged = ResourceRequirements(
        requests={**resources.limits, **resources.requests}, limits=resources.limits, claims=resources.claims
    )
    return msgspec.structs.replace(container, resources=merged)


def host_ports(pod: Pod) -> frozenset[tuple[str, int, str]]:
    """Return the (protocol, port, address) that `pod` takes on its node, by any container."""
    return frozenset(
        (port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0")
        for container in _containers(pod)
        for port in container.ports
        if port.host_port
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
    return not is_active(pod) or not do_not_disrupt_active(pod, now)


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
