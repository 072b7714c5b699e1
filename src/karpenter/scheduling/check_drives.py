"""Attach limits: the volumes of all that a plan puts on a node can be attached there."""

from collections.abc import Iterator, Mapping, Sequence

from karpenter.apis.core import Pod
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling.attachments import (
    attached,
    attachments,
    learned_volume_limits,
    limits_of_node,
    limits_of_type,
    over_limit,
    union,
)

Volumes = Mapping[str, frozenset[str]]


def unattachable(problem: Problem, plan: Plan, pods: Mapping[str, Pod]) -> Iterator[str]:
    """Yield the nodes and claims that get more volumes of a driver than can be attached to them."""
    if not any(pod.spec.volumes for pod in pods.values()):
        return
    learned = learned_volume_limits(problem.snapshot)
    views = {n.name: n for n in problem.nodes}
    for name, keys in plan.placements.items():
        if brought := _brought(problem, keys, pods):
            limits = limits_of_node(views[name], learned)
            if wrong := over_limit(attached(views[name], problem.snapshot), brought, limits):
                yield f"node {name}: {wrong}"
    types = {o.pool.name: {t.name: t for t in o.instance_types} for o in problem.pools}
    for number, claim in enumerate(plan.claims):
        if brought := _brought(problem, claim.pods, pods):
            for name in claim.instance_types:
                if wrong := over_limit({}, brought, limits_of_type(types[claim.pool.name][name], learned)):
                    yield f"claim {number}: {name} {wrong}"


def _brought(problem: Problem, keys: Sequence[str], pods: Mapping[str, Pod]) -> Volumes:
    return union(attachments(pods[key], problem.snapshot) for key in keys if pods[key].spec.volumes)
