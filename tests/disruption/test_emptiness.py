"""Budgets, and which empty nodes go within them."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis.karpenter import Budget, Disruption, NodePool
from karpenter.base.timestamps import parse_time
from karpenter.disruption.budgets import UNLIMITED, allowed
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.emptiness import Emptiness, why_kept
from karpenter.disruption.rounds import Round
from karpenter.disruption.verdicts import Verdict
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodeclaim, a_nodepool, a_pod, a_view
from karpenter.testing.rounds import NOW, a_round

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


def look(candidates: Sequence[Candidate], remaining: Mapping[str, int]) -> Round:
    """A round with these candidates."""
    names = sorted({c.pool.name for c in candidates} | {"default"})
    empty = a_round(types=[], pools=[pool_with(name=name) for name in names])
    return empty._replace(candidates=tuple(candidates), remaining={"Empty": dict(remaining)})


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
    assert why_kept(candidate("a", pool), NOW) is None
    cases = {
        "notEmpty": candidate("a", pool, pods=1),
        "tooFresh": candidate("a", pool, consolidatable=False),
        "never": candidate("a", pool_with(after="Never")),
        "static": replace(candidate("a", pool), pool=a_nodepool("default", replicas=1)),
        "headroom": replace(candidate("a", pool), node=replace(view("a"), headroom_pods=1)),
    }
    for reason, case in cases.items():
        kept = why_kept(case, NOW)
        assert kept is not None
        assert kept.code == reason


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
    decision = Emptiness()(look(candidates, remaining))
    chosen = [c for command in decision.commands for c in command.candidates]
    kept = decision.verdicts
    assert decision.eligible == sum(1 for _, pods, ready in nodes if not pods and ready)
    assert decision.settled is not any(verdict.code == "budget" for verdict in kept)
    assert all(c.empty for c in chosen)
    assert len(chosen) + len(kept) == len(candidates)
    for pool in "ab":
        fit = sum(1 for p, pods, ready in nodes if p == pool and not pods and ready)
        assert sum(c.pool.name == pool for c in chosen) == min(fit, remaining.get(pool, 0))


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 5))
def test_the_choice_does_not_depend_on_the_order(order: list[str], remaining: int) -> None:
    """Where a budget binds, the dearest go first, ties by name, however nodes are listed."""
    prices = {"a": 1.0, "b": 3.0, "c": 3.0, "d": 0.0}
    pool = pool_with()
    candidates = [replace(candidate(name, pool), price=prices[name]) for name in order]
    decision = Emptiness()(look(candidates, {"default": remaining}))
    chosen = [c.node.name for command in decision.commands for c in command.candidates]
    assert chosen == ["b", "c", "a", "d"][:remaining]
    assert {entry.code for entry in decision.verdicts} == ({"budget"} if remaining < 4 else set())


def test_a_kept_node_says_what_it_costs_and_what_would_free_it() -> None:
    """A verdict is of use to whoever pays."""
    pool = pool_with(Budget(nodes="0"), after="1h")
    claim = a_nodeclaim("a")
    claim = replace(claim, status=replace(claim.status, last_pod_event_time="2026-01-01T11:30:00Z"))
    fresh = replace(candidate("a", pool, consolidatable=False), node=replace(view("a"), claim=claim))
    bound = candidate("b", pool)
    found = look([fresh, bound], {"default": 0})
    found = found._replace(snapshot=replace(found.snapshot, nodepools=(pool,)))
    assert [(v.node, v.code, v.saving, v.remedy) for v in Emptiness()(found).verdicts] == [
        (
            "a",
            "tooFresh",
            1.0,
            "wait until 2026-01-01T12:30:00Z, or lower consolidateAfter of nodepool/default",
        ),
        ("b", "budget", 1.0, "let the budgets of nodepool/default allow 1 for reason Empty"),
    ]


def test_an_objection_keeps_a_node() -> None:
    """Whoever knows better is asked about each node by itself; the others go."""
    pool = pool_with()

    def objection(command: Command) -> Verdict | None:
        (one,) = command.candidates
        if one.node.name == "b":
            return None
        return Verdict(node="", method=None, code="payback", message="was moved a moment ago")

    found = look([candidate("a", pool), candidate("b", pool)], {"default": 9})._replace(objection=objection)
    decision = Emptiness()(found)
    assert [c.node.name for c in decision.commands[0].candidates] == ["b"]
    assert [(v.node, v.method, v.code) for v in decision.verdicts] == [("a", "emptiness", "payback")]
