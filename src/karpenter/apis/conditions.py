"""Status conditions with a root that sums up its dependents, as upstream's condition library keeps them.

`Ready` (the root) is True when every dependent is, False when one is, else Unknown; a dependent whose
observed generation is stale counts as Unknown. A condition's transition time moves only when its status does.
Everything is pure: lists of conditions in, lists out, times as epoch seconds.
"""

from collections.abc import Iterable

import msgspec

from karpenter.apis.meta import Condition, ConditionStatus
from karpenter.base.timestamps import format_time

AWAITING = "AwaitingReconciliation"
_AWAITING_MESSAGE = "object is awaiting reconciliation"


def get(conditions: Iterable[Condition], type: str) -> Condition | None:
    """Return the condition of `type`, if it is there."""
    return next((condition for condition in conditions if condition.type == type), None)


def is_true(conditions: Iterable[Condition], type: str) -> bool:
    """Tell whether the condition is there and True."""
    condition = get(conditions, type)
    return condition is not None and condition.status == "True"


def is_false(conditions: Iterable[Condition], type: str) -> bool:
    """Tell whether the condition is there and False."""
    condition = get(conditions, type)
    return condition is not None and condition.status == "False"


def is_unknown(conditions: Iterable[Condition], type: str) -> bool:
    """Tell whether the condition is absent or Unknown."""
    condition = get(conditions, type)
    return condition is None or condition.status == "Unknown"


class ConditionSet(msgspec.Struct, frozen=True, kw_only=True):
    """Which conditions a kind has: a root, and the dependents it sums up."""

    root: str = "Ready"
    dependents: tuple[str, ...]

    def initialise(
        self, conditions: Iterable[Condition], *, created: float, generation: int, now: float
    ) -> list[Condition]:
        """Return `conditions` with root and dependents present, Unknown where they were missing."""
        del now  # a first condition dates from the object's creation
        result = list(conditions)
        present = {condition.type for condition in result}
        result.extend(
            Condition(
                type=type,
                status="Unknown",
                reason=AWAITING,
                message=_AWAITING_MESSAGE,
                last_transition_time=format_time(created),
                observed_generation=generation,
            )
            for type in (*self.dependents, self.root)
            if type not in present
        )
        return self._ordered(result)

    def set(
        self,
        conditions: Iterable[Condition],
        type: str,
        status: ConditionStatus,
        reason: str = "",
        message: str = "",
        *,
        generation: int,
        now: float,
        created: float,
    ) -> list[Condition]:
        """Return `conditions` with one of them set and the root worked out anew.

        Without a reason, the condition's own name stands for it, as upstream's SetTrue does.
        """
        result = self.initialise(conditions, created=created, generation=generation, now=now)
        wanted = Condition(
            type=type,
            status=status,
            reason=reason or type,
            message=message,
            observed_generation=generation,
            last_transition_time=format_time(now),
        )
        result = _put(result, wanted, first=created if type in self.dependents else now)
        if type != self.root:
            result = _put(result, self._sum(result, generation, now), first=created)
        return self._ordered(result)

    def clear(self, conditions: Iterable[Condition], type: str) -> list[Condition]:
        """Return `conditions` without `type`.

        Raises:
            ValueError: for the root and its dependents, which are never absent.
        """
        if type == self.root or type in self.dependents:
            raise ValueError(f"condition {type} cannot be cleared: {self.root} depends on it")
        return [condition for condition in conditions if condition.type != type]

    def _sum(self, conditions: list[Condition], generation: int, now: float) -> Condition:
        by_type = {condition.type: condition for condition in conditions}
        current = [by_type[type] for type in self.dependents]
        unhealthy = [c for c in current if c.status != "True" or c.observed_generation != generation]
        status: ConditionStatus = "True"
        reason, message = self.root, ""
        if unhealthy:
            failed = any(c.status == "False" and c.observed_generation == generation for c in unhealthy)
            status, reason = (
                ("False", "UnhealthyDependents") if failed else ("Unknown", "ReconcilingDependents")
            )
            unhealthy.sort(key=lambda c: c.last_transition_time or "", reverse=True)
            message = ", ".join(
                f"{c.type}={c.status if c.observed_generation == generation else 'Unknown'}"
                for c in unhealthy
            )
        return Condition(
            type=self.root,
            status=status,
            reason=reason,
            message=message,
            observed_generation=generation,
            last_transition_time=format_time(now),
        )

    def _ordered(self, conditions: list[Condition]) -> list[Condition]:
        return sorted(conditions, key=lambda c: (c.type == self.root, c.last_transition_time or "", c.type))


def _put(conditions: list[Condition], wanted: Condition, *, first: float) -> list[Condition]:
    """Replace the condition of that type; its transition time stays while its status does."""
    old = get(conditions, wanted.type)
    if old is None:
        since: str | None = format_time(first)
    else:
        since = old.last_transition_time if old.status == wanted.status else wanted.last_transition_time
    new = msgspec.structs.replace(wanted, last_transition_time=since)
    return [condition for condition in conditions if condition.type != wanted.type] + [new]


NODECLAIM = ConditionSet(dependents=("Launched", "Registered", "Initialized"))
NODEPOOL = ConditionSet(dependents=("ValidationSucceeded", "NodeClassReady"))
NODEOVERLAY = ConditionSet(dependents=("ValidationSucceeded",))
