"""What budgets allow: percentages, schedules to the second, reasons, and what breaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis.karpenter import Budget, Disruption, NodePool
from karpenter.apis.meta import Condition
from karpenter.base.timestamps import format_time, parse_time
from karpenter.disruption.budgets import (
    UNLIMITED,
    PoolBudget,
    Reason,
    allowed,
    budget_problems,
    is_active,
    pool_budget,
)
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_nodeclaim, a_nodepool, a_view

NOON = parse_time("2026-01-01T12:00:00Z")  # a Thursday


def pool_with(*budgets: Budget) -> NodePool:
    pool = a_nodepool()
    return replace(pool, spec=replace(pool.spec, disruption=Disruption(budgets=list(budgets))))


@pytest.mark.parametrize(
    ("text", "nodes", "expected"),
    [
        ("10%", 0, 0),
        ("10%", 1, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("10%", 19, 2),
        ("33%", 3, 1),
        ("34%", 3, 2),
        ("99%", 100, 99),
        ("1%", 1000, 10),
        ("0%", 1000, 0),
        ("100%", 7, 7),
        ("0", 100, 0),
        ("5", 3, 5),
    ],
)
def test_percentages_round_up(text: str, nodes: int, expected: int) -> None:
    """A share of any nodes at all is at least one; a number is what it is."""
    assert allowed(pool_with(Budget(nodes=text)), nodes, "Empty", NOON) == expected


@given(st.integers(0, 100), st.integers(0, 5000))
def test_a_percentage_is_the_least_number_that_covers_it(share: int, nodes: int) -> None:
    """Never less than the share, never one more than needed; whole numbers stay exact."""
    found = allowed(pool_with(Budget(nodes=f"{share}%")), nodes, "Empty", NOON)
    assert found * 100 >= share * nodes
    assert (found - 1) * 100 < share * nodes
    assert found <= nodes


@pytest.mark.parametrize(
    ("schedule", "duration", "now", "active"),
    [
        ("0 12 * * *", "1h", "2026-01-01T11:59:59Z", False),
        ("0 12 * * *", "1h", "2026-01-01T12:00:00Z", True),
        ("0 12 * * *", "1h", "2026-01-01T12:59:59Z", True),
        ("0 12 * * *", "1h", "2026-01-01T13:00:00Z", False),  # the end is not part of the window
        ("0 23 * * *", "2h", "2026-01-02T00:59:59Z", True),  # over midnight
        ("0 23 * * *", "2h", "2026-01-02T01:00:00Z", False),
        ("*/30 * * * *", "31m", "2026-01-01T12:31:00Z", True),  # windows that overlap are one
        ("*/30 * * * *", "30m", "2026-01-01T12:30:00Z", True),  # the next begins where one ends
        ("@daily", "10m", "2026-01-01T00:09:59Z", True),
        ("@daily", "10m", "2026-01-01T00:10:00Z", False),
        ("@hourly", "1h", "2026-01-01T17:23:45Z", True),
        ("0 9 * * 1-5", "8h", "2026-01-01T10:00:00Z", True),  # Thursday
        ("0 9 * * 1-5", "8h", "2026-01-03T10:00:00Z", False),  # Saturday
        ("0 0 1 1 *", "24h", "2026-01-01T23:59:59Z", True),
        ("0 0 29 2 *", "1h", "2026-02-28T00:30:00Z", False),
    ],
)
def test_windows(schedule: str, duration: str, now: str, active: bool) -> None:
    """A budget counts from the schedule's time, in UTC, for its duration, the end excluded."""
    budget = Budget(nodes="0", schedule=schedule, duration=duration)
    assert is_active(budget, parse_time(now)) is active
    assert allowed(pool_with(budget), 10, "Empty", parse_time(now)) == (0 if active else UNLIMITED)


@given(st.integers(0, 86400 * 400), st.integers(1, 23))
def test_a_daily_window_lasts_exactly_its_duration(offset: int, hours: int) -> None:
    """Whatever the day: active in the first `hours` of it and in no other second."""
    now = NOON + offset
    midnight = now - now % 86400
    budget = Budget(nodes="0", schedule="@daily", duration=f"{hours}h")
    assert is_active(budget, now) is (now - midnight < hours * 3600), format_time(now)


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        (Budget(nodes="5", schedule="nonsense", duration="1h"), "nonsense"),
        (Budget(nodes="5", schedule="61 * * * *", duration="1h"), "61"),
        (Budget(nodes="5", schedule="@daily", duration="soon"), "soon"),
        (Budget(nodes="5", schedule="@daily"), "schedule and duration go together"),
        (Budget(nodes="5", duration="1h"), "schedule and duration go together"),
        (Budget(nodes="many"), "nodes 'many' is neither a number nor a percentage"),
        (Budget(nodes="many%"), "nodes 'many%' is neither a number nor a percentage"),
        (Budget(nodes=""), "nodes '' is neither"),
        (Budget(nodes="-1"), "nodes '-1' is neither"),
        (Budget(nodes="-1%"), "nodes '-1%' is neither"),
    ],
)
def test_what_cannot_be_read_allows_nothing(budget: Budget, problem: str) -> None:
    """One broken budget closes the pool for every reason, and the problem names its place."""
    pool = pool_with(Budget(nodes="100%"), replace(budget, reasons=["Drifted"]))
    for reason in ("Empty", "Drifted", "Underutilized"):
        assert allowed(pool, 100, reason, NOON) == 0
    (found,) = budget_problems(pool, NOON)
    assert found.startswith("spec.disruption.budgets[1]: ")
    assert problem in found


@pytest.mark.parametrize(("reason", "expected"), [("Empty", 4), ("Drifted", 1), ("Underutilized", 2)])
def test_budgets_for_reasons(reason: Reason, expected: int) -> None:
    """A budget without reasons is for all; the tightest for a reason counts."""
    pool = pool_with(
        Budget(nodes="4"),
        Budget(nodes="1", reasons=["Drifted"]),
        Budget(nodes="2", reasons=["Underutilized", "Drifted"]),
    )
    assert allowed(pool, 100, reason, NOON) == expected
    assert budget_problems(pool, NOON) == []


def test_an_empty_list_of_reasons_is_for_none() -> None:
    """As upstream: only a missing list means every reason."""
    assert allowed(pool_with(Budget(nodes="0", reasons=[])), 10, "Empty", NOON) == UNLIMITED


# --- pools ------------------------------------------------------------------------------------------------


def view(name: str, **changes: object) -> NodeView:
    return replace(a_view(name), **changes)


def not_ready(name: str) -> NodeView:
    found = a_view(name)
    assert found.node is not None
    down = replace(found.node.status, conditions=[Condition(type="Ready", status="Unknown", reason="x")])
    return replace(found, node=replace(found.node, status=down))


def test_a_pool_counts_its_own_initialized_nodes() -> None:
    """Others', foreign, uninitialized and ended nodes are no part of the total."""
    ended = a_nodeclaim("ended", conditions=["InstanceTerminating"])
    nodes = [
        *(view(f"n{i}") for i in range(4)),
        view("other", nodepool="other"),
        view("foreign", managed=False),
        view("young", initialized=False),
        view("ended", claim=ended, marked_for_deletion=True),
        view("claimless", claim=None),
    ]
    found = pool_budget(pool_with(Budget(nodes="50%")), nodes, "Empty", NOON)
    assert found == PoolBudget(allowed=2, disrupting=0)
    assert found.remaining == 2


def test_going_and_unready_nodes_use_the_budget_up() -> None:
    """Each counts once, whatever the reason, and never below nothing."""
    nodes = [view("a"), view("b", marked_for_deletion=True), not_ready("c"), view("d", node=None)]
    for reason in ("Empty", "Drifted"):
        found = pool_budget(pool_with(Budget(nodes="50%")), nodes, reason, NOON)
        assert (found.allowed, found.disrupting, found.remaining) == (2, 3, 0)
