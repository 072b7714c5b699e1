"""What machines for given pods cost at least, if all of them were bought anew."""

from collections.abc import Callable, Mapping

from karpenter.model.problem import Budget, Problem
from karpenter.scheduling.classes import classify
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.relaxation import Relaxation
from karpenter.scheduling.solver import spender
from karpenter.scheduling.topology import Topology


def least_cost(
    problem: Problem,
    budget: Budget,
    *,
    monotonic: Callable[[], float] | None = None,
    spoken_for: Mapping[str, int] | None = None,
) -> float:
    """Return the USD per hour below which no new machines for the pods of `problem` can be had.

    Pods that no machine on sale can take count nothing, nor do those that fit on `problem.nodes`. The budget
    is for making the bound high. `spoken_for` says, by instance type, how many machines there are already
    that may have used up what there is only so much of.

    Raises:
        ValueError: when a quantity or a requirement in the problem cannot be read.
    """
    topology, drives = Topology(problem), Drives.of(problem)
    classes = classify(problem, topology, drives)
    empty = Pass(problem, topology, classes, drives, {})
    relaxation = Relaxation(
        empty.spaces,
        empty.nodes,
        empty.free_before,
        empty.axis,
        topology.rules,
        classes,
        [c.count for c in classes],
        spoken_for or {},
    )
    return relaxation.prove(spender(budget, monotonic))[0]
