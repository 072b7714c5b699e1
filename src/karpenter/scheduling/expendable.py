"""Pods below the priority cut-off: they may use what there is, and nothing is ever bought for them.

They are placed last, on the nodes there are and in the room that everybody else leaves.
"""

from msgspec.structs import replace

from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, Problem
from karpenter.model.reasons import Refusal, Unschedulable

_HOPELESS = frozenset({"dra", "requirements", "volumes", "unsupported"})
"""Refusals that a higher priority would not change."""


def is_expendable(pod: Pod, cutoff: int | None) -> bool:
    """Tell whether the priority of `pod` is below the cut-off, if there is one."""
    return cutoff is not None and (pod.spec.priority or 0) < cutoff


def split(problem: Problem) -> tuple[Problem, tuple[Pod, ...]]:
    """Return `problem` without the pods that are expendable, and those."""
    cutoff = problem.options.expendable_below
    left = tuple(pod for pod in problem.pods if is_expendable(pod, cutoff))
    if not left:
        return problem, ()
    return replace(problem, pods=tuple(p for p in problem.pods if not is_expendable(p, cutoff))), left


def afterwards(problem: Problem, plan: Plan, expendable: tuple[Pod, ...]) -> Problem:
    """Return the question what room `expendable` pods find once `plan`, for the others, is carried out."""
    pods = {pod_key(pod): pod for pod in problem.pods}
    expected = {name: [pods[key] for key in keys] for name, keys in plan.placements.items()}
    snapshot = problem.snapshot
    return replace(
        problem,
        pods=expendable,
        pools=(),
        nodes=tuple(node.with_pods(expected.get(node.name, ())) for node in problem.nodes),
        snapshot=replace(
            snapshot, nodes=tuple(node.with_pods(expected.get(node.name, ())) for node in snapshot.nodes)
        ),
    )


def merged(plan: Plan, second: Plan, expendable: tuple[Pod, ...], cutoff: int) -> Plan:
    """Return one plan of both."""
    priorities = {pod_key(pod): pod.spec.priority or 0 for pod in expendable}
    placements = {
        name: tuple(sorted((*plan.placements.get(name, ()), *second.placements.get(name, ()))))
        for name in sorted(plan.placements.keys() | second.placements.keys())
    }
    refused = [*plan.unschedulable, *(_explained(u, priorities[u.pod], cutoff) for u in second.unschedulable)]
    return replace(
        plan,
        placements=placements,
        unschedulable=tuple(sorted(refused, key=lambda u: u.pod)),
        distrusted=(*plan.distrusted, *second.distrusted),
    )


def _explained(refused: Unschedulable, priority: int, cutoff: int) -> Unschedulable:
    if any(refusal.constraint in _HOPELESS for refusal in refused.refusals):
        return refused
    refusal = Refusal(
        place="",
        constraint="priority",
        message=f"no node has room, and none is bought for a priority below {cutoff} (it is {priority})",
        detail={"priority": priority, "cutoff": cutoff},
        remedy=f"give it priority {cutoff} or more, or lower --expendable-pods-priority-cutoff",
    )
    return replace(refused, refusals=(refusal,))
