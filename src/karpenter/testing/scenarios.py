"""Problems as scenario files (docs/reference/plan.md), for `karpenter plan` and the original's scheduler."""

from collections.abc import Mapping
from typing import Any

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import format_resources
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import PoolOffer, Problem
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView

_FROM_OFFERINGS = frozenset({known.ZONE, known.CAPACITY_TYPE})


def scenario_of(problem: Problem, name: str = "") -> dict[str, Any]:
    """Return `problem` as a scenario, as far as a scenario can say it.

    Volumes, budgets and what is held or nominated are left out; nodes are there, initialized and of the first
    pool unless their own pool is among the problem's.
    """
    types: dict[str, InstanceType] = {}
    for offer in problem.pools:
        types |= {t.name: t for t in offer.instance_types}
    pools = {offer.pool.name for offer in problem.pools}
    policies = {
        "preferencePolicy": "Respect" if problem.options.respect_preferences else "Ignore",
        "minValuesPolicy": "Strict" if problem.options.min_values_strict else "BestEffort",
    }
    pods = [_object(pod) for pod in problem.pods]
    running = [_running(pod, view) for view in problem.nodes for pod in view.pods]
    return {
        "name": name,
        "options": policies,
        "instanceTypes": [listed_type(types[each]) for each in sorted(types)],
        "nodePools": [_pool(offer) for offer in problem.pools],
        "namespaces": [
            {"metadata": {"name": each, "labels": labels}}
            for each, labels in sorted(problem.snapshot.namespaces.items())
        ],
        "daemonSets": [_daemon_set(pod) for pod in problem.snapshot.daemons],
        "nodes": [_node(view, pools) for view in problem.nodes],
        "pods": [*running, *pods],
    }


def listed_type(kind: InstanceType) -> dict[str, Any]:
    """Return an instance type in a scenario's terms."""
    return {
        "name": kind.name,
        "capacity": format_resources(kind.capacity),
        "overhead": {"kubeReserved": format_resources(kind.overhead)},
        "requirements": _expressions(kind.requirements),
        "offerings": [
            {
                "zone": o.zone,
                "capacityType": o.capacity_type,
                "price": o.price,
                "available": o.available,
                **(
                    {"capacityOverride": format_resources(o.capacity_override)} if o.capacity_override else {}
                ),
                **(
                    {"overheadOverride": format_resources(o.overhead_override)} if o.overhead_override else {}
                ),
            }
            for o in kind.offerings
        ],
    }


def _expressions(requirements: Requirements) -> list[dict[str, Any]]:
    return [
        {"key": spec.key, "operator": spec.operator, "values": list(spec.values)}
        for spec in requirements.to_specs()
        if spec.key not in _FROM_OFFERINGS
    ]


def _pool(offer: PoolOffer) -> dict[str, Any]:
    pool = _object(offer.pool)
    pool["spec"].pop("disruption", None)
    return {"metadata": {"name": offer.pool.name}, "spec": pool["spec"]}


def _daemon_set(pod: Pod) -> dict[str, Any]:
    template = _object(pod)
    labels = {"daemon": pod.metadata.name}
    return {
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def _node(view: NodeView, pools: set[str]) -> dict[str, Any]:
    pool = view.nodepool if view.nodepool in pools else min(pools)
    amounts = {k: v for k, v in view.allocatable.items() if k != "nodes"}
    return {
        "metadata": {"name": view.name, "labels": {**view.labels, known.NODEPOOL: pool}},
        "spec": {"taints": [_plain(taint) for taint in view.taints]},
        "status": {"capacity": format_resources(amounts), "allocatable": format_resources(amounts)},
    }


def _running(pod: Pod, view: NodeView) -> dict[str, Any]:
    found = _object(pod)
    found["spec"]["nodeName"] = view.name
    return found


def _object(obj: Any) -> dict[str, Any]:
    """Return an API object without what an API server fills in."""
    found: dict[str, Any] = _plain(obj)
    metadata = {
        k: v
        for k, v in found.get("metadata", {}).items()
        if k in ("name", "namespace", "labels", "annotations")
    }
    return {"metadata": metadata, "spec": found["spec"]}


def _plain(obj: Any) -> Any:
    """Return builtins without empty values, which mean the same as absent ones nearly everywhere."""
    return _pruned(msgspec.to_builtins(obj))


def _pruned(value: Any) -> Any:
    if isinstance(value, Mapping):
        pairs = {k: _pruned(v) for k, v in value.items()}
        return {k: v for k, v in pairs.items() if v not in (None, "", [], {}) or k in _MEANT_EMPTY}
    if isinstance(value, list):
        return [_pruned(v) for v in value]
    return value


_MEANT_EMPTY = frozenset({"namespaceSelector", "labelSelector"})
"""Fields where an empty object says something."""
