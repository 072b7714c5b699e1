"""Existing nodes: room, ports, taints and labels for the pods a plan puts there."""

from collections.abc import Iterator, Mapping

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import Resources, subtract, total
from karpenter.model.pods import has_dra_requirements, requests
from karpenter.model.problem import Plan, Problem
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.check_fit import Labels, port_clashes, refuses, selected, unfit


def node_faults(problem: Problem, plan: Plan, pods: Mapping[str, Pod]) -> Iterator[str]:
    """Yield what is wrong with the placements on existing nodes, each node by itself."""
    views = {n.name: n for n in problem.nodes}
    for name, keys in plan.placements.items():
        node = views.get(name)
        if node is None:
            yield f"node {name} is not there"
            continue
        placed = [pods[key] for key in keys]
        here = {known.KUBERNETES_HOSTNAME: name, **node.labels}
        for pod in placed:
            yield from (f"node {name}: {text}" for text in unfit(pod, here, node.taints, problem.snapshot))
        asked = total(requests(p) for p in placed)
        left = subtract(subtract(node.allocatable, node.requested), _daemons_to_come(problem, node, here))
        if not all(amount <= left.get(resource, 0) for resource, amount in asked.items() if amount):
            yield f"node {name}: pods ask for {asked}, free is {left}"
        yield from (f"node {name}: {text}" for text in port_clashes([*placed, *node.pods], placed))


def _daemons_to_come(problem: Problem, node: NodeView, here: Labels) -> Resources:
    expected = total(
        requests(d)
        for d in problem.snapshot.daemons
        if not has_dra_requirements(d) and not refuses(d, node.taints) and selected(d, here)
    )
    missing = subtract(expected, node.daemon_requested)
    return {resource: max(0, amount) for resource, amount in missing.items()}
