"""One machine as decisions see it, worked out from its Node, its NodeClaim and its pods."""

from collections.abc import Mapping, Sequence

from karpenter.apis import labels
from karpenter.apis.conditions import is_true
from karpenter.apis.core import IntOrString, Node, Pod, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.quantity import Resources, to_units, total
from karpenter.model import pods as podlib
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView
from karpenter.model.taints import is_ephemeral


def node_view(
    node: Node | None,
    claim: NodeClaim | None,
    pods: Sequence[Pod],
    *,
    marked_for_deletion: bool,
    nominated_until: float,
) -> NodeView:
    """Return the row of one machine (at least one of `node` and `claim` is given).

    `pods` are those bound to it and those planned for it, by key.
    """
    registered = _stage(node, claim, labels.REGISTERED)
    initialized = _stage(node, claim, labels.INITIALIZED)
    own_labels = _labels(node, claim, registered)
    return NodeView(
        name=node.name if node else _name(claim),
        provider_id=node.spec.provider_id if node else (claim.status.provider_id if claim else ""),
        node=node,
        claim=claim,
        nodepool=own_labels.get(labels.NODEPOOL, ""),
        labels=own_labels,
        taints=_taints(node, claim, registered, initialized),
        capacity={**_amounts(node, claim, initialized, "capacity"), "nodes": 1},
        allocatable=_amounts(node, claim, initialized, "allocatable"),
        pods=tuple(pods),
        requested=total(podlib.requests(pod) for pod in pods),
        daemon_requested=total(podlib.requests(pod) for pod in pods if podlib.is_daemon(pod)),
        managed=claim is not None,
        registered=registered,
        initialized=initialized,
        marked_for_deletion=marked_for_deletion or is_gone(node, claim),
        nominated_until=nominated_until,
    )


def is_gone(node: Node | None, claim: NodeClaim | None) -> bool:
    """Tell whether the machine is on its way out by the API's word."""
    if claim is not None:
        return claim.deleting or is_true(claim.status.conditions, "InstanceTerminating")
    return node is not None and node.deleting


def _name(claim: NodeClaim | None) -> str:
    assert claim is not None
    return claim.name


def _stage(node: Node | None, claim: NodeClaim | None, label: str) -> bool:
    """Tell whether a stage is reached; nodes that are not ours are through all of them."""
    if claim is None:
        return True
    return node is not None and node.metadata.labels.get(label) == "true"


def _labels(node: Node | None, claim: NodeClaim | None, registered: bool) -> dict[str, str]:
    """Return the claim's labels until the Node is registered, then the Node's."""
    if node is not None and (claim is None or registered):
        return node.metadata.labels
    assert claim is not None
    known = dict(claim.metadata.labels)
    wanted = Requirements.from_specs(claim.spec.requirements)
    for key in wanted:
        value = wanted.single_value(key)
        if value and key not in known:
            known[key] = value
    known.setdefault(labels.KUBERNETES_HOSTNAME, node.name if node else claim.name)
    return known


def _taints(
    node: Node | None, claim: NodeClaim | None, registered: bool, initialized: bool
) -> tuple[Taint, ...]:
    """Return the taints that count: startup and passing ones do not until the node is initialized."""
    if claim is not None and (node is None or not registered):
        taints = claim.spec.taints
    else:
        assert node is not None
        taints = node.spec.taints
    if claim is None or initialized:
        return tuple(taints)
    startup = claim.spec.startup_taints
    return tuple(
        taint
        for taint in taints
        if not is_ephemeral(taint) and not any(taint.matches(other) for other in startup)
    )


def _amounts(node: Node | None, claim: NodeClaim | None, initialized: bool, field: str) -> Resources:
    """Return capacity or allocatable.

    The Node's word counts once it is initialized. Before, kubelet reports zeros for what is not set up yet, so
    the claim's figures fill in; before launch only the claim's requests are known, which is exactly what was
    planned for it.
    """
    of_node = _units(getattr(node.status, field)) if node else {}
    if claim is None or (node is not None and initialized):
        return of_node
    of_claim = _units(getattr(claim.status, field)) or _units(claim.spec.resources.requests)
    return {**of_claim, **{name: amount for name, amount in of_node.items() if amount}}


def _units(quantities: Mapping[str, IntOrString]) -> Resources:
    return {name: to_units(name, str(quantity)) for name, quantity in quantities.items()}
