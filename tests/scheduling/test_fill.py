"""What one new node is filled with."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from karpenter.scheduling.asks import Origin, Outline, needs_of
from karpenter.scheduling.classes import classify
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.packing import Choice, fill
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.topology import UNLIMITED, Topology
from karpenter.scheduling.waiting import Waiting
from karpenter.testing.builders import a_problem, an_instance_type, some_pods

CORES = 8
GROUPS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=4)
"""How many pods, of how many cores, and how many of them are put there first."""


@given(GROUPS)
def test_a_node_is_filled_up_and_never_over(groups: list[tuple[int, int, int]]) -> None:
    """It holds no more pods than wait, nor more than it has room for; whoever still waits does not fit."""
    pods = [
        pod
        for i, (count, cores, _) in enumerate(groups)
        for pod in some_pods(count, f"g{i}", cpu=str(cores), labels={"group": str(i)}, priority=i)
    ]
    problem = a_problem(pods, instance_types=[an_instance_type(cpu=str(CORES), memory="999Gi", pods="999")])
    topology, drives = Topology(problem), Drives.of(problem)
    classes = classify(problem, topology, drives)
    current = Pass(problem, topology, classes, drives, {})
    (space,) = current.spaces
    asks = []
    for index, each in enumerate(classes):
        wanted = current.axis.vector(each.requests)
        outline = Outline(each, wanted, needs_of(wanted), each.profile.on_nodes, most=UNLIMITED)
        ask = outline.ask(each.variants, each.pods, Origin(index, (), each.count))
        ask.index, ask.home = index, 0
        asks.append(ask)
    queue = Waiting(asks, topology.rules).behind(asks[0])
    first = {}
    for position, each in enumerate(classes):
        (_, _, wish) = groups[each.priority]
        first[position] = wish
    pattern = fill(space, topology, Choice(0, first), space.requirements, np.ones(1, np.bool_), queue)
    for ask in asks:
        held = pattern.counts.get(ask.index, 0)
        assert held <= ask.remaining
        if held < ask.remaining:
            assert (pattern.used + ask.wanted > space.room[0]).any()
    assert (pattern.used <= space.room[0]).all()
    assert (pattern.used == sum(ask.wanted * pattern.counts.get(ask.index, 0) for ask in asks)).all()
