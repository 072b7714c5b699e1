"""May this pod run on a node with these labels and taints? From its own spec, as kube-scheduler reads it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from karpenter.apis import labels as known
from karpenter.apis.core import Pod, Taint
from karpenter.apis.meta import SelectorRequirement
from karpenter.base.quantity import Resources
from karpenter.model.pods import (
    has_dra_requirements,
    host_ports,
    pod_key,
    ports_conflict,
    requests,
    term_expressions,
)
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.model.taints import untolerated

Labels = Mapping[str, str]
Port = tuple[str, int, str]
Load = Sequence[tuple[Pod, int]]
"""Pods of one node: each with the number of those that are like it, itself among them."""


def labels_of(node: NodeView) -> Labels:
    """Return what pods may select an existing node by, its name as a field among them."""
    name = {known.NODE_NAME_FIELD: node.name} if node.node is not None else {}
    return {known.KUBERNETES_HOSTNAME: node.name, **node.labels, **name}


def unfit(pod: Pod, here: Labels, node_taints: Sequence[Taint], snapshot: Snapshot) -> Iterator[str]:
    """Yield why a node with these labels and taints is not one for `pod`."""
    for text in unsupported(pod):
        yield f"{pod_key(pod)}: {text}"
    for taint in hard_taints(node_taints, pod):
        yield f"{pod_key(pod)} does not tolerate {taint}"
    if not selected(pod, here) or not volumes_reach(pod, here, snapshot):
        yield f"{pod_key(pod)} does not accept its labels"


def unsupported(pod: Pod) -> Iterator[str]:
    """Yield the demands that no plan honours: whoever has one must have been refused."""
    if has_dra_requirements(pod):
        yield "resource claims"


def hard_taints(node_taints: Iterable[Taint], pod: Pod) -> list[Taint]:
    """Return the taints that keep `pod` away; a PreferNoSchedule taint keeps nobody away."""
    hard = [t for t in node_taints if t.effect != "PreferNoSchedule"]
    return untolerated(hard, pod.spec.tolerations)


def refuses(daemon: Pod, node_taints: Iterable[Taint]) -> bool:
    """Tell whether a daemon stays off nodes with these taints."""
    return bool(hard_taints(node_taints, daemon))


def _terms(pod: Pod) -> list[list[SelectorRequirement]] | None:
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return None if required is None else [term_expressions(t) for t in required.node_selector_terms]


def ways(pod: Pod) -> list[Requirements]:
    """Return what a node must be for `pod` to select it: one of these. None: no node will do."""
    selector = Requirements.from_labels(pod.spec.node_selector)
    terms = _terms(pod)
    if terms is None:
        return [selector]
    return [selector.merge(Requirements.from_specs(term)) for term in terms if term]


def mentioned(pod: Pod, snapshot: Snapshot) -> Iterator[str]:
    """Yield the label keys on which it depends whether `pod` accepts a node."""
    yield from pod.spec.node_selector
    for term in _terms(pod) or ():
        yield from (e.key for e in term)
    for terms in _volume_terms(pod, snapshot):
        yield from (e.key for term in terms for e in term)


def selected(pod: Pod, here: Labels) -> bool:
    """Node selector and required node affinity, as kube-scheduler reads them."""
    if any(_label(here, key) != value for key, value in pod.spec.node_selector.items()):
        return False
    terms = _terms(pod)
    return terms is None or any(term and all(_holds(e, here) for e in term) for term in terms)


def _label(here: Labels, key: str) -> str | None:
    return here.get(known.ALIASES.get(key, key), here.get(key))


def _holds(expression: SelectorRequirement, here: Labels) -> bool:
    value = _label(here, expression.key)
    values = expression.values or []
    match expression.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.lstrip("-").isdigit():
        return False
    number, bound = int(value), int(values[0])
    match expression.operator:
        case "Gt":
            return number > bound
        case "Gte":
            return number >= bound
        case "Lt":
            return number < bound
        case "Lte":
            return number <= bound
    raise ValueError(f"operator {expression.operator!r} is unknown")


def _volume_terms(pod: Pod, snapshot: Snapshot) -> Iterator[list[list[SelectorRequirement]]]:
    """Yield, for each volume of `pod` that is tied to places, the alternatives of which one must hold."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            name = f"{pod.name}-{volume.name}"
        else:
            continue
        claim = snapshot.volume_claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            continue
        bound = snapshot.volumes.get(claim.spec.volume_name)
        if bound is not None:
            affinity = bound.spec.node_affinity
            local = bound.spec.local is not None or bound.spec.host_path is not None
            if affinity is not None and affinity.required is not None:
                yield [
                    [e for e in t.match_expressions if not (local and e.key == known.KUBERNETES_HOSTNAME)]
                    for t in affinity.required.node_selector_terms
                ]
            continue
        storage_class = snapshot.storage_classes.get(claim.spec.storage_class_name or "")
        if bound is None and storage_class is not None and storage_class.allowed_topologies:
            yield [
                [
                    SelectorRequirement(key=e.key, operator="In", values=e.values)
                    for e in t.match_label_expressions
                ]
                for t in storage_class.allowed_topologies
            ]


def volumes_reach(pod: Pod, here: Labels, snapshot: Snapshot) -> bool:
    """Tell whether every volume of `pod` can be used from a node with these labels."""
    return all(
        any(all(_holds(e, here) for e in term) for term in terms) for terms in _volume_terms(pod, snapshot)
    )


def port_clashes(load: Load, others: Sequence[Pod]) -> Iterator[str]:
    """Yield the pairs on one node, one of them of `load` at least, that want the same host port."""
    ours = [(pod_key(p), host_ports(p), count) for p, count in load]
    ours = [(key, ports, count) for key, ports, count in ours if ports]
    if not ours:
        return
    for (left, left_ports, _), (right, right_ports, _) in combinations(ours, 2):
        if _same_port(left_ports, right_ports):
            yield f"{left} and {right} want the same host port"
    for key, ports, count in ours:
        if count > 1:
            yield f"{count} pods like {key} want the same host port"
        for other in others:
            if pod_key(other) != key and _same_port(ports, host_ports(other)):
                yield f"{key} and {pod_key(other)} want the same host port"


def _same_port(left: frozenset[Port], right: frozenset[Port]) -> bool:
    return any(ports_conflict(a, b) for a in left for b in right)


def total_requests(load: Load) -> Resources:
    """Return what all pods of `load` ask for."""
    result: Resources = {}
    for pod, count in load:
        for name, amount in requests(pod).items():
            result[name] = result.get(name, 0) + amount * count
    return result
