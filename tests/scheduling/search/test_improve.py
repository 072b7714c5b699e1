"""The search for a cheaper plan, as its caller sees it."""

import numpy as np

from karpenter.scheduling.search import NodePattern, PackingProblem, improve


def test_a_node_that_is_too_large_is_replaced_by_the_cheapest_that_holds_its_pods() -> None:
    """The plan moves from a large node to a small one."""
    problem = PackingProblem(
        wanted=np.array([[2, 1]]),
        count=np.array([2]),
        most=np.array([100]),
        room=np.array([[64, 10], [4, 10]]),
        price=np.array([6.0, 0.5]),
        allowed=np.ones((1, 2), dtype=np.bool_),
        usage=np.zeros((2, 0), dtype=np.int64),
        remaining=np.zeros(0, dtype=np.int64),
    )
    found = improve(problem, [NodePattern(0, ((0, 2),), 1)], lambda: False)
    assert found.patterns == (NodePattern(1, ((0, 2),), 1),)
    assert found.cost == 0.5
    assert not found.unplaced.any()
