"""What one pod asks of one node, as Kubernetes defines it: requests, selectors, taints, ports.

Pure functions over single objects; `filters` evaluates them for whole clusters at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from karpenter.apis.core import (
    Container,
    IntOrString,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from karpenter.apis.meta import LabelSelector, SelectorRequirement
from karpenter.base.quantity import Resources, add, maximum, to_units

NONZERO_DEFAULTS: Resources = {"cpu": 100, "memory": 200 << 20}
"""What scoring assumes of containers that request nothing (kube-scheduler's own figures)."""

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class HostPort(NamedTuple):
    """A port a pod takes on its node."""

    protocol: str
    port: int
    ip: str


def units(quantities: Mapping[str, IntOrString]) -> Resources:
    """Return a resource list in scheduler units."""
    return {name: to_units(name, str(quantity)) for name, quantity in quantities.items()}


def _container_requests(resources: ResourceRequirements, defaults: Resources) -> Resources:
    # A limit without a request is a request of the same size (API defaulting).
    return {**defaults, **units(resources.limits), **units(resources.requests)}


def pod_requests(spec: PodSpec, defaults: Resources | None = None) -> Resources:
    """Return what a node must have free for the pod, without the pod slot itself.

    Containers and sidecars run together; each ordinary init container runs beside the sidecars started
    before it; pod-level requests replace the sums of the resources they name; overhead comes on top.
    `defaults` stand in for resources a container does not mention.
    """
    base = defaults or {}
    running: Resources = {}
    for container in spec.containers:
        running = add(running, _container_requests(container.resources, base))
    sidecars: Resources = {}
    peak: Resources = {}
    for container in spec.init_containers:
        own = _container_requests(container.resources, base)
        if container.restart_policy == "Always":
            sidecars = add(sidecars, own)
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add(sidecars, own))
    result = maximum(add(running, sidecars), peak)
    if spec.resources is not None:
        result.update(units(spec.resources.limits) | units(spec.resources.requests))
    if spec.overhead:
        result = add(result, units(spec.overhead))
    return result


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of the pod's containers (sidecars included), sorted."""

    def taken(containers: Iterable[Container]) -> Iterable[HostPort]:
        for container in containers:
            for port in container.ports:
                number = port.host_port or (port.container_port if spec.host_network else 0)
                if number:
                    yield HostPort(port.protocol or "TCP", number, port.host_ip or "0.0.0.0")

    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    return tuple(sorted(set(taken([*spec.containers, *sidecars]))))


def ports_conflict(left: HostPort, right: HostPort) -> bool:
    """Tell whether two host ports cannot be had on one node."""
    if (left.protocol, left.port) != (right.protocol, right.port):
        return False
    return left.ip == right.ip or "0.0.0.0" in (left.ip, right.ip)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether one toleration covers one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], effects: Sequence[str]
) -> Taint | None:
    """Return the first taint of one of `effects` that nothing tolerates."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


def requirement_holds(requirement: SelectorRequirement, values: Mapping[str, str]) -> bool:
    """Tell whether one expression of a node or label selector holds for `values`."""
    present = requirement.key in values
    value = values.get(requirement.key, "")
    wanted = requirement.values or []
    match requirement.operator:
        case "In":
            return present and value in wanted
        case "NotIn":
            return not present or value not in wanted
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            if not present or len(wanted) != 1:
                return False
            try:
                left, right = int(value), int(wanted[0])
            except ValueError:
                return False
            return left > right if requirement.operator == "Gt" else left < right
    return False


def label_selector_holds(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector picks `labels`: none picks nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(k) == v for k, v in selector.match_labels.items()) and all(
        requirement_holds(e, labels) for e in selector.match_expressions
    )


def term_holds(term: NodeSelectorTerm, labels: Mapping[str, str], node_name: str) -> bool:
    """Tell whether a node selector term picks the node; an empty term picks none."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(requirement_holds(e, labels) for e in term.match_expressions) and all(
        requirement_holds(e, {"metadata.name": node_name}) for e in term.match_fields
    )


def node_selector_holds(selector: NodeSelector, labels: Mapping[str, str], node_name: str) -> bool:
    """Tell whether any of the selector's terms picks the node."""
    return any(term_holds(term, labels, node_name) for term in selector.node_selector_terms)


def affinity_holds(spec: PodSpec, labels: Mapping[str, str], node_name: str) -> bool:
    """Tell whether the node satisfies the pod's nodeSelector and required node affinity."""
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = node_affinity(spec)
    if affinity is None or affinity.required is None:
        return True
    return node_selector_holds(affinity.required, labels, node_name)


def node_affinity(spec: PodSpec) -> NodeAffinity | None:
    """Return the pod's node affinity, if it has one."""
    return spec.affinity.node_affinity if spec.affinity is not None else None
