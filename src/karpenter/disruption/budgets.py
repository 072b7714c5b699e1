"""Disruption budgets: how many nodes of a pool may be disrupted at once, now, for a reason.

The tightest active budget counts. A budget that cannot be evaluated allows nothing: disrupting less is safe.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from karpenter.apis.conditions import is_true
from karpenter.apis.karpenter import Budget, NodePool
from karpenter.base.cron import parse_cron
from karpenter.base.duration import parse_duration
from karpenter.model.snapshot import NodeView

Reason = Literal["Empty", "Underutilized", "Drifted"]

UNLIMITED = 2**31 - 1
"""What a budget that does not count allows (upstream's MaxInt32)."""


class PoolBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's budgets come to."""

    allowed: int
    """What the tightest active budget allows, before what is already going is taken off."""
    disrupting: int
    """Nodes that are going or not ready."""

    @property
    def remaining(self) -> int:
        return max(0, self.allowed - self.disrupting)


def pool_budget(pool: NodePool, nodes: Iterable[NodeView], reason: Reason, now: float) -> PoolBudget:
    """Return what `pool`'s budgets allow for `reason` at `now`, given all nodes of the cluster."""
    counted = [node for node in nodes if node.nodepool == pool.name and _counts(node)]
    disrupting = sum(1 for node in counted if node.marked_for_deletion or not _ready(node))
    return PoolBudget(allowed=allowed(pool, len(counted), reason, now), disrupting=disrupting)


def allowed(pool: NodePool, nodes: int, reason: Reason, now: float) -> int:
    """Return how many of `nodes` nodes the tightest active budget for `reason` allows."""
    budgets = pool.spec.disruption.budgets
    try:
        values = [(budget.reasons, _value(budget, nodes, now)) for budget in budgets]
    except ValueError:
        return 0  # whichever reason the broken budget is for
    return min((v for reasons, v in values if reasons is None or reason in reasons), default=UNLIMITED)


def budget_problems(pool: NodePool, now: float) -> list[str]:
    """Return what is wrong with budgets that cannot be evaluated, each with its place and fix."""
    problems = []
    for number, budget in enumerate(pool.spec.disruption.budgets):
        try:
            _value(budget, 100, now)
        except ValueError as error:
            problems.append(f"spec.disruption.budgets[{number}]: {error}")
    return problems


def is_active(budget: Budget, now: float) -> bool:
    """Tell whether the budget counts at `now`: always, or within `duration` of a time of its schedule (UTC).

    Raises:
        ValueError: when schedule or duration cannot be read.
    """
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None or budget.duration is None:
        raise ValueError("schedule and duration go together: give both or neither")
    began = parse_cron(budget.schedule).next_after(now - parse_duration(budget.duration))
    return began is not None and began <= now


def _value(budget: Budget, nodes: int, now: float) -> int:
    """Return what one budget allows; percentages are rounded up."""
    if not is_active(budget, now):
        return UNLIMITED
    text = budget.nodes
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"nodes {text!r} is neither a number nor a percentage")
    return int(number) if number == text else -(-nodes * int(number) // 100)


def _counts(node: NodeView) -> bool:
    """Tell whether a node is part of its pool's total: ours, initialized, and not past its end."""
    if not node.managed or not node.initialized or node.claim is None:
        return False
    return not is_true(node.claim.status.conditions, "InstanceTerminating")


def _ready(node: NodeView) -> bool:
    return node.node is not None and is_true(node.node.status.conditions, "Ready")
