"""Replacing drifted nodes of static pools, one for one, within budgets and limits."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.karpenter import NodePool
from karpenter.disruption.rounds import Decision
from karpenter.disruption.staticdrift import Headcount, StaticDrift, counted
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodepool, a_pod, an_instance_type
from karpenter.testing.rounds import NOW, a_disrupting_pool, a_machine, a_round

SMALL = an_instance_type("small", cpu="2", price=0.1)


def a_static_pool(name: str = "default", *, replicas: int = 3, limit: int | None = None) -> NodePool:
    limits = {"nodes": str(limit)} if limit is not None else {}
    return a_disrupting_pool(pool=a_nodepool(name, replicas=replicas, limits=limits))


def drifted(*names: str, pool: str = "default", **more: Any) -> list[NodeView]:
    return [a_machine(name, SMALL, "1", drifted=NOW, pool=pool, **more) for name in names]


def taken(decision: Decision) -> list[str]:
    return [c.node.name for command in decision.commands for c in command.candidates]


def codes(decision: Decision) -> dict[str, str]:
    return {v.node: v.code for v in decision.verdicts}


def test_each_drifted_node_gets_one_replacement() -> None:
    """By a command of its own, from the pool's template: no pods are planned for it."""
    decision = StaticDrift()(a_round(*drifted("a", "b", "c"), types=[SMALL], pools=[a_static_pool()]))
    assert taken(decision) == ["a", "b", "c"]
    for command in decision.commands:
        (claim,) = command.replacements
        assert (claim.pool.name, claim.pods, claim.requests, claim.instance_types) == ("default", (), {}, ())
        assert claim.price == 0.1
        assert command.method == "staticDrift"
    assert (decision.eligible, decision.verdicts) == (3, ())


@pytest.mark.parametrize(
    ("budget", "limit", "expected"),
    [
        (100, None, 3),
        (2, None, 2),
        (0, None, 0),
        (100, 3, 0),
        (100, 4, 1),
        (100, 5, 2),
        (100, 6, 3),
        (1, 5, 1),
    ],
)
def test_budgets_and_limits_bind(budget: int, limit: int | None, expected: int) -> None:
    """There has to be room for the replacement before the old node goes."""
    pools = [a_static_pool(limit=limit)]
    decision = StaticDrift()(a_round(*drifted("a", "b", "c"), types=[SMALL], pools=pools, remaining=budget))
    assert len(taken(decision)) == expected
    assert set(codes(decision).values()) <= {"budget", "limit"}
    assert len(taken(decision)) + len(decision.verdicts) == 3
    if "limit" in codes(decision).values():
        told = next(v for v in decision.verdicts if v.code == "limit")
        assert told.message == f'NodePool "default" has no room for a replacement: limits.nodes is {limit}'


def test_the_order_is_stated() -> None:
    """Without pods first, then the longest drifted, then by name."""
    views = [
        a_machine("a", SMALL, "1", drifted=NOW - 1),
        a_machine("b", SMALL, "1", drifted=NOW - 9),
        a_machine("c", SMALL, drifted=NOW),
        a_machine("d", SMALL, "1", drifted=NOW - 9),
    ]
    a_look = a_round(*views, types=[SMALL], pools=[a_static_pool(replicas=4)])
    assert taken(StaticDrift()(a_look)) == ["c", "b", "d", "a"]


def test_a_pool_that_has_to_shrink_waits() -> None:
    """Those too many go first, drifted ones perhaps among them."""
    a_look = a_round(*drifted("a", "b", "c"), types=[SMALL], pools=[a_static_pool(replicas=2)])
    decision = StaticDrift()(a_look)
    assert (decision.commands, set(codes(decision).values())) == ((), {"static"})
    assert decision.verdicts[0].message == 'NodePool "default" has 3 nodes for 2 replicas'


def test_zero_replicas_replace_nothing() -> None:
    """All of its nodes go for good."""
    a_look = a_round(*drifted("a"), types=[SMALL], pools=[a_static_pool(replicas=0)])
    assert StaticDrift()(a_look).commands == ()


def test_pools_do_not_share_their_limits() -> None:
    """Each has its own; dynamic ones are not for this method."""
    pools = [
        a_static_pool("p", replicas=2, limit=3),
        a_static_pool("q", replicas=1, limit=1),
        a_disrupting_pool("r"),
    ]
    views = [*drifted("p1", "p2", pool="p"), *drifted("q1", pool="q"), *drifted("r1", pool="r")]
    decision = StaticDrift()(a_round(*views, types=[SMALL], pools=pools))
    assert taken(decision) == ["p1"]
    assert codes(decision) == {"p2": "limit", "q1": "limit", "r1": "dynamic"}


def test_claims_of_a_moment_ago_count() -> None:
    """Whoever knows of them, and of room granted to others, is asked."""
    pools = [a_static_pool(replicas=2, limit=5)]
    a_look = a_round(*drifted("a", "b"), types=[SMALL], pools=pools)
    assert len(StaticDrift()(a_look).commands) == 2
    for count, expected in [
        (Headcount(staying=2, present=3, granted=1), 1),
        (Headcount(staying=2, present=2, granted=3), 0),
        (Headcount(staying=3, present=3), 0),
    ]:
        assert len(StaticDrift(lambda _, c=count: c)(a_look).commands) == expected  # type: ignore[misc]


def test_counting_claims_in_a_snapshot() -> None:
    """Those marked are replicas until their deletion."""
    views = [*drifted("a", "b", "c"), *drifted("x", pool="q")]
    leaving = replace(views[1], marked_for_deletion=True)
    claim = views[2].claim
    assert claim is not None
    meta = replace(claim.metadata, deletion_timestamp="2026-01-01T12:00:00Z")
    going = replace(views[2], marked_for_deletion=True, claim=replace(claim, metadata=meta))
    pools = [a_static_pool(), a_static_pool("q")]
    a_look = a_round(views[0], leaving, going, views[3], types=[SMALL], pools=pools)
    assert counted("default", a_look.snapshot) == Headcount(staying=2, present=3)


@pytest.mark.parametrize(
    ("leaving", "staying", "expected"),
    [
        (["zone-a", "zone-a"], ["zone-b", "zone-b"], ["zone-a", "zone-a"]),
        (["zone-a", "zone-a"], ["zone-b"], ["zone-a", "zone-a"]),
        (["zone-b"], ["zone-b", "zone-b"], ["zone-a"]),
        (["zone-a", "zone-a"], [], ["zone-a", "zone-b"]),
    ],
)
def test_replacements_keep_the_zones_even(
    leaving: list[str], staying: list[str], expected: list[str]
) -> None:
    """They come where the pool will have fewest, not where the cloud likes."""
    views = [a_machine(f"a{i}", SMALL, zone=zone, drifted=NOW) for i, zone in enumerate(leaving)]
    views += [a_machine(f"z{i}", SMALL, zone=zone) for i, zone in enumerate(staying)]
    decision = StaticDrift()(a_round(*views, types=[SMALL], pools=[a_static_pool(replicas=len(views))]))
    claims = [claim for command in decision.commands for claim in command.replacements]
    assert sorted(claim.requirements.single_value(labels.ZONE) for claim in claims) == expected


def test_a_guarded_node_is_left_alone() -> None:
    """Do-not-disrupt holds for static pools, too; a terminationGracePeriod overrules pods only."""
    held = a_pod("p", cpu="1", node_name="a", annotations={labels.DO_NOT_DISRUPT: "true"})
    for grace, expected in [(None, []), ("1h", ["a"])]:
        view = a_machine("a", SMALL, held, drifted=NOW, grace=grace)
        assert taken(StaticDrift()(a_round(view, types=[SMALL], pools=[a_static_pool()]))) == expected


def test_nothing_to_buy_replaces_nothing() -> None:
    """The old node stays until something can be had."""
    gone = replace(SMALL, offerings=tuple(replace(o, available=False) for o in SMALL.offerings))
    decision = StaticDrift()(a_round(*drifted("a"), types=[gone], pools=[a_static_pool()]))
    assert (decision.commands, codes(decision)) == ((), {"a": "noPlace"})


def test_nodes_as_they_should_be_stay() -> None:
    """Nothing to do."""
    decision = StaticDrift()(a_round(a_machine("a", SMALL), types=[SMALL], pools=[a_static_pool()]))
    assert (decision.commands, codes(decision), decision.settled) == ((), {"a": "notDrifted"}, True)
