"""Existing nodes: room, ports, taints and labels for the pods a plan puts there."""

from collections.abc import Iterator

from karpenter.base.quantity import Resources, subtract, total
from karpenter.model.pods import has_dra_requirements, requests
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.check_fit import (
    Labels,
    Load,
    labels_of,
    port_clashes,
    refuses,
    selected,
    total_requests,
    unfit,
)


def node_faults(problem: Problem, node: NodeView, load: Load) -> Iterator[str]:
    """Yield what is wrong with the pods that are meant for an existing node."""
    here = labels_of(node)
    for pod, _ in load:
        yield from unfit(pod, here, node.taints, problem.snapshot)
    asked = total_requests(load)
    left = subtract(subtract(node.allocatable, node.requested), _daemons_to_come(problem, node, here))
    if not all(amount <= left.get(resource, 0) for resource, amount in asked.items() if amount):
        yield f"pods ask for {asked}, free is {left}"
    yield from port_clashes(load, node.pods)


def _daemons_to_come(problem: Problem, node: NodeView, here: Labels) -> Resources:
    expected = total(
        requests(d)
        for d in problem.snapshot.daemons
        if not has_dra_requirements(d) and not refuses(d, node.taints) and selected(d, here)
    )
    missing = subtract(expected, node.daemon_requested)
    return {resource: max(0, amount) for resource, amount in missing.items()}
