"""Budgets, and which empty nodes go within them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis.karpenter import Budget, Disruption, NodePool
from karpenter.base.timestamps import parse_time
from karpenter.disruption.budgets import UNLIMITED, allowed
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.emptiness import empty_nodes, why_kept
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodeclaim, a_nodepool, a_pod, a_view

NOON = parse_time("2026-01-01T12:00:00Z")


def pool_with(*budgets: Budget, name: str = "default", after: str = "0s") -> NodePool:
    pool = a_nodepool(name)
    disruption = Disruption(budgets=list(budgets), consolidate_after=after)
    return replace(pool, spec=replace(pool.spec, disruption=disruption))


def view(name: str, *, consolidatable: bool = True) -> NodeView:
    claim = a_nodeclaim(name, conditions=["Consolidatable"] if consolidatable else [])
    return replace(a_view(name), claim=claim, managed=True)


def candidate(name: str, pool: NodePool, *, pods: int = 0, consolidatable: bool = True) -> Candidate:
    return Candidate(
        node=view(name, consolidatable=consolidatable),
        pool=pool,
        reschedulable=tuple(a_pod(f"{name}-{i}") for i in range(pods)),
        price=1.0,
    )


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ([], UNLIMITED),
        ([Budget(nodes="10%")], 2),
        ([Budget(nodes="5"), Budget(nodes="3")], 3),
        ([Budget(nodes="0", reasons=["Drifted"]), Budget(nodes="4")], 4),
        ([Budget(nodes="0", schedule="0 11 * * *", duration="2h")], 0),
        ([Budget(nodes="0", schedule="0 11 * * *", duration="1h")], UNLIMITED),
        ([Budget(nodes="0", schedule="0 12 * * *", duration="1h")], 0),
        ([Budget(nodes="5"), Budget(nodes="5", schedule="nonsense", duration="1h")], 0),
        ([Budget(nodes="5"), Budget(nodes="5", schedule="x", duration="1h", reasons=["Drifted"])], 0),
        ([Budget(nodes="5", schedule="0 12 * * *")], 0),
    ],
)
def test_allowed(budgets: list[Budget], expected: int) -> None:
    """The tightest active budget counts, percentages round up, anything unreadable allows nothing."""
    assert allowed(pool_with(*budgets), 11, "Empty", NOON) == expected


def test_why_kept() -> None:
    """A node stays with pods or a buffer's room on it, touched lately, or when its pool keeps its nodes."""
    pool = pool_with()
    assert why_kept(candidate("a", pool)) is None
    cases = {
        "notEmpty": candidate("a", pool, pods=1),
        "tooFresh": candidate("a", pool, consolidatable=False),
        "never": candidate("a", pool_with(after="Never")),
        "static": replace(candidate("a", pool), pool=a_nodepool("default", replicas=1)),
        "headroom": replace(candidate("a", pool), node=replace(view("a"), headroom_pods=1)),
    }
    for reason, case in cases.items():
        kept = why_kept(case)
        assert kept is not None
        assert kept.reason == reason


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans()), max_size=12),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 5)),
)
def test_never_more_than_the_budget(nodes: list[tuple[str, int, bool]], remaining: dict[str, int]) -> None:
    """Per pool, exactly as many empty nodes go as there are and the budget allows; none with pods."""
    candidates = [
        candidate(f"n{i}", pool_with(name=pool), pods=pods, consolidatable=ready)
        for i, (pool, pods, ready) in enumerate(nodes)
    ]
    command, kept = empty_nodes(candidates, remaining)
    chosen = command.candidates if command else ()
    assert all(c.empty for c in chosen)
    assert len(chosen) + len(kept) == len(candidates)
    for pool in "ab":
        fit = sum(1 for p, pods, ready in nodes if p == pool and not pods and ready)
        assert sum(c.pool.name == pool for c in chosen) == min(fit, remaining.get(pool, 0))
