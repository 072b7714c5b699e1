"""Default topology spread: constraints of the cluster for pods that bring none, with selectors deduced.

As kube-scheduler does it: a pod is spread together with the pods that its Services and its controller select.
"""

from collections.abc import Iterable, Sequence

import msgspec

from karpenter.apis.core import Pod, ReplicationController, Service, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector, OwnerReference, SelectorRequirement
from karpenter.apis.workloads import ReplicaSet, StatefulSet

Owner = ReplicationController | ReplicaSet | StatefulSet
"""Controllers whose selector says which pods belong together."""

OWNER_KINDS: dict[tuple[str, str], type[Owner]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}
"""By apiVersion and kind, as owner references write them; others say nothing about spread."""


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return the owner that controls `pod`; other owners do not matter here."""
    return next((o for o in pod.metadata.owner_references if o.controller), None)


def with_default_spread(
    pod: Pod, constraints: Sequence[TopologySpreadConstraint], selector: LabelSelector | None
) -> Pod:
    """Return `pod` with the default `constraints` over the pods that `selector` selects.

    Unchanged when it has constraints of its own, or when nothing says which pods belong together with it.
    """
    if pod.spec.topology_spread_constraints or not constraints or selector is None:
        return pod
    spread = [msgspec.structs.replace(c, label_selector=selector) for c in constraints]
    spec = msgspec.structs.replace(pod.spec, topology_spread_constraints=spread)
    return msgspec.structs.replace(pod, spec=spec)


def deduced_selector(pod: Pod, services: Iterable[Service], owner: Owner | None) -> LabelSelector | None:
    """Return what selects the pods that belong together with `pod`; None when nothing says so.

    Labels of several Services add up, a later one's value replaces an earlier one's, and so does a
    ReplicationController's; the selector of a ReplicaSet or StatefulSet must hold besides (so that one that
    contradicts the Services selects nothing). `services` come by name; those that do not select `pod`, or are
    of another namespace, do not matter. `owner` is its controller, where that is known.
    """
    labels: dict[str, str] = {}
    expressions: list[SelectorRequirement] = []
    for service in services:
        if service.metadata.namespace == pod.metadata.namespace and _selects(service, pod):
            labels.update(service.spec.selector)
    if isinstance(owner, ReplicationController):
        labels.update(owner.spec.selector)
    elif owner is not None and owner.spec.selector is not None:
        selector = owner.spec.selector
        for key, value in selector.match_labels.items():
            if labels.setdefault(key, value) != value:
                expressions.append(SelectorRequirement(key=key, operator="In", values=[value]))
        expressions.extend(selector.match_expressions)
    if not labels and not expressions:
        return None
    return LabelSelector(match_labels=dict(sorted(labels.items())), match_expressions=expressions)


def _selects(service: Service, pod: Pod) -> bool:
    """Tell whether a Service sends traffic to `pod`; one without a selector leaves that to others."""
    wanted = service.spec.selector
    return bool(wanted) and all(pod.metadata.labels.get(key) == value for key, value in wanted.items())
