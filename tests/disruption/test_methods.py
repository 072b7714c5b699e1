"""What holds of every method, on random clusters."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.disruption.drift import Drift
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.multi import MultiNode
from karpenter.disruption.rounds import Policy, Round, Search
from karpenter.disruption.single import SingleNode
from karpenter.disruption.staticdrift import StaticDrift
from karpenter.disruption.validation import Validity, validated
from karpenter.disruption.waiting import unsettled
from karpenter.model.pods import pod_key
from karpenter.testing.builders import a_nodepool, a_pod, an_instance_type
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

BOTH = ("on-demand", "spot")
KINDS = [
    an_instance_type("small", cpu="2", price=0.1, capacity_types=BOTH),
    an_instance_type("medium", cpu="4", price=0.19, capacity_types=BOTH),
    an_instance_type("large", cpu="8", price=0.4, capacity_types=BOTH),
]
HELD = {labels.DO_NOT_DISRUPT: "true"}
CPUS = ["300m", "900m", "1900m"]


@st.composite
def machines(draw: st.DrawFn, name: str) -> Any:
    """A node of any kind, with pods that fit it."""
    kind = draw(st.sampled_from(KINDS))
    left, cpu = kind.capacity["cpu"] - 100, list[Any]()
    for size in draw(st.lists(st.sampled_from(CPUS), max_size=10)):
        if int(size[:-1]) <= left:
            left -= int(size[:-1])
            cpu.append(size)
    if draw(st.integers(0, 7)) == 0:
        cpu.append(a_pod(f"{name}-held", cpu="50m", memory="1Mi", node_name=name, annotations=HELD))
    return a_machine(
        name,
        kind,
        *cpu,
        pool=draw(st.sampled_from("pqs")),
        zone=draw(st.sampled_from(["zone-a", "zone-b"])),
        capacity_type=draw(st.sampled_from(BOTH)),
        drifted=draw(st.sampled_from([None, None, NOW - 60.0, NOW - 30.0])),
        consolidatable=draw(st.integers(0, 4)) > 0,
        touched=draw(st.sampled_from([None, NOW - 10.0, NOW - 7200.0])),
        grace=draw(st.sampled_from([None, None, "1h"])),
    )


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    """A cluster of up to six nodes in three pools, one of them static, with budgets and waiting pods."""
    policies = st.sampled_from(
        ["WhenEmpty", "WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced"]
    )
    pools = [
        a_disrupting_pool("p", policy=draw(policies), after="0s"),
        a_disrupting_pool("q", policy=draw(policies), after=draw(st.sampled_from(["0s", "1h", "Never"]))),
        a_disrupting_pool(pool=a_nodepool("s", replicas=draw(st.integers(0, 4)))),
    ]
    views = [draw(machines(f"n{i}")) for i in range(draw(st.integers(1, 6)))]
    waiting = [
        a_pod(f"w{i}", cpu=cpu) for i, cpu in enumerate(draw(st.lists(st.sampled_from(CPUS), max_size=2)))
    ]
    return a_round(
        *views,
        types=KINDS,
        pools=pools,
        pending=waiting,
        remaining={pool: draw(st.integers(0, 4)) for pool in "pqs"},
        policy=Policy(spot_to_spot=draw(st.booleans())),
    )


SEARCHES = [Emptiness, StaticDrift, Drift, MultiNode, SingleNode]


@pytest.mark.parametrize("kind", SEARCHES)
@settings(max_examples=40, deadline=None)
@given(a_round=rounds())
def test_no_method_does_harm(kind: type[Search], a_round: Round) -> None:
    """Only candidates go, each once, within budgets; every pod that can be moved has a place, on a node that
    may take it; what is told of the others is one reason each; and what was decided holds on second look."""
    decision = kind()(a_round)
    allowed = {c.name: c for c in (a_round.eventual if "Drift" in kind.__name__ else a_round.candidates)}
    taken = [c.name for command in decision.commands for c in command.candidates]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(allowed)
    told = [verdict.node for verdict in decision.verdicts]
    assert len(set(told)) == len(told)
    assert not set(told) & set(taken)
    assert all(verdict.message for verdict in decision.verdicts)
    if not taken:
        assert set(told) == {
            c.name for c in (a_round.eventual if "Drift" in kind.__name__ else a_round.candidates)
        }
    spent = Counter(allowed[name].pool.name for name in taken)
    for command in decision.commands:
        assert all(spent[pool] <= a_round.remaining[command.reason][pool] for pool in spent)
        assert_pods_have_places(a_round, command)
        assert validated(command, a_round) == Validity(command=command)


def assert_pods_have_places(a_round: Round, command: Any) -> None:
    """Check where the pods of a command's nodes go."""
    gone = {c.name for c in command.candidates}
    if command.method != "staticDrift":
        moving = {pod_key(pod) for c in command.candidates for pod in c.movable}
        planned = [key for claim in command.replacements for key in claim.pods]
        planned += [key for keys in command.placements.values() for key in keys]
        assert len(set(planned)) == len(planned)
        assert moving <= set(planned) or not moving
    if command.reason == "Underutilized":
        snapshot = a_round.snapshot
        closed = unsettled(snapshot.nodes, snapshot.nodepools, snapshot.taken_at)
        assert not set(command.placements) & (closed | gone)
        assert len(command.replacements) <= 1
        if command.replacements:
            assert command.sure_savings > 0
